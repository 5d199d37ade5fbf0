"""Attention in float64, request by request: what wrappers and kernels of attention are held to."""

import math

import torch


def attention(
    q, k, v, scale=None, causal=False, window=-1, sinks=None, mask=None, soft_cap=0.0, slopes=None, rope=None, at=None
):
    """q [n, heads, dim], k and v [m, kv_heads, ..]; mask bool [n, m]; rope (scale, theta). Outputs, and log2 of the sums.

    `at`: only these queries.
    """
    (whole, heads, dim), (m, kv_heads, _) = q.shape, k.shape
    at = torch.arange(whole, device=q.device) if at is None else at
    q, n = q[at], len(at)
    group, scale = heads // kv_heads, dim**-0.5 if scale is None else scale
    k, v = k.double(), v.double()
    if rope:
        k = rotated(k, torch.arange(m, device=q.device), *rope)
    o = torch.zeros(n, heads, v.shape[-1], dtype=torch.float64, device=q.device)
    lse = torch.full((n, heads), -math.inf, dtype=torch.float64, device=q.device)
    step = max(1, (1 << 26) // max(m * group, 1))
    j = torch.arange(m, device=q.device)
    for begin in range(0, n, step):
        own = at[begin : begin + step, None] + m - whole
        hidden = torch.zeros(own.shape[0], m, dtype=torch.bool, device=q.device)
        if causal:
            hidden |= j > own
        if window >= 0:
            hidden |= j < own - window
        if mask is not None:
            hidden |= ~mask[at[begin : begin + step]]
        for head in range(kv_heads):
            of = slice(head * group, (head + 1) * group)
            rows = q[begin : begin + step, of].double()
            if rope:
                rows = rotated(rows, own[:, 0], *rope)
            scores = torch.einsum("ihd,jd->hij", rows, k[:, head]) * scale
            if soft_cap:
                scores = soft_cap * torch.tanh(scores / soft_cap)
            if slopes is not None:
                scores = scores + slopes[of, None, None].double() * (j - own)
            scores = scores.masked_fill(hidden, -math.inf)
            sums = torch.logsumexp(scores, 2) if m else torch.full(scores.shape[:2], -math.inf, device=q.device).double()
            if sinks is not None:
                sums = torch.logaddexp(sums, sinks[of, None].double())
            weights = torch.exp(scores - sums.masked_fill(sums == -math.inf, 0.0)[..., None])
            o[begin : begin + step, of] = torch.einsum("hij,jd->ihd", weights, v[:, head])
            lse[begin : begin + step, of] = sums.T / math.log(2)
    return o, lse


def rotated(x, positions, scale, theta):
    """Halves of each head turned by its position."""
    half = x.shape[-1] // 2
    angle = positions.double()[:, None, None] / scale * theta ** (-torch.arange(half, device=x.device).double() / half)
    a, b = x.double().split(half, -1)
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


def batch(q, k, v, qo_lens, kv_lens, **how):
    """Requests one after the other: q [sum of qo_lens, ..], k and v [sum of kv_lens, ..]. A mask is a list."""
    masks = how.pop("mask", None) or [None] * len(qo_lens)
    parts = [
        attention(a, b, c, mask=m, **how) for a, b, c, m in zip(q.split(qo_lens), k.split(kv_lens), v.split(kv_lens), masks)
    ]
    shape = (0, q.shape[1], v.shape[-1])
    o = torch.cat([p[0] for p in parts]) if parts else torch.zeros(shape, device=q.device).double()
    return o, torch.cat([p[1] for p in parts]) if parts else o[..., 0]


class Pages:
    """Keys and values of requests in pages in any order; slots that no token lies in hold NaN."""

    def __init__(self, kv_lens, page_size, kv_heads, qk_dim, vo_dim, dtype, device="cpu", spare=3, seed=0, make=None):
        make = make or torch.randn
        generator = torch.Generator().manual_seed(seed)
        counts = [-(-n // page_size) for n in kv_lens]
        total = sum(kv_lens)
        pages = sum(counts) + spare
        self.k = make(total, kv_heads, qk_dim, device=device).to(dtype)
        self.v = make(total, kv_heads, vo_dim, device=device).to(dtype)
        order = torch.randperm(pages, generator=generator)[: sum(counts)]
        self.k_pages, self.v_pages = (
            torch.full((pages, page_size, kv_heads, dim), math.nan, dtype=dtype, device=device) for dim in (qk_dim, vo_dim)
        )
        if total:
            token = torch.cat([torch.arange(n) for n in kv_lens])
            first = torch.tensor([0, *counts]).cumsum(0)[:-1].repeat_interleave(torch.tensor(kv_lens))
            slot = (order[first + token // page_size] * page_size + token % page_size).to(device)
            self.k_pages.view(-1, kv_heads, qk_dim)[slot] = self.k
            self.v_pages.view(-1, kv_heads, vo_dim)[slot] = self.v
        integers = lambda values: torch.tensor(values, dtype=torch.int32, device=device)  # noqa: E731
        self.indices = order.int().to(device)
        self.indptr = integers([0, *counts]).cumsum(0, dtype=torch.int32)
        self.last = integers([(n - 1) % page_size + 1 if n else 0 for n in kv_lens])
        self.lens = integers(kv_lens)

    @property
    def batch(self):
        """The three tensors of a plan."""
        return self.indptr, self.indices, self.last

    def cache(self, layout="NHD", pair=True):
        """As a wrapper takes it."""
        k, v = self.k_pages, self.v_pages
        if layout == "HND":
            k, v = (x.transpose(1, 2).contiguous() for x in (k, v))
        return (k, v) if pair else torch.stack((k, v), 1)


def indptr(lens, device="cpu"):
    """Where requests begin, and the end."""
    return torch.tensor([0, *lens]).cumsum(0).int().to(device)
