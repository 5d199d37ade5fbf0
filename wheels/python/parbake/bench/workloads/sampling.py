"""Softmax, samplers and selections over a vocabulary."""

from parbake.bench import check
from parbake.bench.workload import Workload


class Softmax(Workload):
    function = "softmax"
    small = {"rows": 3, "vocab": 1000}

    def inputs(self, make):
        make.output("out", (self.rows, self.vocab), "f32")
        make.normal("logits", (self.rows, self.vocab), "f32", 2.0)

    def bytes(self):
        return 2 * 4 * self.rows * self.vocab

    def flop(self):
        return 4 * self.rows * self.vocab

    def expected(self, run, given):
        return {"out": run(given.logits)}

    def parbake(self, fw):
        softmax = fw.parbake(self.function)
        return lambda s: softmax(s.logits)

    def torch(self, fw):
        softmax = fw.torch.softmax
        return lambda s: softmax(s.logits, dim=-1, out=s.out)

    def compile(self, fw):
        softmax = fw.torch.softmax
        return fw.compiled(lambda s: softmax(s.logits, dim=-1))

    def triton(self, fw):
        kernels = fw.triton()
        return lambda s: kernels.softmax(s.logits, s.out)

    def flashinfer(self, fw):
        softmax = fw.flashinfer("sampling", self.function)
        return lambda s: softmax(s.logits)


class Sampler(Workload):
    """One token a row. There are many right answers: what is checked is that each token is inside the filter; how often
    each comes is what tests/gpu/sampling.py looks at."""

    small = {"rows": 3, "vocab": 1000}
    top_k = top_p = None

    def inputs(self, make):
        make.probabilities("probs", self.rows, self.vocab)

    def bytes(self):
        """One pass over the probabilities."""
        return 4 * self.rows * self.vocab + 4 * self.rows

    def judge(self, torch, backend, before, after, result):
        verdict = check.Verdict("every token in the filter")
        if result.shape[0] != self.rows or result.numel() != self.rows:
            verdict.refuse(f"expected {self.rows} tokens, got {list(result.shape)}")
            return verdict
        verdict.elements = self.rows
        probabilities = before.probs if "probs" in before else torch.softmax(before.logits.double(), dim=-1)
        verdict.wrong = check.outside(torch, result, probabilities, self.top_k, self.top_p)
        if verdict.wrong:
            verdict.refuse(f"{verdict.wrong} tokens that no sampler of this kind gives")
        return verdict

    def filter(self, torch, probs):
        """Eager: sort, cut, renormalise."""
        ordered, order = probs.sort(dim=-1, descending=True)
        keep = ordered.cumsum(dim=-1) - ordered < (1.0 if self.top_p is None else self.top_p)
        if self.top_k is not None:
            keep[:, self.top_k :] = False
        return torch.where(keep, ordered, 0.0), order

    def torch(self, fw):
        torch = fw.torch

        def run(s):
            probs = s.probs if "probs" in s else torch.softmax(s.logits, dim=-1)
            kept, order = self.filter(torch, probs)
            # Without torch.multinomial: that one waits for the GPU, and no graph may.
            drawn = torch.rand(kept.shape[0], 1, device=kept.device) * kept.sum(dim=-1, keepdim=True)
            place = torch.searchsorted(kept.cumsum(dim=-1), drawn, right=True).clamp(max=kept.shape[1] - 1)
            return order.gather(1, place)[:, 0]

        return run


class TopP(Sampler):
    function = "top_p_sampling_from_probs"
    top_p = 0.9

    def parbake(self, fw):
        sample = fw.parbake(self.function)
        return lambda s: sample(s.probs, self.top_p, seed=1, offset=0)

    def flashinfer(self, fw):
        sample = fw.flashinfer("sampling", self.function)
        return lambda s: sample(s.probs, self.top_p, seed=1, offset=0)


class TopKTopP(Sampler):
    function = "top_k_top_p_sampling_from_probs"
    top_k, top_p = 50, 0.9

    def parbake(self, fw):
        return self._like_flashinfer(fw.parbake(self.function))

    def flashinfer(self, fw):
        return self._like_flashinfer(fw.flashinfer("sampling", self.function))

    def _like_flashinfer(self, sample):
        order = "joint"
        return lambda s: sample(s.probs, self.top_k, self.top_p, filter_apply_order=order, seed=1, offset=0)


class TopKTopPLogits(TopKTopP):
    function = "top_k_top_p_sampling_from_logits"

    def inputs(self, make):
        make.normal("logits", (self.rows, self.vocab), "f32", 2.0)

    def _like_flashinfer(self, sample):
        order = "joint"
        return lambda s: sample(s.logits, self.top_k, self.top_p, filter_apply_order=order, seed=1, offset=0)


class FromLogits(Sampler):
    function = "sampling_from_logits"

    def inputs(self, make):
        make.normal("logits", (self.rows, self.vocab), "f32", 2.0)

    def parbake(self, fw):
        sample = fw.parbake(self.function)
        return lambda s: sample(s.logits, seed=1, offset=0)

    def torch(self, fw):
        torch = fw.torch

        def run(s):
            gumbel = -torch.empty_like(s.logits).exponential_().log()
            return (s.logits + gumbel).argmax(dim=-1)

        return run

    def flashinfer(self, fw):
        sample = fw.flashinfer("sampling", self.function)
        return lambda s: sample(s.logits, seed=1, offset=0)


class TopK(Workload):
    function = "top_k"
    small = {"rows": 3, "vocab": 4096, "k": 100}

    def inputs(self, make):
        make.normal("x", (self.rows, self.vocab), self.dtype)

    def bytes(self):
        return 2 * self.rows * self.vocab + (2 + 8) * self.rows * self.k

    def judge(self, torch, backend, before, after, result):
        """Exact: the values are the k largest, and each index has its value and is there once. Order is free."""
        values, indices = result
        verdict = check.Verdict("exact")
        verdict.elements = values.numel()
        if values.shape != (self.rows, self.k) or indices.shape != values.shape:
            verdict.refuse(f"expected {[self.rows, self.k]}, got {list(values.shape)} and {list(indices.shape)}")
            return verdict
        indices = indices.long()
        largest = before.x.sort(dim=-1, descending=True).values[:, : self.k]
        inside = ((indices >= 0) & (indices < self.vocab)).all()
        distinct = (indices.sort(dim=-1).values.diff(dim=-1) != 0).all()
        same = (values.sort(dim=-1, descending=True).values == largest).all()
        if not inside or not distinct or not same or not (before.x.gather(1, indices) == values).all():
            verdict.wrong = int((values.sort(dim=-1, descending=True).values != largest).sum())
            verdict.refuse("not the k largest, or not their places")
        return verdict

    def parbake(self, fw):
        top_k = fw.parbake(self.function)
        return lambda s: top_k(s.x, self.k)

    def torch(self, fw):
        top_k = fw.torch.topk
        return lambda s: top_k(s.x, self.k, dim=-1, sorted=False)

    def flashinfer(self, fw):
        top_k = fw.flashinfer("topk", self.function)
        return lambda s: top_k(s.x, self.k)


WORKLOADS = [
    Softmax("U13", "f32", rows=64, vocab=128256),
    TopKTopP("S1", "f32", rows=1, vocab=128256),
    TopP("S1p", "f32", rows=1, vocab=128256),
    TopP("S2", "f32", rows=64, vocab=128256),
    TopP("S2w", "f32", rows=256, vocab=151936),
    TopKTopPLogits("S3", "f32", rows=256, vocab=151936),
    TopK("S4", "bf16", rows=64, vocab=131072, k=2048),
    FromLogits("S5", "f32", rows=64, vocab=128256),
]
