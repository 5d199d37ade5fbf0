"""Activations with a gate."""

from parbake.bench.workload import Workload


class SiluAndMul(Workload):
    function = "silu_and_mul"
    small = {"rows": 4, "hidden": 512}

    def inputs(self, make):
        make.output("out", (self.rows, self.hidden), self.dtype)
        make.normal("x", (self.rows, 2 * self.hidden), self.dtype)

    def bytes(self):
        return 2 * 3 * self.rows * self.hidden

    def flop(self):
        return 5 * self.rows * self.hidden

    def expected(self, run, given):
        return {"out": run(given.x)}

    def parbake(self, fw):
        silu_and_mul = fw.parbake(self.function)
        return lambda s: silu_and_mul(s.x, out=s.out)

    def torch(self, fw):
        silu = fw.torch.nn.functional.silu
        return lambda s: silu(s.x[:, : self.hidden]) * s.x[:, self.hidden :]

    def triton(self, fw):
        kernels = fw.triton()
        return lambda s: kernels.silu_and_mul(s.x, s.out)

    def flashinfer(self, fw):
        silu_and_mul = fw.flashinfer("activation", self.function)
        return lambda s: silu_and_mul(s.x, out=s.out)


WORKLOADS = [
    SiluAndMul("U6", rows=4096, hidden=14336),
    SiluAndMul("U6a", rows=1, hidden=14336),
]
