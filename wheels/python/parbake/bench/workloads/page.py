"""Paged KV caches."""

from parbake.bench.workload import Workload


class AppendPagedKvCache(Workload):
    function = "append_paged_kv_cache"
    small = {"tokens": 16, "batch": 2, "kv_heads": 2, "dim": 64}

    @property
    def pages(self):
        """As many as the tokens fill, and as many again that stay as they are."""
        return 2 * self.batch * self.pages_each

    @property
    def pages_each(self):
        return -(-(self.tokens // self.batch) // self.page)

    def inputs(self, make):
        each, heads = self.tokens // self.batch, (self.kv_heads, self.dim)
        make.normal("key", (self.tokens, *heads), self.dtype)
        make.normal("value", (self.tokens, *heads), self.dtype)
        make.zeros("cache", (self.pages, 2, self.page, *heads), self.dtype)
        make.given("indices", "i32", lambda i: make.permutation(self.pages)[: self.batch * self.pages_each])
        arange = lambda n: make.torch.arange(n, device=make.device.place)  # noqa: E731
        make.given("indptr", "i32", lambda i: arange(self.batch + 1) * self.pages_each)
        make.given("batch_indices", "i32", lambda i: arange(self.tokens) // each)
        make.given("positions", "i32", lambda i: arange(self.tokens) % each)
        make.given("last", "i32", lambda i: arange(self.batch) * 0 + (each - 1) % self.page + 1)

    def bytes(self):
        return 2 * 2 * 2 * self.tokens * self.kv_heads * self.dim + 8 * self.tokens

    def expected(self, run, given):
        k, v = run(
            given.cache[:, 0], given.cache[:, 1], given.key, given.value, given.batch_indices, given.positions,
            given.indices, given.indptr,
        )
        return {"k": k, "v": v}

    def results(self, given, result):
        return {"k": given.cache[:, 0], "v": given.cache[:, 1]}

    def parbake(self, fw):
        return self._like_flashinfer(fw.parbake(self.function))

    def flashinfer(self, fw):
        return self._like_flashinfer(fw.flashinfer("page", self.function))

    @staticmethod
    def _like_flashinfer(append):
        return lambda s: append(
            s.key, s.value, s.batch_indices, s.positions, s.cache, s.indices, s.indptr, s.last, kv_layout="NHD"
        )

    def torch(self, fw):
        def run(s):
            page = s.indices[s.indptr[s.batch_indices] + s.positions // self.page]
            slot = s.positions % self.page
            s.cache[page, 0, slot] = s.key
            s.cache[page, 1, slot] = s.value

        return run


WORKLOADS = [
    AppendPagedKvCache("U10", tokens=4096, batch=32, kv_heads=8, dim=128, page=16),
]
