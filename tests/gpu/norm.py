#!/usr/bin/env python3
"""Checks and times norm kernels on a GPU. Needs PyTorch with CUDA, and cubins; no compiler.

    python3 tests/gpu/norm.py FOLDER [--check] [--bench [--all] [--strict]] [--json FILE]

FOLDER is what `parbake inspect BUNDLE --extract FOLDER` wrote: images, and `images.json`, which says what each is. Images
for other architectures are left out. kernels/norm/norm.rs says what a tactic means and when it is chosen.

--check runs every kernel over rows x hidden x layouts against a float64 reference: 16-bit outputs within one unit in
the last place, f32 within 1e-6 + 1e-5 |ref|, residuals bit for bit, everything outside the rows untouched.

--bench times the default tactic of a shape (with --all, every legal one) beside torch.neg(out=) moving the same bytes
and torch.nn.functional.rms_norm. A time is the median over replays of a CUDA graph of n launches that rotate over
distinct buffers, at least three sets; where all sets together fit in L2, the cache is flushed before every replay.

--strict fails unless both ops reach 0.92 of torch.neg on bf16 [16384,8192] and are faster than PyTorch there.
"""

import argparse
import ctypes
import json
import math
import pathlib
import statistics
import sys

import torch

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
EPS = 1e-6


class Params(ctypes.Structure):
    """Both parameter structs of kernels/norm have this layout: three pointers, two strides, rows, hidden, eps, bias."""

    _fields_ = [("a", ctypes.c_void_p), ("b", ctypes.c_void_p), ("c", ctypes.c_void_p), ("stride0", ctypes.c_int64),
                ("stride1", ctypes.c_int64), ("rows", ctypes.c_int64), ("hidden", ctypes.c_int32),
                ("eps", ctypes.c_float), ("weight_bias", ctypes.c_float)]


driver = ctypes.CDLL("libcuda.so.1")


def cu(code):
    if code:
        name = ctypes.c_char_p()
        driver.cuGetErrorString(code, ctypes.byref(name))
        raise RuntimeError(f"CUDA driver: {name.value.decode()}")


class Kernel:
    def __init__(self, folder, row):
        self.op, self.dtype, self.name = row["op"], row["axes"]["dtype"], row["entry"]
        self.block, self.rows, self.vec, self.peel = (row["tactic"][k] for k in ("block", "rows", "vec", "peel"))
        module, self.fn, n = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
        cu(driver.cuModuleLoadData(ctypes.byref(module), (folder / row["file"]).read_bytes()))
        cu(driver.cuModuleGetFunction(ctypes.byref(self.fn), module, row["entry"].encode()))
        cu(driver.cuFuncGetAttribute(ctypes.byref(n), 4, self.fn))  # CU_FUNC_ATTRIBUTE_NUM_REGS
        self.registers = n.value

    def legal(self, first, second, weight):
        return legal(self.vec, self.peel, first, second, weight)

    def threads(self, hidden):
        """A row that has a block for itself gets as many warps as keep it in registers."""
        if self.rows > 1:
            return self.block
        return min(self.block, 32 * math.ceil(self.accesses(hidden) / (4 if self.vec == 16 else 6) / 32))

    def accesses(self, hidden):
        return math.ceil(hidden * torch.empty(0, dtype=DTYPES[self.dtype]).element_size() / self.vec)

    def default(self, first, second, weight):
        """Whether this is the tactic that a launcher picks for these tensors."""
        size = first.element_size()
        for tactic in default_tactics(first.shape[1] * size, size):
            if legal(*tactic[2:], first, second, weight):
                return tactic == (self.block, self.rows, self.vec, self.peel)

    def launch(self, first, second, weight, bias=0.0, threads=None):
        """rmsnorm: first = x, second = out. fused_add_rmsnorm: first = x, second = residual."""
        rows, hidden = first.shape
        a, b = first.data_ptr(), second.data_ptr()
        order = (a, weight.data_ptr(), b) if self.op == "rmsnorm" else (a, b, weight.data_ptr())
        p = Params(*order, first.stride(0), second.stride(0), rows, hidden, EPS, bias)
        args = (ctypes.c_void_p * 1)(ctypes.addressof(p))
        blocks = math.ceil(rows / self.rows)
        threads = threads or self.threads(hidden)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        cu(driver.cuLaunchKernel(self.fn, blocks, 1, 1, threads, 1, 1, 0, stream, args, None))


def legal(vec, peel, first, second, weight):
    size = first.element_size()
    strides = first.stride(0) * size, second.stride(0) * size
    pointers = first.data_ptr(), second.data_ptr()
    if peel:
        return (pointers[0] - pointers[1]) % vec == 0 and (strides[0] - strides[1]) % vec == 0
    return all(v % vec == 0 for v in (*pointers, *strides, weight.data_ptr(), first.shape[1] * size))


def default_tactics(row_bytes, size):
    """(block, rows, vec, peel) in the order of preference, as kernels/norm/norm.rs has it; the first legal one is taken."""
    small = row_bytes <= 1024
    if small:
        yield 128, 32 if row_bytes <= 256 else 16 if row_bytes <= 512 else 8, 16, 0
    else:
        yield 512 if row_bytes <= 32768 else 1024, 1, 16, 0
    yield (128, 8, 16, 1) if small else (512, 1, 16, 1)
    yield (128, 8, size, 0) if row_bytes <= 96 * size else (512, 1, size, 0)


# ---- correctness ----------------------------------------------------------------------------------------------------

def ordered(t):
    """16-bit floats as integers in the order of their values."""
    i = t.contiguous().view(torch.int16).int()
    return torch.where(i < 0, -(i & 0x7FFF), i)


def error(got, want):
    """In units of what is allowed. The references hold no NaN, so a NaN is an infinite error."""
    if torch.isnan(got).any():
        return math.inf
    if got.dtype == torch.float32:
        return ((got.double() - want).abs() / (1e-6 + 1e-5 * want.abs())).max().item()
    return float((ordered(got) - ordered(rounded(want, got.dtype))).abs().max().item())


def rounded(want, dtype):
    """float64 to 16 bits, rounded once to nearest, ties to even; `.to` would round to float32 on the way."""
    drop = 52 - {torch.bfloat16: 7, torch.float16: 10}[dtype]
    bits = want.contiguous().view(torch.int64)
    # Half a unit less one, and one more where the last bit that stays is odd. The carry goes into the exponent.
    bits = (bits + ((1 << (drop - 1)) - 1) + ((bits >> drop) & 1)) & ~((1 << drop) - 1)
    normal = bits.view(torch.float64)
    if dtype == torch.float16:
        normal = torch.where(want.abs() < 2.0**-14, torch.round(want * 2.0**24) / 2.0**24, normal)
    return normal.to(dtype)  # exact by now, or infinite


def check_rounded():
    """Ties, what lies just beside them, and the ends of the ranges."""
    tiny = 2.0**-45
    for dtype, one in ((torch.bfloat16, 2.0**-7), (torch.float16, 2.0**-10)):
        cases = [(1 + one / 2, 1.0), (1 + one * 1.5, 1 + 2 * one), (1 + one / 2 + tiny, 1 + one), (1 + one * 1.5 - tiny, 1 + one),
                 (2 - one / 2, 2.0), (1.0, 1.0), (0.0, 0.0)]
        if dtype == torch.float16:
            unit = 2.0**-24
            cases += [(unit / 2, 0.0), (unit * 1.5, 2 * unit), (unit / 2 * (1 + 2.0**-40), unit), (2.0**-14 - unit / 2, 2.0**-14),
                      (65519.99, 65504.0), (65520.0, math.inf)]
        for sign in (1, -1):
            got = rounded(torch.tensor([sign * c for c, _ in cases], dtype=torch.float64), dtype).double().tolist()
            wrong = [(c, g) for (c, w), g in zip(cases, got) if g != sign * w]
            assert not wrong, f"{dtype}: {wrong}"


class Padded:
    """A strided matrix in an allocation that is poison everywhere else."""

    def __init__(self, rows, hidden, pad, offset, dtype, fill=None):
        self.all = torch.full((64 + offset + rows * (hidden + pad) + 64,), -77.0, dtype=dtype, device="cuda")
        self.view = self.all.as_strided((rows, hidden), (hidden + pad, 1), 64 + offset)
        if fill is not None:
            self.view.copy_(fill)

    def clean(self):
        rest = self.all.clone()
        rest.as_strided(self.view.shape, self.view.stride(), self.view.storage_offset()).fill_(-77.0)
        return bool((rest == -77.0).all())


def check(kernel, rows, hidden, pads, offset, scale, bias, in_place, threads):
    """The error in units of the tolerance, or None where the tactic is not legal."""
    dtype = DTYPES[kernel.dtype]
    x0 = (torch.randn(rows, hidden, device="cuda") * scale).to(dtype)
    x = Padded(rows, hidden, pads[0], offset, dtype, x0)
    w = Padded(1, hidden, 0, offset, dtype, torch.randn(1, hidden, device="cuda"))
    fused = kernel.op == "fused_add_rmsnorm"
    r0 = (torch.randn(rows, hidden, device="cuda") * scale).to(dtype)
    y = Padded(rows, hidden, pads[1], offset, dtype, r0 if fused else None)
    if not kernel.legal(x.view, y.view, w.view):
        return None
    second = x.view if in_place and not fused else y.view
    kernel.launch(x.view, second, w.view, bias, threads)
    torch.cuda.synchronize()
    s = x0.float() + r0.float() if fused else x0.float()
    v = s.double()
    want = v / torch.sqrt(v.square().mean(-1, keepdim=True) + EPS) * (w.view.double() + bias)
    result = error(x.view if fused else second, want)
    if fused and not torch.equal(y.view, s.to(dtype)):
        raise AssertionError(f"{kernel.name} [{rows},{hidden}]: the residual is not the rounded sum")
    if not (x.clean() and y.clean() and w.clean()):
        raise AssertionError(f"{kernel.name} [{rows},{hidden}] pads {pads} offset {offset}: wrote outside the rows")
    if not fused and second is not x.view and not torch.equal(x.view, x0):
        raise AssertionError(f"{kernel.name} [{rows},{hidden}]: changed its input")
    return result


def check_all(kernels):
    shapes = [(r, h) for r in (1, 19, 99, 989) for h in (1, 7, 111, 500, 1024, 3072, 3584, 4096, 8192, 16384)]
    shapes += [(3, 65536), (2, 65535)]
    shapes += [(16384, h) for h in (111, 500, 1024, 3072, 3584, 4096, 8192, 16384)]
    failed = 0
    for k in kernels:
        worst, n = 0.0, 0
        for i, (rows, hidden) in enumerate(shapes):
            other = k.block if k.rows > 1 else 32 * (1 + i % (k.block // 32))  # a block size that no launcher picks
            for pads, offset, scale, bias, in_place, threads in (
                    ((0, 0), 0, 1.0, 0.0, False, None), ((16, 24), 0, 20.0, 1.0, True, other),
                    ((3, 3), 1, 3.0, 0.0, False, None), ((3, 6), 5, 0.05, 0.0, False, other))[:4 if rows < 16384 else 1]:
                e = check(k, rows, hidden, pads, offset, scale, bias, in_place, threads)
                if e is not None:
                    worst, n = max(worst, e), n + 1
        k.error, k.cases = worst, n
        ok = n > 0 and worst <= 1
        failed += not ok
        print(f"{'ok  ' if ok else 'FAIL'} {k.name}: {n} cases, worst error {worst:.3g} of the tolerance", flush=True)
    return failed


# ---- time -----------------------------------------------------------------------------------------------------------

class Timer:
    def __init__(self):
        self.flush = torch.empty(512 << 20, dtype=torch.int8, device="cuda")
        self.l2 = torch.cuda.get_device_properties(0).L2_cache_size

    def __call__(self, launches, footprint, replays=15):
        """Median and relative spread (10th to 90th percentile) in microseconds per launch."""
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            launches[0]()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph):
            for f in launches:
                f()
        cold = footprint < 3 * self.l2
        times = []
        for i in range(replays + 2):
            if cold:
                self.flush.fill_(i)
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            if i >= 2:
                times.append(start.elapsed_time(end) * 1e3 / len(launches))
        times.sort()
        median = statistics.median(times)
        return median, (times[len(times) * 9 // 10] - times[len(times) // 10]) / median


class Shape:
    """Buffers of one [rows, hidden] and dtype, for both operations and the baselines."""

    def __init__(self, rows, hidden, dtype, fused):
        self.rows, self.hidden, self.dtype, self.fused = rows, hidden, dtype, fused
        t = DTYPES[dtype]
        one = rows * hidden * torch.empty(0, dtype=t).element_size()
        self.bytes = one * (4 if fused else 2)
        # Enough launches for the graph's own cost not to show: at least 3 sets, and up to 32 where they are small.
        self.sets = max(3, min(32, (512 << 20) // (2 * one)))
        self.n = max(6, self.sets)
        self.footprint = self.sets * 2 * one
        make = lambda: [torch.randn(rows, hidden, device="cuda").to(t) for _ in range(self.sets)]
        self.a, self.b = make(), make()
        self.w = torch.randn(hidden, device="cuda").to(t)

    def rotate(self, f):
        return [lambda i=i % self.sets: f(self.a[i], self.b[i]) for i in range(self.n)]

    def refill(self):
        # Repeated in-place addition would drift to infinity.
        for a, b in zip(self.a, self.b):
            a.normal_()
            b.normal_()

    def baselines(self, timer):
        if self.fused:
            neg = lambda a, b: (torch.neg(a, out=b), torch.neg(b, out=a))
            norm = lambda a, b: (b.add_(a), torch.nn.functional.rms_norm(b, (self.hidden,), self.w, EPS))
        else:
            neg = lambda a, b: torch.neg(a, out=b)
            norm = lambda a, b: torch.nn.functional.rms_norm(a, (self.hidden,), self.w, EPS)
        self.refill()
        neg_time = timer(self.rotate(neg), self.footprint)
        self.refill()
        return neg_time, timer(self.rotate(norm), self.footprint)


SHAPES = [(16384, 8192, "bf16"), (16384, 8192, "f16"), (8192, 8192, "f32"), (4096, 4096, "bf16"), (64, 8192, "bf16"),
          (1, 4096, "bf16"), (16384, 5120, "bf16"), (32768, 2880, "bf16"), (131072, 1024, "bf16"), (262144, 512, "bf16"),
          (524288, 256, "bf16"), (1048576, 128, "bf16"), (4096, 128, "bf16"), (4096, 16384, "bf16"), (2048, 32768, "bf16"),
          (16384, 4097, "bf16"), (16384, 8191, "bf16"), (262144, 111, "bf16"), (4096, 4096, "f32"), (16384, 2049, "f32")]


def bench(kernels, every):
    timer, rows = Timer(), []
    for fused in (False, True):
        op = "fused_add_rmsnorm" if fused else "rmsnorm"
        for r, h, dtype in SHAPES:
            shape = Shape(r, h, dtype, fused)
            neg, norm = shape.baselines(timer)
            for k in kernels:
                tensors = shape.a[0], shape.b[0], shape.w
                if k.op != op or k.dtype != dtype or not (k.legal if every else k.default)(*tensors):
                    continue
                shape.refill()
                us, spread = timer(shape.rotate(lambda a, b: k.launch(a, b, shape.w)), shape.footprint)
                rows.append({"op": op, "rows": r, "hidden": h, "dtype": dtype, "entry": k.name, "us": us,
                             "spread": spread, "tb_s": shape.bytes / us / 1e6, "neg_us": neg[0], "neg_spread": neg[1],
                             "share": neg[0] / us, "torch_us": norm[0], "n": shape.n, "registers": k.registers})
            del shape
            torch.cuda.empty_cache()
    for row in sorted(rows, key=lambda x: (x["op"], x["dtype"], x["rows"], x["hidden"], x["us"])):
        print(f"{row['op']:18} [{row['rows']},{row['hidden']}] {row['entry']:40} {row['us']:9.2f} us +-{row['spread']:.1%}"
              f" {row['tb_s']:.2f} TB/s, neg {row['neg_us']:.2f} us: {row['share']:.3f}, torch {row['torch_us']:.2f} us")
    return rows


def too_slow(figures):
    """What --strict holds: a large bf16 shape moves its bytes nearly as fast as torch.neg, and beats PyTorch's norm."""
    bad = []
    for op in ("rmsnorm", "fused_add_rmsnorm"):
        rows = [f for f in figures if (f["op"], f["dtype"], f["rows"], f["hidden"]) == (op, "bf16", 16384, 8192)]
        if not rows:
            bad.append(f"{op} bf16 [16384,8192] was not timed")
            continue
        best = min(rows, key=lambda f: f["us"])
        if best["share"] < 0.92:
            bad.append(f"{op} bf16 [16384,8192] reaches {best['share']:.3f} of torch.neg, expected 0.92")
        if best["us"] >= best["torch_us"]:
            bad.append(f"{op} bf16 [16384,8192] takes {best['us']:.1f} us, torch {best['torch_us']:.1f} us")
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--bench", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--strict", action="store_true", help="with --bench: fail where a large shape is slow")
    parser.add_argument("--json", type=pathlib.Path, help="where to write the figures")
    a = parser.parse_args()
    if a.strict and not a.bench:
        parser.error("--strict judges what --bench times")
    check_rounded()
    torch.manual_seed(0)
    torch.zeros(1, device="cuda")  # makes the context that the cubins are loaded into
    version = ctypes.c_int()
    cu(driver.cuDriverGetVersion(ctypes.byref(version)))
    print(f"{torch.cuda.get_device_name()}, driver API {version.value}, torch {torch.__version__}")
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    images = json.loads((a.folder / "images.json").read_text())
    kernels = [Kernel(a.folder, row) for row in images if row["target"].rstrip("af") == arch]
    failed = check_all(kernels) if a.check else 0
    figures = bench(kernels, a.all) if a.bench and not failed else []
    if a.json:
        a.json.write_text(json.dumps(figures, indent=1))
    slow = too_slow(figures) if a.strict and not failed else []
    for line in slow:
        print(f"FAIL {line}")
    return failed != 0 or bool(slow)


if __name__ == "__main__":
    sys.exit(main())
