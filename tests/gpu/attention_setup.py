"""What the checks and times of attention share: the device, what is said of it, and how results are judged."""

import math

import torch

import dense

BF16, F16 = torch.bfloat16, torch.float16
BOUND = {BF16: 5e-3, F16: 1e-3}


class Where:
    """The device, and what calls take for it."""

    device, target, host, say = "cuda", {}, False, print


def start(host, say):
    Where.host, Where.say = host, staticmethod(say)
    if host:
        Where.device, Where.target = "cpu", {"target": "host"}
        torch.set_num_threads(1)
    torch.manual_seed(1)


def name(shape):
    """Says what comes next: it is what hangs if anything does."""
    Where.say(shape=shape)


def workspace(dim, fill=255):
    """Its content means nothing: NaN."""
    import parbake

    size = parbake.attention_workspace_size(dim, Where.device, **Where.target)
    return torch.full((size,), fill, dtype=torch.uint8, device=Where.device)


def randn(*shape, dtype=BF16, scale=1.0):
    return (torch.randn(*shape, device=Where.device) * scale).to(dtype)


def make(*shape, device):
    """Standard normal numbers, without one of its own for each element of a large tensor."""
    count = math.prod(shape)
    few = torch.randn(min(count, (1 << 26) + 12345), device=device).bfloat16()
    return few.repeat(-(-count // max(len(few), 1)) if count else 1)[:count].view(shape)


def pages(kv_lens, page_size, kv_heads, dims, dtype, **how):
    return dense.Pages(kv_lens, page_size, kv_heads, *dims, dtype, Where.device, **how)


def indptr(lens):
    return dense.indptr(lens, Where.device)


class Worst:
    """The worst that was seen of each bound, in units of it; a shape beyond it fails."""

    def __init__(self):
        self.o = self.lse = self.rule = 0.0
        self.cases = 0

    def see(self, what, out, lse, want, bound=None):
        """Each head of each query against the reference: outputs [tokens, heads, dim], logarithms [tokens, heads]."""
        self.cases += 1
        if out.numel() == 0:
            return
        ref, sums = want
        bound = bound or BOUND[out.dtype]
        # ‖·‖ over what a head of a request gives is at most that of its rows; rows are held to it one by one.
        size, off = ref.norm(dim=-1), (out.double() - ref).norm(dim=-1)
        ratio = torch.where(size > 0, off / (bound * size), torch.where(off == 0, 0.0, math.inf))
        worst = math.inf if out.isnan().any() else ratio.max().item()
        self.o = max(self.o, worst)
        if not worst <= 1:
            raise AssertionError(f"{what}: an output is off by {worst:.3g} of the {bound:g} that are allowed")
        if lse is None:
            return
        if not torch.equal(lse == -math.inf, sums == -math.inf):
            raise AssertionError(f"{what}: −inf where keys are seen, or else")
        error = (lse.double() - sums).masked_fill(sums == -math.inf, 0.0).abs().max().item() / 1e-3
        self.lse = max(self.lse, error)
        if not error <= 1:
            raise AssertionError(f"{what}: a logarithm is off by {error:.3g} of the 1e-3 that are allowed")

    def rule_of_two(self, what, out, want, plain):
        """max |out − ref| ≤ 2 max |plain − ref| + 2 max |(ref + 0.3 − 0.3) − ref|, the sums in the precision of the output."""
        if out.numel() == 0:
            return
        ref = want[0]
        low = ref.to(out.dtype)
        allowed = 2 * (plain.double() - ref).abs().max() + 2 * ((low + 0.3 - 0.3).double() - low.double()).abs().max()
        worst = ((out.double() - ref).abs().max() / allowed.clamp(min=1e-30)).item()
        self.rule = max(self.rule, worst)
        if not worst <= 1:
            raise AssertionError(f"{what}: {worst:.3g} of what FlashAttention's rule allows")

    def __str__(self):
        rule = f", {self.rule:.2f} of the rule of two" if self.rule else ""
        return f"{self.cases} cases, outputs {self.o:.2f} and logarithms {self.lse:.2f} of what is allowed{rule}"


def plain(q, k, v, causal=False, window=-1):
    """As a naive implementation has it: products and softmax in the precision of the inputs."""
    (n, heads, dim), (m, kv_heads, _) = q.shape, k.shape
    group = heads // kv_heads
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("ihd,jhd->hij", q * dim**-0.5, k).float()
    own = torch.arange(n, device=q.device)[:, None] + m - n
    j = torch.arange(m, device=q.device)
    hidden = (j > own) if causal else torch.zeros(n, m, dtype=torch.bool, device=q.device)
    if window >= 0:
        hidden = hidden | (j < own - window)
    weights = scores.masked_fill(hidden, -math.inf).softmax(-1).nan_to_num(0.0).to(q.dtype)
    return torch.einsum("hij,jhd->ihd", weights, v)
