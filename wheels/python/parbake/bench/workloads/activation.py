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


class SiluAndMulQuant(Workload):
    """With a scale for each 128 columns."""

    function = "silu_and_mul_quant"
    small = {"rows": 4, "hidden": 512}

    def inputs(self, make):
        make.output("out", (self.rows, self.hidden), "e4m3")
        make.output("scale", (self.rows, self.hidden // 128), "f32")
        make.normal("x", (self.rows, 2 * self.hidden), self.dtype)

    def bytes(self):
        return 5 * self.rows * self.hidden + 4 * self.rows * self.hidden // 128

    def flop(self):
        return 8 * self.rows * self.hidden

    def expected(self, run, given):
        out, scale = run(given.x)
        return {"out": out, "scale": scale}

    def results(self, given, result):
        return dict(zip(("out", "scale"), result))

    def parbake(self, fw):
        quantize = fw.parbake(self.function)

        def run(s):
            quantize(s.x, out=s.out, scale=s.scale)
            return s.out, s.scale

        return run

    def torch(self, fw):
        silu, e4m3 = fw.torch.nn.functional.silu, fw.torch.float8_e4m3fn

        def run(s):
            y = silu(s.x[:, : self.hidden].float()) * s.x[:, self.hidden :].float()
            groups = y.view(self.rows, -1, 128)
            scale = groups.abs().amax(dim=-1).clamp(min=1e-10) / 448.0
            out = (groups / scale[..., None]).clamp(-448.0, 448.0).to(e4m3)
            return out.view(self.rows, self.hidden), scale

        return run


WORKLOADS = [
    SiluAndMul("U6", rows=4096, hidden=14336),
    SiluAndMul("U6a", rows=1, hidden=14336),
    SiluAndMulQuant("U7", rows=8192, hidden=2048),
]
