"""Norms."""

from parbake.bench.workload import Workload

EPS = 1e-6


class Rmsnorm(Workload):
    function = "rmsnorm"
    small = {"rows": 4, "hidden": 512}

    def inputs(self, make):
        make.output("out", (self.rows, self.hidden), self.dtype)
        make.normal("x", (self.rows, self.hidden), self.dtype)
        make.normal("weight", (self.hidden,), self.dtype)

    def bytes(self):
        return 2 * (2 * self.rows * self.hidden + self.hidden)

    def flop(self):
        return 4 * self.rows * self.hidden

    def expected(self, run, given):
        return {"out": run(given.x, given.weight, EPS)}

    def parbake(self, fw):
        rmsnorm = fw.parbake(self.function)
        return lambda s: rmsnorm(s.x, s.weight, EPS, out=s.out)

    def torch(self, fw):
        norm = fw.torch.nn.functional.rms_norm
        return lambda s: norm(s.x, (self.hidden,), s.weight, EPS)

    def triton(self, fw):
        kernels = fw.triton()
        return lambda s: kernels.rmsnorm(s.x, s.weight, s.out, EPS)

    def flashinfer(self, fw):
        rmsnorm = fw.flashinfer("norm", self.function)
        return lambda s: rmsnorm(s.x, s.weight, EPS, out=s.out)


class FusedAddRmsnorm(Workload):
    function = "fused_add_rmsnorm"
    small = {"rows": 4, "hidden": 512}

    def inputs(self, make):
        make.normal("x", (self.rows, self.hidden), self.dtype)
        make.normal("residual", (self.rows, self.hidden), self.dtype)
        make.normal("weight", (self.hidden,), self.dtype)

    def bytes(self):
        return 2 * (4 * self.rows * self.hidden + self.hidden)

    def flop(self):
        return 5 * self.rows * self.hidden

    def expected(self, run, given):
        x, residual = run(given.x, given.residual, given.weight, EPS)
        return {"x": x, "residual": residual}

    def results(self, given, result):
        return {"x": given.x if result is None else result, "residual": given.residual}

    def parbake(self, fw):
        norm = fw.parbake(self.function)
        return lambda s: norm(s.x, s.residual, s.weight, EPS)

    def torch(self, fw):
        norm = fw.torch.nn.functional.rms_norm

        def run(s):
            s.residual.add_(s.x)
            return norm(s.residual, (self.hidden,), s.weight, EPS)

        return run

    def triton(self, fw):
        kernels = fw.triton()
        return lambda s: kernels.fused_add_rmsnorm(s.x, s.residual, s.weight, EPS)

    def flashinfer(self, fw):
        norm = fw.flashinfer("norm", self.function)
        return lambda s: norm(s.x, s.residual, s.weight, EPS)


class RmsnormQuantPerToken(Workload):
    function = "rmsnorm_quant_per_token"
    small = {"rows": 4, "hidden": 512}

    def inputs(self, make):
        make.output("out", (self.rows, self.hidden), "e4m3")
        make.output("scale", (self.rows,), "f32")
        make.normal("x", (self.rows, self.hidden), self.dtype)
        make.normal("weight", (self.hidden,), self.dtype)

    def bytes(self):
        return 3 * self.rows * self.hidden + 2 * self.hidden + 4 * self.rows

    def flop(self):
        return 7 * self.rows * self.hidden

    def expected(self, run, given):
        out, scale = run(given.x, given.weight, EPS)
        return {"out": out, "scale": scale}

    def results(self, given, result):
        return dict(zip(("out", "scale"), result))

    def parbake(self, fw):
        norm = fw.parbake(self.function)

        def run(s):
            norm(s.x, s.weight, eps=EPS, out=s.out, scale=s.scale)
            return s.out, s.scale

        return run

    def torch(self, fw):
        norm, e4m3 = fw.torch.nn.functional.rms_norm, fw.torch.float8_e4m3fn

        def run(s):
            y = norm(s.x.float(), (self.hidden,), s.weight.float(), EPS)
            scale = y.abs().amax(dim=-1).clamp(min=1e-10) / 448.0
            return (y / scale[:, None]).clamp(-448.0, 448.0).to(e4m3), scale

        return run


WORKLOADS = [
    FusedAddRmsnorm("U1", rows=1, hidden=4096),
    FusedAddRmsnorm("U2", rows=64, hidden=8192),
    FusedAddRmsnorm("U3", rows=4096, hidden=8192),
    Rmsnorm("U4", rows=16384, hidden=7168),
    Rmsnorm("U4a", rows=1, hidden=4096),
    Rmsnorm("U4b", rows=64, hidden=8192),
    RmsnormQuantPerToken("U5", rows=4096, hidden=7168),
]
