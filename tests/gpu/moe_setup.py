"""What the checks and times of mixtures of experts share: the device, problems, and the layer in float64."""

import torch

BF16, E4M3 = torch.bfloat16, torch.float8_e4m3fn


class Where:
    """The device, and what calls take for it."""

    device, target, host = "cuda", {}, False

    @staticmethod
    def start(host):
        Where.host = host
        if host:
            Where.device, Where.target = "cpu", {"target": "host"}
            torch.set_num_threads(1)
        torch.manual_seed(1)


def randn(*shape, dtype=torch.float32, scale=1.0):
    """Standard normal numbers times `scale`, without all of them in f32 at once."""
    if len(shape) < 3:
        return (torch.randn(*shape, device=Where.device) * scale).to(dtype)
    out = torch.empty(shape, dtype=dtype, device=Where.device)
    for part in out:
        part.copy_(torch.randn(part.shape, device=Where.device) * scale)
    return out


def rounded(x):
    """As 8 bits with a factor for each group of 128."""
    groups = torch.nn.functional.pad(x, (0, -x.shape[1] % 128)).unflatten(1, (-1, 128))
    scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-10).float() / 448
    # Times the reciprocal, as parbake/scale.cuh has it: many numbers of 16 bits are half way between two of 8 bits.
    return ((groups.float() * (1 / scale)).to(E4M3).double() * scale.double()).flatten(1)[:, : x.shape[1]]


class Experts:
    """Weights of a layer: bf16, or e4m3 with a factor for each block of 128 x 128, all of them different."""

    def __init__(self, experts, hidden, inner, narrow=False):
        self.hidden, self.inner, self.narrow, self.count = hidden, inner, narrow, experts
        sizes = [(2 * inner, hidden), (hidden, inner)]
        dtype = E4M3 if narrow else BF16
        self.w1, self.w2 = (randn(experts, n, k, dtype=dtype, scale=1.0 if narrow else k**-0.5) for n, k in sizes)
        self.scales = None
        if narrow:
            self.scales = tuple(
                (0.5 + torch.rand(experts, -(-n // 128), -(-k // 128), device=Where.device)) * k**-0.5 for n, k in sizes
            )

    def matrix(self, which, expert):
        """In float64, as the kernel reads it."""
        w = (self.w1, self.w2)[which][expert].double()
        if not self.narrow:
            return w
        scale = self.scales[which][expert].double()
        return w * scale.repeat_interleave(128, 0)[: w.shape[0]].repeat_interleave(128, 1)[:, : w.shape[1]]

    def run(self, x, ids, weights, first=0, ranks=1, rank=0, **more):
        import parbake

        return parbake.fused_moe.fused_experts(
            x, ids, weights, self.w1, self.w2, self.scales, ep_size=ranks, ep_rank=rank, **more, **Where.target
        )

    def reference(self, x, ids, weights, first=0):
        """In float64, expert by expert; `first` is the number of the first one here. With 8 bits rows are quantised twice."""
        wide = rounded(x.double()) if self.narrow else x.double()
        out = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
        for expert in range(self.count):
            token, slot = (ids == expert + first).nonzero(as_tuple=True)
            if len(token) == 0:
                continue
            gate, up = (wide[token] @ self.matrix(0, expert).T).chunk(2, -1)
            h = torch.nn.functional.silu(gate) * up
            h = rounded(h) if self.narrow else h
            y = h @ self.matrix(1, expert).T
            out.index_add_(0, token, y * weights[token, slot].double()[:, None])
        return out

    def near(self, got, want):
        """The worst row: its error as a share of its norm."""
        assert got.shape == want.shape and not got.isnan().any(), "NaN"
        if got.numel() == 0:
            return 0.0
        off, size = (got.double() - want).norm(dim=-1), want.norm(dim=-1)
        assert (off[size == 0] == 0).all(), "a row that no expert has is not 0"
        worst = (off / size.clamp(min=1e-30)).masked_fill(size == 0, 0).max().item()
        assert worst <= 1e-2, worst
        return worst


def routed(tokens, experts, k, zipf=False):
    """Weights and experts of tokens that prefer none, or the first as Zipf's law has it."""
    logits = torch.randn(tokens, experts, device=Where.device)
    if zipf:
        logits = torch.rand_like(logits).log().neg().log().neg() - torch.arange(1, experts + 1, device=Where.device).log()
    weights, ids = logits.softmax(-1).topk(k)
    return (weights / weights.sum(-1, keepdim=True)).float(), ids.int()
