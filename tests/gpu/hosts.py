#!/usr/bin/env python3
"""The same kernels from Python, PyTorch, JAX, C++ and Rust on a GPU, in one go. Builds only the C++ example.

    PYTHONPATH=SITE python3 tests/gpu/hosts.py PARBAKE [--json FILE] [--rust PROGRAM] [--package FOLDER]
                                               [--without-log LIBRARY]

PARBAKE is the command line's binary; SITE has the wheel, a data wheel that covers this GPU, apache-tvm-ffi, jax-tvm-ffi
and, to be timed beside, flashinfer. PROGRAM is the example with cudarc's buffers, FOLDER the wheel's `parbake/`, with
which the C++ example is built, LIBRARY the shared library without the API log. What is not given is not run, and said so.
Prints one line a check, the figures, and closes with `N passed, N failed, N skipped`.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COUNT = {"passed": 0, "failed": 0, "skipped": 0}
ROWS = []
REPEATS, CALLS = 31, 200


def verdict(ok, text):
    COUNT["passed" if ok else "failed"] += 1
    print(f"{'ok  ' if ok else 'FAIL'} {text}", flush=True)


def skipped(needs):
    COUNT["skipped"] += 1
    print(f"skipped: needs {needs}", flush=True)


def child(command, timeout=500, **env):
    return subprocess.run([str(c) for c in command], env=dict(os.environ, **env), capture_output=True, text=True,
                          timeout=timeout)


def numbers():
    """Every host language's own checks, on this device."""
    done = child([sys.executable, ROOT / "tests/python/run.py", "--installed", "--device", "cuda"])
    sys.stdout.write(done.stdout)
    found = re.findall(r"^(\d+) passed, (\d+) failed, (\d+) skipped", done.stdout, re.M)
    if not found:
        verdict(False, f"tests/python/run.py --device cuda: exit {done.returncode} {done.stderr[-2000:]}")
        return
    for name, n in zip(("passed", "failed", "skipped"), found[-1]):
        COUNT[name] += int(n)
    if done.returncode and found[-1][1] == "0":
        verdict(False, f"tests/python/run.py: exit {done.returncode} {done.stderr[-2000:]}")


def cpp(package, scratch):
    build = scratch / "cpp"
    steps = ([["cmake", "-S", ROOT / "examples/cpp", "-B", build, f"-Dparbake_DIR={package / 'cmake'}",
               "-DPARBAKE_EXAMPLE_CUDA=ON", "-DCMAKE_BUILD_TYPE=Release"],
              ["cmake", "--build", build]])
    for step in steps:
        done = child(step)
        if done.returncode:
            verdict(False, f"C++ example: {' '.join(map(str, step))} {(done.stdout + done.stderr)[-1500:]}")
            return
    programs = [p for p in build.iterdir() if p.is_file() and os.access(p, os.X_OK)]
    for program in programs:
        done = child([program])
        print("    " + done.stdout.strip().replace("\n", "\n    "))
        verdict(done.returncode == 0, f"C++ example on the GPU, {program.name}: exit {done.returncode} {done.stderr[-600:]}")
    verdict(len(programs) == 1, "one program was built")


def rust(program):
    done = child([program])
    print("    " + done.stdout.strip().replace("\n", "\n    "))
    verdict(done.returncode == 0 and "running on" in done.stdout and "(sm_" in done.stdout, f"Rust example with cudarc's buffers: exit {done.returncode} {done.stderr[-600:]}")


FAULT = """
import sys, torch, parbake
x = torch.ones(3, 96, device="cuda", dtype=torch.float16); w = torch.ones(96, device="cuda", dtype=torch.float16)
out = torch.empty_like(x)
parbake.rmsnorm(x, w, out=out)
torch.cuda.synchronize()
print("survived")
"""


def fault(parbake, scratch):
    """A kernel with a wild write takes the process down; what was asked of it is on disk, and does the same again."""
    broken = scratch / "broken"
    shutil.copytree(ROOT / "kernels", broken)
    source = broken / "norm/rmsnorm/rmsnorm.cuh"
    text, anchor = source.read_text(), "const float r = rsqrt_fast("
    assert text.count(anchor) == 1
    source.write_text(text.replace(anchor, "if (threadIdx.x == 0) *(volatile float*)((char*)out + (1ll << 46)) = 1.f;\n    " + anchor))
    for level in ("3", "10"):
        log = scratch / f"log{level}"
        env = {"PARBAKE_KERNELS": str(broken), "PARBAKE_LOG": level, "PARBAKE_LOG_DEST": str(log),
               "PARBAKE_WORKSPACE": str(scratch / f"fault{level}"), "PARBAKE_BUNDLES": ""}
        done = child([sys.executable, "-c", FAULT], **env)
        said = log.read_text() if log.exists() else ""
        whole = all(part in said for part in ("norm/rmsnorm", "tensor x f16 [3, 96]", "scalar eps", "kernel rmsnorm-f16"))
        verdict(done.returncode != 0 and "survived" not in done.stdout and whole,
                f"level {level}: the process died, and its log holds the whole call {'' if whole else said[-1500:] + done.stderr[-800:]}")
    dumps = sorted((scratch / "fault10/dumps").glob("2*"))
    verdict(len(dumps) == 1 and (dumps[0] / "inputs.safetensors").is_file(), f"level 10: one dump {[d.name for d in dumps]}")
    if not dumps:
        return
    env = {"PARBAKE_WORKSPACE": str(scratch / "replay"), "PARBAKE_BUNDLES": "", "PARBAKE_KERNELS": str(broken)}
    done = child([parbake, "replay", dumps[0]], **env)
    verdict(done.returncode not in (0, 2, 3) and ("illegal" in (done.stdout + done.stderr).lower()),
            f"replay with that kernel fails as the call did: exit {done.returncode} {(done.stdout + done.stderr)[-500:]}")
    done = child([parbake, "replay", dumps[0], "--json"], **dict(env, PARBAKE_KERNELS=str(ROOT / "kernels")))
    verdict(done.returncode == 0, f"replay with the good kernel: exit {done.returncode} {done.stderr[-500:]}")
    done = child([parbake, "replay", dumps[0], "--target", "host"], **dict(env, PARBAKE_KERNELS=str(ROOT / "kernels")))
    verdict(done.returncode == 0, f"replay on the host target: exit {done.returncode} {done.stderr[-500:]}")


def level_five(scratch):
    """Statistics come from the device; in a capture they are left out, and that is said."""
    program = """
import torch, parbake
x = torch.full((3, 96), 2.0, device="cuda", dtype=torch.float16); w = torch.ones(96, device="cuda", dtype=torch.float16)
out = torch.empty_like(x); x[1, 5] = float("nan")
parbake.rmsnorm(x, w, out=out); torch.cuda.synchronize()
g = torch.cuda.CUDAGraph()
with torch.cuda.graph(g): parbake.rmsnorm(x, w, out=out)
out.zero_(); g.replay(); torch.cuda.synchronize()
assert abs(out[0].float().mean().item() - 1) < 1e-2
"""
    log = scratch / "log5"
    done = child([sys.executable, "-c", program], PARBAKE_LOG="5", PARBAKE_LOG_DEST=str(log))
    said = log.read_text() if log.exists() else ""
    verdict(done.returncode == 0 and "values x min" in said and re.search(r"values x .* 1 nan\b", said, re.I) is not None
            and "captur" in said, f"level 5: statistics from the device, none in a capture {done.stderr[-800:]}\n{said[-1800:] if done.returncode else ''}")


def sample(call):
    import torch

    call()
    times = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter_ns() - start) / CALLS / 1e3)
    torch.cuda.synchronize()
    return times


def timing(result):
    """Host time a call: many in a row, not waited for, each batch after the device is idle. In turns, so that a busy
    moment of the machine falls on all."""
    import torch

    import parbake

    start = time.perf_counter()
    x = torch.randn(4, 4096, device="cuda", dtype=torch.bfloat16)
    residual = torch.randn_like(x)
    w, out = torch.randn(4096, device="cuda", dtype=torch.bfloat16), torch.empty_like(x)
    torch.cuda.synchronize()
    start = time.perf_counter()
    parbake.rmsnorm(x, w, out=out)
    torch.cuda.synchronize()
    first = (time.perf_counter() - start) * 1e3
    x64, w64 = x.double(), w.double()
    expected = x64 / torch.sqrt((x64 * x64).mean(-1, keepdim=True) + 1e-6) * w64
    error = ((out.double() - expected).abs() / expected.abs().clamp_min(1e-3)).max().item()
    verdict(error < 2 ** -7, f"what is timed is right: worst relative error {error:.1e}; first call {first:.1f} ms")
    empty, none = out[:0], x[:0]
    calls = {
        "parbake.rmsnorm(x, w, out=o)": lambda: parbake.rmsnorm(x, w, out=out),
        "parbake.rmsnorm(x, w)": lambda: parbake.rmsnorm(x, w),
        "parbake.fused_add_rmsnorm(x, r, w)": lambda: parbake.fused_add_rmsnorm(x, residual, w),
        "parbake.rmsnorm of no rows, out=o": lambda: parbake.rmsnorm(none, w, out=empty),
        "torch.nn.functional.rms_norm": lambda: torch.nn.functional.rms_norm(x, (4096,), w, 1e-6),
        "torch in-place add": lambda: out.add_(1),
        "torch.empty_like": lambda: torch.empty_like(x),
    }
    try:
        import flashinfer

        flashinfer.norm.rmsnorm(x, w, out=out)
        torch.cuda.synchronize()
        error = ((out.double() - expected).abs() / expected.abs().clamp_min(1e-3)).max().item()
        verdict(error < 2 ** -7, f"flashinfer {flashinfer.__version__} is right: worst relative error {error:.1e}")
        calls["flashinfer.norm.rmsnorm(x, w, out=o)"] = lambda: flashinfer.norm.rmsnorm(x, w, out=out)
        calls["flashinfer.norm.fused_add_rmsnorm"] = lambda: flashinfer.norm.fused_add_rmsnorm(x, residual, w)
    except Exception as error:  # whatever a peer lacks here
        print(f"    not timed: flashinfer: {type(error).__name__}: {error}")
    times = {name: [] for name in calls}
    for _ in range(3):
        for name, call in calls.items():
            times[name] += sample(call)
    for name, values in times.items():
        values.sort()
        row = {"what": name, "unit": "us", "n": f"{len(values)} x {CALLS}", "median": statistics.median(values),
               "p10": values[len(values) // 10], "p90": values[len(values) * 9 // 10]}
        ROWS.append(row)
    result["device"] = torch.cuda.get_device_name()
    result["versions"] = {"torch": torch.__version__, "python": sys.version.split()[0]}
    ROWS.append({"what": "first call of a process, after imports", "unit": "ms", "n": "1", "median": first, "p10": first, "p90": first})


BESIDE = """
import json, statistics, sys, time, torch, tvm_ffi
x = torch.randn(4, 4096, device="cuda", dtype=torch.bfloat16); w = torch.randn(4096, device="cuda", dtype=torch.bfloat16)
out = torch.empty_like(x)
functions = [tvm_ffi.load_module(path).get_function("rmsnorm") for path in sys.argv[1:]]
results = []
for f in functions:
    out.zero_(); f(out, x, w, 1e-6, 0.0); results.append(out.clone())
assert all(torch.equal(results[0], r) and r.abs().max() > 0 for r in results)
times = [[] for _ in functions]
for _ in range(101):
    for f, list in zip(functions, times):
        torch.cuda.synchronize(); start = time.perf_counter_ns()
        for _ in range(200): f(out, x, w, 1e-6, 0.0)
        list.append((time.perf_counter_ns() - start) / 200 / 1e3)
for list in times: list.sort()
print(json.dumps([[statistics.median(t), t[10], t[90]] for t in times]))
"""


def without_log(library):
    """The log at level 0 beside a build that has none, the same calls in turns."""
    import parbake._load

    done = child([sys.executable, "-c", BESIDE, parbake._load.path(), library])
    if done.returncode:
        verdict(False, f"beside the library without the log: {done.stderr[-800:]}")
        return
    for name, (median, low, high) in zip(("with the API log, level 0", "built without it"), json.loads(done.stdout)):
        ROWS.append({"what": f"rmsnorm through TVM FFI, {name}", "unit": "us", "n": f"101 x {CALLS}", "median": median,
                     "p10": low, "p90": high})


def doors(parbake):
    """The same call without a host language in front of it."""
    done = child([parbake, "--json", "bench", "call"])
    verdict(done.returncode == 0, f"parbake bench call: exit {done.returncode} {done.stderr[-500:]}")
    if done.returncode == 0:
        for row in json.loads(done.stdout)["rows"]:
            ROWS.append({"what": f"bench call: {row['what']} ({row['note']})", "unit": "us", "n": str(row["n"]),
                         "median": row["median"], "p10": row["low"], "p90": row["high"]})


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("parbake", type=lambda p: pathlib.Path(p).resolve())
    args.add_argument("--json", type=pathlib.Path)
    args.add_argument("--rust", type=pathlib.Path)
    args.add_argument("--package", type=lambda p: pathlib.Path(p).resolve())
    args.add_argument("--without-log", type=pathlib.Path)
    args.add_argument("--only", nargs="*", help="parts by name")
    args = args.parse_args()
    result = {"rows": ROWS}
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        os.environ["PARBAKE_WORKSPACE"] = str(scratch / "workspace")
        parts = {
            "numbers": numbers,
            "cpp": lambda: cpp(args.package, scratch) if args.package else skipped("--package for the C++ example"),
            "rust": lambda: rust(args.rust) if args.rust else skipped("--rust for the Rust example"),
            "fault": lambda: fault(args.parbake, scratch),
            "level5": lambda: level_five(scratch),
            "timing": lambda: timing(result),
            "log": lambda: without_log(args.without_log) if args.without_log else skipped("--without-log for the cost of the log"),
            "doors": lambda: doors(args.parbake),
        }
        for name, part in parts.items():
            if args.only and name not in args.only:
                continue
            try:
                part()
            except Exception as error:  # one part's bug hides no other's result
                verdict(False, f"{name}: {type(error).__name__}: {error}")
    for row in ROWS:
        print(f"{row['what']:<78} {row['median']:9.2f} {row['p10']:9.2f} {row['p90']:9.2f} {row['unit']}  {row['n']}")
    if args.json:
        args.json.write_text(json.dumps(result, indent=1))
    print(f"{COUNT['passed']} passed, {COUNT['failed']} failed, {COUNT['skipped']} skipped")
    sys.exit(1 if COUNT["failed"] else 0)


if __name__ == "__main__":
    main()
