"""Rotary embeddings."""

import math

from parbake.bench.workload import Workload

THETA = 1e4


class RopeInPlace(Workload):
    function = "apply_rope_pos_ids_inplace"
    small = {"tokens": 4, "heads": 4, "kv_heads": 2, "dim": 64}
    # Peers take sine and cosine from f32 angles, which lose bits as positions grow.
    peers = {"bf16": {"abs": 3e-2, "rel": 3e-2}}

    def inputs(self, make):
        make.normal("q", (self.tokens, self.heads, self.dim), self.dtype)
        make.normal("k", (self.tokens, self.kv_heads, self.dim), self.dtype)
        make.given("positions", "i32", lambda i: make.permutation(8 * self.tokens)[: self.tokens])

    def bytes(self):
        return 2 * 2 * self.tokens * (self.heads + self.kv_heads) * self.dim + 4 * self.tokens

    def flop(self):
        return 3 * self.tokens * (self.heads + self.kv_heads) * self.dim

    def expected(self, run, given):
        q, k = run(given.q, given.k, pos_ids=given.positions, rope_theta=THETA)
        return {"q": q, "k": k}

    def results(self, given, result):
        return {"q": given.q, "k": given.k}

    def parbake(self, fw):
        rope = fw.parbake(self.function)
        return lambda s: rope(s.q, s.k, s.positions, rope_theta=THETA)

    def torch(self, fw):
        torch, half = fw.torch, self.dim // 2
        power = -torch.arange(half, device=fw.device.place, dtype=torch.float32) / half
        frequency = THETA**power

        def run(s):
            angle = s.positions[:, None].float() * frequency
            cos, sin = angle.cos()[:, None], angle.sin()[:, None]
            for tensor in (s.q, s.k):
                a, b = tensor[..., :half].float(), tensor[..., half:].float()
                tensor[..., :half] = a * cos - b * sin
                tensor[..., half:] = b * cos + a * sin

        return run

    def triton(self, fw):
        kernels = fw.triton()
        return lambda s: kernels.rope(s.q, s.k, s.positions, math.log2(THETA))

    def flashinfer(self, fw):
        rope = fw.flashinfer("rope", self.function)
        return lambda s: rope(s.q, s.k, s.positions, rope_theta=THETA)


class RopeQuantizeAppend(Workload):
    """q turned and quantised, k turned, quantised and appended to a paged cache, v quantised and appended."""

    function = "rope_quantize_fp8_append_paged_kv_cache"
    small = {"tokens": 16, "batch": 2, "heads": 4, "kv_heads": 2, "dim": 64}
    page = 16

    @property
    def pages_each(self):
        return -(-(self.tokens // self.batch) // self.page)

    @property
    def pages(self):
        return 2 * self.batch * self.pages_each

    def inputs(self, make):
        each, rows = self.tokens // self.batch, (self.tokens,)
        cache = (self.pages, self.page, self.kv_heads, self.dim)
        make.output("q_out", (*rows, self.heads, self.dim), "e4m3")
        make.zeros("k_cache", cache, "e4m3")
        make.zeros("v_cache", cache, "e4m3")
        make.normal("q", (*rows, self.heads, self.dim), self.dtype)
        make.normal("k", (*rows, self.kv_heads, self.dim), self.dtype)
        make.normal("v", (*rows, self.kv_heads, self.dim), self.dtype)
        arange = lambda n: make.torch.arange(n, device=make.device.place)  # noqa: E731
        make.given("cos_sin", "f32", lambda i: self._table(make.torch, arange))
        make.given("indices", "i32", lambda i: make.permutation(self.pages)[: self.batch * self.pages_each])
        make.given("indptr", "i32", lambda i: arange(self.batch + 1) * self.pages_each)
        make.given("batch_indices", "i32", lambda i: arange(self.tokens) // each)
        make.given("positions", "i32", lambda i: arange(self.tokens) % each)

    def _table(self, torch, arange):
        half = self.dim // 2
        angle = arange(self.tokens // self.batch)[:, None].float() * THETA ** (-arange(half).float() / half)
        return torch.cat((angle.cos(), angle.sin()), dim=-1)

    def bytes(self):
        return 3 * self.tokens * (self.heads + 2 * self.kv_heads) * self.dim + 12 * self.tokens

    def flop(self):
        return 3 * self.tokens * (self.heads + self.kv_heads) * self.dim

    def expected(self, run, given):
        q, _, k, _, v = run(
            given.k_cache, None, given.v_cache, given.q, given.k, None, None, given.v, given.positions, given.cos_sin,
            given.batch_indices, given.positions, given.indices, given.indptr,
        )
        return {"q": q, "k": k, "v": v}

    def results(self, given, result):
        return {"q": given.q_out, "k": given.k_cache, "v": given.v_cache}

    def parbake(self, fw):
        return self._like_flashinfer(fw.parbake(self.function))

    def flashinfer(self, fw):
        return self._like_flashinfer(fw.flashinfer("rope", self.function))

    @staticmethod
    def _like_flashinfer(append):
        return lambda s: append(
            s.q, s.k, None, None, s.v, s.cos_sin, s.positions, (s.k_cache, s.v_cache), s.indices, s.indptr,
            s.batch_indices, s.positions, is_neox=True, page_size=16, kv_layout="NHD", q_rope_out=s.q_out,
        )


WORKLOADS = [
    RopeInPlace("U8", tokens=4096, heads=32, kv_heads=8, dim=128),
    RopeQuantizeAppend("U9", tokens=4096, batch=32, heads=32, kv_heads=8, dim=128),
]
