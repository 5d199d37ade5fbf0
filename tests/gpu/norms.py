#!/usr/bin/env python3
"""Checks and times the later norms and the gated activations on a GPU, through the Python package. Needs PyTorch.

    python3 tests/gpu/norms.py [--bench] [--only WORD] [--json FILE]

Every op over the peers' rows x hidden sizes, dense, as views and unaligned, against a float64 reference: 16-bit results
within one unit in the last place (layernorm: as its op.toml says), 8-bit results within one unit of the quotient by the
scale, scales within 1e-5, residuals bit for bit. Then tensors of more than 2^31 elements, more than 65535 rows, and
replays of a CUDA graph with other data. Exits with 1 if one check failed.

--bench times each op in a CUDA graph over rotating buffers, cold where they fit in L2, beside torch.neg(out=) that moves
as many bytes; a time without a passed check is not printed.
"""

import argparse
import json
import math
import sys

import torch

import parbake
from norm import Timer, ordered, rounded

HALVES = (torch.bfloat16, torch.float16)
FP8 = {torch.float8_e4m3fn: (448.0, 4, -6), torch.float8_e5m2: (57344.0, 3, -14)}
ROWS, HIDDEN = (1, 19, 99, 989), (111, 500, 1024, 3072, 3584, 4096, 8192, 16384)
EPS = 1e-6


def view(rows, columns, dtype, layout, scale=1.0):
    """Random rows: dense, apart by whole vectors, or beginning anywhere."""
    pad, offset = {"dense": (0, 0), "padded": (32, 0), "odd": (3, 1)}[layout]
    whole = torch.randn(offset + rows * (columns + pad), device="cuda") * scale
    return whole.to(dtype).as_strided((rows, columns), (columns + pad, 1), offset)


def ulps(got, want):
    """Distance from the float64 reference rounded to the type, in units in the last place."""
    if got.numel() == 0:
        return 0.0
    if got.dtype in HALVES:
        return float((ordered(got) - ordered(rounded(want, got.dtype))).abs().max())
    largest, precision, lowest = FP8[got.dtype]
    want = want.clamp(-largest, largest)
    _, exponent = torch.frexp(want)
    unit = torch.ldexp(torch.ones_like(want), (exponent - 1).clamp(min=lowest) - (precision - 1))
    e = ((got.double() - torch.round(want / unit) * unit).abs() / unit).max()
    return math.inf if e.isnan() else float(e)


def within(got, want, absolute, relative):
    """Error in units of what is allowed."""
    if got.numel() == 0:
        return 0.0
    e = ((got.double() - want).abs() / (absolute + relative * want.abs())).max()
    return math.inf if e.isnan() else float(e)


def rms(v, weight, bias):
    v = v.double()
    return v * torch.rsqrt(v.square().mean(-1, keepdim=True) + EPS) * (weight.double() + bias)


def layer(x, weight, bias):
    v = x.double()
    v = v - v.mean(-1, keepdim=True)
    return v * torch.rsqrt(v.square().mean(-1, keepdim=True) + EPS) * weight.double() + bias.double()


def gated(name, x):
    a, b = x.double().chunk(2, -1)
    if name == "silu":
        gate = torch.sigmoid(a)
    elif name == "gelu":
        gate = torch.special.erfc(-a / math.sqrt(2)) / 2
    else:
        gate = torch.sigmoid(2 * math.sqrt(2 / math.pi) * (a + 0.044715 * a**3))
    return a * gate * b


# ---- one op, one problem: each returns the error in units of what is allowed ----------------------------------------

def layernorm(rows, hidden, dtype, layout):
    x = view(rows, hidden, dtype, layout, 3.0) + 1
    w, b = (torch.randn(hidden, device="cuda") for _ in range(2))
    got, want = parbake.layernorm(x, w, b, EPS), layer(x, w, b)
    return within(got, want, 2e-6, {torch.bfloat16: 0.004, torch.float16: 0.0005, torch.float32: 1e-5}[dtype])


def layernorm_quant(rows, hidden, dtype, layout):
    x, out = view(rows, hidden, dtype, layout), view(rows, hidden, torch.float8_e4m3fn, layout)
    w, b = (torch.randn(hidden, device="cuda") for _ in range(2))
    scale = torch.tensor([0.02], device="cuda")
    parbake.layernorm_quant(out, x, w, b, scale, EPS)
    return ulps(out, layer(x, w, b) / scale.double())


def quantised(fused, per_token):
    def run(rows, hidden, dtype, layout):
        out_dtype = torch.float8_e5m2 if hidden == 1024 else torch.float8_e4m3fn
        x, w = view(rows, hidden, dtype, layout), torch.randn(hidden, device="cuda").to(dtype)
        out = view(rows, hidden, out_dtype, layout)
        residual = (view(rows, hidden, dtype, layout),) if fused else ()
        bias = float(rows % 2)
        v = x.float() + residual[0].float() if fused else x.float()
        want = rms(v, w, bias)
        if per_token:
            function = parbake.fused_add_rmsnorm_quant_per_token if fused else parbake.rmsnorm_quant_per_token
            scale = torch.empty(rows, device="cuda")
            function(*residual, x, w, eps=EPS, weight_bias=bias, out=out, scale=scale)
            ideal = want.abs().amax(-1).clamp(min=1e-10) / FP8[out_dtype][0]
            error = max(ulps(out, want / ideal[:, None]), within(scale, ideal, 0.0, 1e-5))
        else:
            function = parbake.fused_add_rmsnorm_quant if fused else parbake.rmsnorm_quant
            scale = torch.tensor([0.02], device="cuda") if hidden % 2 else 0.02
            function(out, x, *residual, w, scale, EPS, weight_bias=bias)
            error = ulps(out, want / (scale.double() if hidden % 2 else 0.02))
        if fused and not torch.equal(residual[0], v.to(dtype)):
            return math.inf
        return error
    return run


def activation(name):
    def run(rows, hidden, dtype, layout):
        x, out = view(rows, 2 * hidden, dtype, layout, 3.0), view(rows, hidden, dtype, layout)
        got = getattr(parbake, f"{name}_and_mul")(x, out)
        want = gated(name, x)
        return within(got, want, 1e-6, 1e-5) if dtype == torch.float32 else ulps(got, want)
    return run


def silu_and_mul_quant(rows, hidden, dtype, layout):
    x, out = view(rows, 2 * hidden, dtype, layout), view(rows, hidden, torch.float8_e4m3fn, layout)
    groups = -(-hidden // 128)
    scale = torch.empty(groups, rows + 3, device="cuda").t()[:rows] if layout == "padded" else torch.empty(rows, groups, device="cuda")
    parbake.silu_and_mul_quant(x, out=out, scale=scale)
    want = torch.nn.functional.pad(gated("silu", x), (0, -hidden % 128)).unflatten(-1, (-1, 128))
    ideal = want.abs().amax(-1).clamp(min=1e-10) / 448
    quotient = (want / ideal[..., None]).flatten(-2)[:, :hidden]
    return max(ulps(out, quotient), within(scale, ideal, 0.0, 1e-5))


def qk_rmsnorm(rows, hidden, dtype, layout):
    q_heads, kv_heads = 8, 2
    dim = min(hidden, 1024)
    packed = view(rows, (q_heads + 2 * kv_heads) * dim, dtype, layout)
    q, k, v = packed.split([q_heads * dim, kv_heads * dim, kv_heads * dim], -1)
    q, k, values = q.unflatten(-1, (q_heads, dim)), k.unflatten(-1, (kv_heads, dim)), v.clone()
    wq, wk = (torch.randn(dim, device="cuda").to(dtype) for _ in range(2))
    want_q, want_k = rms(q, wq, 0.0), rms(k, wk, 0.0)
    parbake.qk_rmsnorm(q, k, wq, wk, EPS)
    if not torch.equal(v, values):
        return math.inf
    if dtype == torch.float32:
        return max(within(q, want_q, 1e-6, 1e-5), within(k, want_k, 1e-6, 1e-5))
    return max(ulps(q, want_q), ulps(k, want_k))


ALL = (torch.bfloat16, torch.float16, torch.float32)
OPS = {
    "layernorm": (layernorm, ALL),
    "layernorm_quant": (layernorm_quant, HALVES),
    "rmsnorm_quant": (quantised(False, False), HALVES),
    "fused_add_rmsnorm_quant": (quantised(True, False), HALVES),
    "rmsnorm_quant_per_token": (quantised(False, True), HALVES),
    "fused_add_rmsnorm_quant_per_token": (quantised(True, True), HALVES),
    "qk_rmsnorm": (qk_rmsnorm, ALL),
    "silu_and_mul": (activation("silu"), ALL),
    "gelu_and_mul": (activation("gelu"), ALL),
    "gelu_tanh_and_mul": (activation("gelu_tanh"), ALL),
    "silu_and_mul_quant": (silu_and_mul_quant, HALVES),
}


def check_shapes(name, run, dtypes):
    worst, cases = 0.0, 0
    for dtype in dtypes:
        for rows in ROWS:
            for hidden in HIDDEN:
                for layout in ("dense", "padded", "odd"):
                    error = run(rows, hidden, dtype, layout)
                    worst, cases = max(worst, error), cases + 1
                    if error > 1:
                        print(f"  {name} [{rows}, {hidden}] {dtype} {layout}: {error:g}")
    return worst, cases


def large(rows, hidden, dtype=torch.bfloat16):
    """A matrix of more than 2^31 elements, without a random number for each."""
    return torch.randn(1 << 20, device="cuda").to(dtype).repeat(-(-rows * hidden >> 20) or 1)[: rows * hidden].view(rows, hidden)


def picked(rows):
    return [0, 1, rows // 3, (1 << 31) // 16384 - 1, (1 << 31) // 16384 + 1, rows - 1]


def check_large():
    """More than 2^31 elements (and than 65535 rows): the rows around the boundaries, each against the reference."""
    rows, hidden = 140_000, 16_384
    x = large(rows, hidden)
    some = [r for r in picked(rows) if r < rows]
    w = torch.randn(hidden, device="cuda").bfloat16()
    errors = {}
    f, g = w.float(), torch.randn(hidden, device="cuda")
    errors["layernorm"] = within(parbake.layernorm(x, f, g, EPS)[some], layer(x[some], f, g), 2e-6, 0.004)
    out, scale = parbake.rmsnorm_quant_per_token(x, w, eps=EPS)
    want = rms(x[some], w, 0.0)
    errors["rmsnorm_quant_per_token"] = ulps(out[some], want / (want.abs().amax(-1, keepdim=True) / 448))
    del out, scale
    errors["silu_and_mul"] = ulps(parbake.silu_and_mul(x)[some], gated("silu", x[some]))
    out, scale = parbake.silu_and_mul_quant(x)
    want = gated("silu", x[some]).unflatten(-1, (-1, 128))
    errors["silu_and_mul_quant"] = ulps(out[some], (want / (want.abs().amax(-1, keepdim=True) / 448)).flatten(-2))
    del out, scale
    q, k = x.view(rows, 128, 128).split([120, 8], 1)
    want_q, want_k = rms(q[some], w[:128], 0.0), rms(k[some], w[128:256], 0.0)
    parbake.qk_rmsnorm(q, k, w[:128].clone(), w[128:256].clone(), EPS)
    errors["qk_rmsnorm"] = max(ulps(q[some], want_q), ulps(k[some], want_k))
    return errors


def check_graph():
    """A captured call takes what lies in its tensors when it is replayed, a scale too."""
    errors = {}
    for name, scaled in (("rmsnorm_quant", True), ("silu_and_mul_quant", False), ("layernorm", False)):
        x = torch.randn(99, 4096, device="cuda").bfloat16()
        w, f = torch.randn(4096, device="cuda").bfloat16(), torch.randn(4096, device="cuda")
        scale, out = torch.tensor([0.02], device="cuda"), torch.empty(99, 4096, device="cuda", dtype=torch.float8_e4m3fn)
        call = {
            "rmsnorm_quant": lambda: parbake.rmsnorm_quant(out, x, w, scale, EPS) or out,
            "silu_and_mul_quant": lambda: parbake.silu_and_mul_quant(x),
            "layernorm": lambda: parbake.layernorm(x, f, f, EPS),
        }[name]
        call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = call()
        wrong = 0
        for _ in range(3):
            x.normal_()
            scale.uniform_(0.01, 0.05)
            graph.replay()
            got = [t.clone() for t in (captured if isinstance(captured, tuple) else (captured,))]
            fresh = call()
            fresh = fresh if isinstance(fresh, tuple) else (fresh,)
            wrong += sum(not torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(got, fresh))
        errors[f"{name} replayed"] = math.inf if wrong else 0.0
    return errors


# ---- time -----------------------------------------------------------------------------------------------------------

BENCH = [
    ("layernorm", 4096, 8192), ("layernorm", 16384, 7168), ("layernorm", 64, 8192),
    ("rmsnorm_quant", 4096, 7168), ("rmsnorm_quant_per_token", 4096, 7168), ("rmsnorm_quant_per_token", 64, 8192),
    ("fused_add_rmsnorm_quant", 4096, 7168), ("fused_add_rmsnorm_quant_per_token", 4096, 7168),
    ("rmsnorm", 1, 4096), ("rmsnorm", 64, 8192), ("rmsnorm", 16384, 7168), ("fused_add_rmsnorm", 1, 4096),
    ("fused_add_rmsnorm", 64, 8192), ("fused_add_rmsnorm", 4096, 8192),
    ("qk_rmsnorm", 4096, 40 * 128), ("qk_rmsnorm", 1, 40 * 128),
    ("silu_and_mul", 4096, 14336), ("gelu_and_mul", 4096, 14336), ("gelu_tanh_and_mul", 4096, 14336),
    ("silu_and_mul", 1, 14336), ("silu_and_mul", 64, 14336), ("silu_and_mul", 16384, 768), ("silu_and_mul", 4096, 3420),
    ("silu_and_mul", 4096, 11111), ("silu_and_mul_quant", 8192, 2048), ("silu_and_mul_quant", 4096, 14336),
]


def problem(name, rows, hidden):
    """A call on its own buffers, and the bytes that it moves."""
    t, fp8 = torch.bfloat16, torch.float8_e4m3fn
    n = rows * hidden
    w, f = torch.randn(hidden, device="cuda").to(t), torch.randn(hidden, device="cuda")
    x = torch.randn(rows, 2 * hidden if "mul" in name else hidden, device="cuda").to(t)
    residual = torch.randn(rows, hidden, device="cuda").to(t) if "fused" in name else None
    out = torch.empty(rows, hidden, device="cuda", dtype=fp8 if "quant" in name else t)
    scale = torch.empty(rows, device="cuda")
    groups = torch.empty(rows, -(-hidden // 128), device="cuda")
    one = torch.tensor([0.02], device="cuda")
    qkv = x.view(rows, -1, 128) if name == "qk_rmsnorm" else None
    heads = None if qkv is None else (qkv[:, :32], qkv[:, 32:])
    return {
        "layernorm": (lambda: parbake.layernorm(x, f, f), 4 * n),
        "rmsnorm": (lambda: parbake.rmsnorm(x, w, out=out), 4 * n),
        "fused_add_rmsnorm": (lambda: parbake.fused_add_rmsnorm(x, residual, w), 8 * n),
        "rmsnorm_quant": (lambda: parbake.rmsnorm_quant(out, x, w, one), 3 * n),
        "rmsnorm_quant_per_token": (lambda: parbake.rmsnorm_quant_per_token(x, w, out=out, scale=scale), 3 * n),
        "fused_add_rmsnorm_quant": (lambda: parbake.fused_add_rmsnorm_quant(out, x, residual, w, one), 7 * n),
        "fused_add_rmsnorm_quant_per_token":
            (lambda: parbake.fused_add_rmsnorm_quant_per_token(residual, x, w, out=out, scale=scale), 7 * n),
        "qk_rmsnorm": (lambda: parbake.qk_rmsnorm(*heads, w[:128], w[128:256]), 4 * n),
        "silu_and_mul": (lambda: parbake.silu_and_mul(x, out), 6 * n),
        "gelu_and_mul": (lambda: parbake.gelu_and_mul(x, out), 6 * n),
        "gelu_tanh_and_mul": (lambda: parbake.gelu_tanh_and_mul(x, out), 6 * n),
        "silu_and_mul_quant": (lambda: parbake.silu_and_mul_quant(x, out=out, scale=groups), 5 * n),
    }[name]


def bench(failed, only):
    timer, table = Timer(), []
    for name, rows, hidden in BENCH:
        if only not in name or name in failed:
            continue
        _, size = problem(name, rows, hidden)
        sets = max(3, min(32, (1 << 30) // size))
        calls = [problem(name, rows, hidden)[0] for _ in range(sets)]
        pairs = [[torch.randn(size // 4, device="cuda").bfloat16() for _ in range(2)] for _ in range(sets)]
        ours, spread = timer(calls * max(1, 6 // sets), sets * size)
        neg, _ = timer([lambda p=p: torch.neg(p[0], out=p[1]) for p in pairs] * max(1, 6 // sets), sets * size)
        table.append({"op": name, "rows": rows, "hidden": hidden, "us": ours, "spread": spread, "neg_us": neg, "share": neg / ours})
        print(f"{name} [{rows}, {hidden}] bf16: {ours:.2f} µs ({spread:.1%}), {size / ours / 1e6:.2f} TB/s, neg {neg:.2f} µs, share {neg / ours:.3f}", flush=True)
        del calls, pairs
    return table


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--bench", action="store_true")
    arguments.add_argument("--only", default="", help="ops whose name has this word")
    arguments.add_argument("--json", help="where results are written to")
    a = arguments.parse_args()
    torch.manual_seed(1)
    results, failed = {}, set()
    for name, (run, dtypes) in OPS.items():
        if a.only in name:
            results[name], cases = check_shapes(name, run, dtypes)
            print(f"{'ok  ' if results[name] <= 1 else 'FAIL'} {name}: {cases} cases, worst error {results[name]:.3g} of what is allowed", flush=True)
    if not a.only:
        for what, errors in (("more than 2^31 elements", check_large()), ("graph", check_graph())):
            for name, error in errors.items():
                print(f"{'ok  ' if error <= 1 else 'FAIL'} {what}: {name}: {error:.3g}", flush=True)
                results[f"{what}: {name}"] = error
    failed = {name for name, error in results.items() if not error <= 1}
    table = bench(failed, a.only) if a.bench else []
    if a.json:
        with open(a.json, "w") as file:
            json.dump({"gpu": torch.cuda.get_device_name(), "errors": results, "times": table}, file, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
