#!/usr/bin/env python3
"""The quantisers of the installed package on a GPU, bit for bit against the references in kernels/quantization.

    python tests/gpu/quantization.py [--json FILE] [--quick]

Random and adversarial data (NaN, infinities, zeros, ties, tiny and huge), odd sizes, views, 70000 rows, more than 2^31
elements, replay of a graph with other data; FlashInfer's quantisers where they can be imported. Prints a line for each
check, exits with 1 if one fails.
"""

import argparse
import importlib.util
import json
import pathlib
import sys

import torch

import parbake

KERNELS = pathlib.Path(__file__).resolve().parents[2] / "kernels" / "quantization"
INPUTS = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
OUTPUTS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
SHAPES = [(1, 1), (3, 7), (5, 130), (9, 256), (3, 500), (64, 1024), (1, 9000), (333, 4096), (70000, 128)]
KINDS = ["normal", "wide", "special", "ties", "tiny", "huge"]


def reference(op):
    spec = importlib.util.spec_from_file_location(f"reference_{op}", KERNELS / op / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.run


def data(rows, hidden, dtype, kind):
    v = torch.randn(rows, hidden, device="cuda")
    half = dtype == torch.float16
    if kind == "wide":
        v *= 10.0 ** torch.randint(-4, 4, (rows, 1), device="cuda")
    elif kind == "special":
        for value, share in ((torch.nan, 0.02), (torch.inf, 0.01), (-torch.inf, 0.01)):
            v[torch.rand_like(v) < share] = value
        v[::3] = 0
        v[:, : hidden // 3] = 0
        if rows > 1:
            v[1] = torch.nan
    elif kind == "ties":
        v = torch.randint(-24, 25, (rows, hidden), device="cuda") / 4
    elif kind == "tiny":
        v *= 1e-7 if half else 1e-38
    elif kind == "huge":
        v *= 2e4 if half else 1e38
    return v.to(dtype)


def view(x):
    """The same elements with other strides, from an odd address."""
    rows, hidden = x.shape
    memory = torch.empty(rows * (hidden + 3) + 1, dtype=x.dtype, device=x.device)
    other = memory[1:].view(rows, hidden + 3)[:, :hidden]
    return other.copy_(x)


def bits(x):
    if x.element_size() == 1 and x.is_floating_point():
        # The sign of a NaN means nothing.
        codes = x.view(torch.uint8)
        return torch.where(x.float().isnan(), 0x7F, codes)
    return torch.where(x.isnan(), 7.0, x.float()) if x.is_floating_point() else x


def same(got, want):
    got, want = (t if isinstance(t, tuple) else (t,) for t in (got, want))
    alike = (torch.equal(bits(a.contiguous()), bits(b.contiguous())) for a, b in zip(got, want))
    return len(got) == len(want) and all(alike)


class Checks:
    def __init__(self):
        self.rows = []

    def __call__(self, name, passed, note=""):
        self.rows.append({"check": name, "passed": bool(passed), "note": str(note)})
        print(f"{'ok  ' if passed else 'FAIL'} {name} {note}", flush=True)


def every(check, name, cases):
    """One line for many cases: the first that fails is named."""
    count = 0
    for what, got, want in cases:
        count += 1
        if not same(got(), want()):
            return check(name, False, what)
    return check(name, True, f"{count} cases")


def fp8(shapes):
    token, tensor, dynamic = (reference(f"fp8_quantize_per_{n}") for n in ("token", "tensor", "tensor_dynamic"))
    group, block = reference("fp8_quantize_per_token_group"), reference("fp8_quantize_per_block")
    amax = reference("amax")
    scale = torch.tensor([0.037], device="cuda")
    for (rows, hidden), kind in ((s, k) for s in shapes for k in KINDS):
        for dtype, (name, out) in ((d, o) for d in INPUTS.values() for o in OUTPUTS.items()):
            for x in (lambda x: (x, view(x)))(data(rows, hidden, dtype, kind)):
                what = f"{rows}x{hidden} {kind} {dtype} {name} {'view' if not x.is_contiguous() else 'dense'}"
                yield (
                    what,
                    lambda: parbake.fp8_quantize_per_tensor(x, scale, out_dtype=out),
                    lambda: tensor(x, scale, name),
                )
                yield what, lambda: parbake.amax(x), lambda: amax(x)
                parts = amax(x)
                yield (
                    what,
                    lambda: parbake.fp8_quantize_per_tensor_dynamic(x, parts, out_dtype=out),
                    lambda: dynamic(x, parts, 1e-10, name),
                )
                yield what, lambda: parbake.fp8_quantize_per_token(x, out_dtype=out), lambda: token(x, 1e-10, name)
                for powers, kept in ((False, "f32"), (True, "f32"), (True, "u8")):
                    yield (
                        what,
                        lambda: parbake.fp8_quantize_per_token_group(
                            x, power_of_two=powers, out_dtype=out, scale_dtype=kept
                        ),
                        lambda: group(x, 1e-10, powers, name, kept),
                    )
                yield (
                    what,
                    lambda: parbake.fp8_quantize_per_block(x, power_of_two=rows % 2 == 1, out_dtype=out),
                    lambda: block(x, 1e-10, rows % 2 == 1, name),
                )


def shape(rows, blocks, layout):
    high = {0: 128, 1: 8, 2: 1}[layout]
    return -(-rows // high) * high, blocks if layout == 2 else -(-blocks // 4) * 4


def mxfp8(shapes):
    quantize, dequantize = reference("mxfp8_quantize"), reference("mxfp8_dequantize")
    for (rows, hidden), kind, layout in ((s, k, l) for s in shapes for k in KINDS for l in (0, 1, 2)):
        hidden = -(-hidden // 32) * 32
        for dtype in INPUTS.values():
            x = data(rows, hidden, dtype, kind)
            what = f"{rows}x{hidden} {kind} {dtype} layout {layout}"
            got = parbake.mxfp8_quantize(x, sf_swizzle_layout=layout)
            want = quantize(x, layout)
            yield what, lambda: got, lambda: (want[0], want[1].reshape(-1))
            yield (
                what,
                lambda: parbake.mxfp8_dequantize_host(got[0], got[1], sf_swizzle_layout=layout),
                lambda: dequantize(want[0], want[1], layout),
            )


def fp4(shapes):
    quantize, dequantize = reference("fp4_quantize"), reference("fp4_dequantize")
    for (rows, hidden), kind, layout in ((s, k, l) for s in shapes for k in KINDS for l in (0, 1, 2)):
        for (format, block), dtype in (((f, d) for f in enumerate((16, 32)) for d in INPUTS.values())):
            hidden = -(-hidden // block) * block
            x = data(rows, hidden, dtype, kind)
            most = x.float().nan_to_num(0.0, 0.0, 0.0).abs().max().clamp(min=1e-30)
            scale = (448 * 6 / most).clamp(max=1e30).reshape(1) if format == 0 else None
            what = f"{rows}x{hidden} {kind} {dtype} format {format} layout {layout}"
            got = parbake.fp4_quantize(x, scale, block, format == 1, layout != 2, layout == 1)
            want = quantize(x, scale, layout, format)
            yield what, lambda: got, lambda: want
            if layout != 1:
                back = None if scale is None else 1 / scale
                yield (
                    what,
                    lambda: parbake.e2m1_and_ufp8sf_scale_to_float(*got, back, block, 1 - format, layout == 0),
                    lambda: dequantize(*want, back, layout, format),
                )


def packs():
    pack, indptr, segments = reference("packbits"), reference("packed_indptr"), reference("segment_packbits")
    interleave = reference("block_scale_interleave")
    for n in (0, 1, 7, 8, 9, 31, 33, 8192, 100003):
        for order in ("big", "little"):
            x = torch.rand(n + 1, device="cuda")[1:] < 0.4
            yield f"packbits {n} {order}", lambda: parbake.packbits(x, order), lambda: pack(x, order == "little")
    for batch, dtype in ((b, d) for b in (1, 5, 1024, 3000) for d in (torch.int32, torch.int64)):
        lengths = (torch.randint(0, 40, (batch,), device="cuda") - 10).clamp(min=0)
        begins = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(dtype)
        x = torch.rand(int(begins[-1]), device="cuda") < 0.4
        out = indptr(begins)
        yield (
            f"segment_packbits {batch} {dtype}",
            lambda: parbake.segment_packbits(x, begins, "little"),
            lambda: (segments(x, begins, out, True), out),
        )
    for rows, columns in ((1, 1), (31, 6), (128, 4), (300, 33)):
        x = torch.randint(0, 256, (rows, columns), dtype=torch.uint8, device="cuda")
        yield (
            f"block_scale_interleave {rows}x{columns}",
            lambda: parbake.block_scale_interleave(x),
            lambda: interleave(x).reshape(-1),
        )


def column_major(check):
    """Scales by columns, padded to 16 bytes as GEMM kernels want them, are the same numbers in other places."""
    x = data(333, 2048, torch.bfloat16, "wide")
    out, scale = parbake.per_token_group_quant_8bit(x, 128, column_major_scales=True, scale_tma_aligned=True)
    plain = parbake.per_token_group_quant_8bit(x, 128)
    check("scales by columns", same((out, scale), plain) and scale.stride() == (1, 336), scale.stride())


def large(check):
    """More than 2^31 elements: the last rows are as right as the first."""
    rows, hidden = 2**17 + 3, 2**14 + 128
    need = rows * hidden * 4
    free = torch.cuda.mem_get_info()[0]
    if free < need:
        note = f"needs {need / 1e9:.0f} GB of memory, {free / 1e9:.0f} are free"
        return check("more than 2^31 elements", False, note)
    x = torch.empty(rows, hidden, dtype=torch.bfloat16, device="cuda")
    x.random_(-100, 100)
    group, token = reference("fp8_quantize_per_token_group"), reference("fp8_quantize_per_token")
    mx = reference("mxfp8_quantize")
    some = torch.tensor([0, 1, rows // 2, 2**31 // hidden, 2**31 // hidden + 1, rows - 2, rows - 1], device="cuda")
    q, s = parbake.fp8_quantize_per_token_group(x)
    good = same((q[some], s[some]), group(x[some]))
    q, s = parbake.mxfp8_quantize(x, is_sf_swizzled_layout=False)
    good &= same((q[some], s.view(rows, -1)[some]), mx(x[some], 2))
    q, s = parbake.fp8_quantize_per_token(x)
    good &= same((q[some], s[some]), token(x[some]))
    return check("more than 2^31 elements", good, f"{rows}x{hidden}")


def graph(check):
    """A captured graph follows what its memory holds."""
    x = data(64, 4096, torch.bfloat16, "normal")
    amax, dynamic = reference("amax"), reference("fp8_quantize_per_tensor_dynamic")

    def work():
        return parbake.fp8_quantize_per_tensor_dynamic(x, parbake.amax(x)), parbake.fp8_quantize_per_token_group(x)

    work()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        (out, scale), grouped = work()
    good = True
    for kind in KINDS:
        x.copy_(data(64, 4096, torch.bfloat16, kind))
        recorded.replay()
        torch.cuda.synchronize()
        good &= same((out, scale), dynamic(x, amax(x)))
        good &= same(grouped, reference("fp8_quantize_per_token_group")(x))
    check("graph replay with other data", good, f"{len(KINDS)} replays")


def peers(check):
    """FlashInfer, where it is installed and has the kernel for this GPU."""
    try:
        import flashinfer
    except ImportError as error:
        return print(f"skip flashinfer: {error}")
    x = torch.rand(10007, device="cuda") < 0.4
    begins = torch.tensor([0, 5, 5, 900, 10007], dtype=torch.int32, device="cuda")
    a = data(333, 4096, torch.bfloat16, "normal")
    scale = (448 * 6 / a.float().abs().max()).reshape(1)
    calls = [
        ("packbits", (x, "little")),
        ("segment_packbits", (x, begins, "big")),
        ("mxfp8_quantize", (a, True)),
        ("mxfp8_quantize", (a, False)),
        ("fp4_quantize", (a, scale)),
        ("mxfp4_quantize", (a,)),
    ]
    for name, arguments in calls:
        theirs = getattr(flashinfer, name, None) or getattr(flashinfer.quantization, name)
        try:
            want = theirs(*arguments)
        except Exception as error:
            print(f"skip flashinfer {name}: {str(error).splitlines()[0][:100] if str(error) else error!r}")
            continue
        want, got = ((w if isinstance(w, tuple) else (w,)) for w in (want, getattr(parbake, name)(*arguments)))
        pairs = [(g.reshape(-1).view(torch.uint8), w.reshape(-1).view(torch.uint8)) for g, w in zip(got, want)]
        different = max((g != w).float().mean().item() for g, w in pairs)
        # Their reciprocals are approximate: where a product lies next to a tie, FP4 may differ by one code.
        limit = 1e-3 if "fp4" in name else 0.0
        shaped = all(g.shape == w.shape for g, w in pairs)
        check(f"flashinfer {name}", shaped and different <= limit, f"{different:.1e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=pathlib.Path, help="where to write the results")
    parser.add_argument("--quick", action="store_true", help="small shapes only")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    check = Checks()
    shapes = SHAPES[:5] if arguments.quick else SHAPES
    with torch.no_grad():
        every(check, "fp8", fp8(shapes))
        every(check, "mxfp8", mxfp8(shapes))
        every(check, "fp4", fp4(shapes))
        every(check, "bits and tiles", packs())
        column_major(check)
        graph(check)
        peers(check)
        if not arguments.quick:
            large(check)
    if arguments.json:
        arguments.json.write_text(json.dumps(check.rows, indent=1) + "\n")
    failed = sum(not row["passed"] for row in check.rows)
    print(f"{len(check.rows) - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
