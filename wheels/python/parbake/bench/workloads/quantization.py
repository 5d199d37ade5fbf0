"""Quantisers."""

from parbake.bench.workload import Workload


class PerTokenGroup(Workload):
    """e4m3 with an f32 scale for each 128 elements of a row."""

    function = "fp8_quantize_per_token_group"
    small = {"rows": 4, "hidden": 512}

    def inputs(self, make):
        make.output("out", (self.rows, self.hidden), "e4m3")
        make.output("scale", (self.rows, self.hidden // 128), "f32")
        make.normal("x", (self.rows, self.hidden), self.dtype)

    def bytes(self):
        return 3 * self.rows * self.hidden + 4 * self.rows * self.hidden // 128

    def flop(self):
        return 3 * self.rows * self.hidden

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
        e4m3 = fw.torch.float8_e4m3fn

        def run(s):
            groups = s.x.float().view(self.rows, -1, 128)
            scale = groups.abs().amax(dim=-1).clamp(min=1e-10) / 448.0
            out = (groups / scale[..., None]).clamp(-448.0, 448.0).to(e4m3)
            return out.view(self.rows, self.hidden), scale

        return run

    def triton(self, fw):
        kernels = fw.triton()
        return lambda s: kernels.group_quant(s.x, s.out, s.scale, 128, 1e-10)


class Mxfp8(Workload):
    """e4m3 with a power of two for each 32 elements, scales row by row."""

    function = "mxfp8_quantize"
    small = {"rows": 4, "hidden": 512}

    def inputs(self, make):
        make.normal("x", (self.rows, self.hidden), self.dtype)

    def bytes(self):
        return 3 * self.rows * self.hidden + self.rows * self.hidden // 32

    def flop(self):
        return 3 * self.rows * self.hidden

    def expected(self, run, given):
        out, scale = run(given.x, layout=2)
        return {"out": out, "scale": scale.reshape(-1)}

    def results(self, given, result):
        out, scale = result
        return {"out": out, "scale": scale.reshape(-1)}

    def parbake(self, fw):
        quantize = fw.parbake(self.function)
        return lambda s: quantize(s.x, is_sf_swizzled_layout=False)


WORKLOADS = [
    PerTokenGroup("U11", rows=4096, hidden=7168),
    Mxfp8("U12", rows=4096, hidden=7168),
]
