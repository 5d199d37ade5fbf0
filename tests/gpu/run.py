#!/usr/bin/env python3
"""Everything that is tested on a GPU, in one go. Builds nothing; needs PyTorch with CUDA.

    python3 tests/gpu/run.py PARBAKE BUNDLE [--json FILE] [--baked FOLDER] [--tests PROGRAM]

PARBAKE is the command line's binary, BUNDLE what `parbake build --op 'norm/*'` made for this GPU (and, for what is
looked up but not run, for others). FOLDER and PROGRAM are what load.py says. Prints one line a check, the figures, and closes with `N passed, N failed, N skipped`.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SHAPES = [(1, 111), (19, 500), (99, 1024), (989, 3072), (99, 4097), (7, 65536), (3, 1)]
COUNT = {"passed": 0, "failed": 0, "skipped": 0}


def verdict(ok, text):
    COUNT["passed" if ok else "failed"] += 1
    print(f"{'ok  ' if ok else 'FAIL'} {text}", flush=True)


def parbake(args, workspace, bundle=None, jit=True, prefix=()):
    env = dict(os.environ, PARBAKE_WORKSPACE=str(workspace), PARBAKE_JIT="on" if jit else "off")
    env.pop("PARBAKE_BUNDLES", None)
    if bundle:
        env["PARBAKE_BUNDLES"] = str(bundle)
    return subprocess.run([*prefix, str(PARBAKE), *args], env=env, capture_output=True, text=True, timeout=300)


def run(op, dtype, rows, hidden, workspace, **how):
    extra = how.pop("extra", [])
    done = parbake(["--json", "run", op, f"dtype={dtype}", "--shape", f"rows={rows}", "--shape", f"hidden={hidden}", *extra],
                   workspace, **how)
    try:
        return json.loads(done.stdout), done
    except json.JSONDecodeError:
        return {"ok": False, "output": done.stdout + done.stderr}, done


def from_bundle(tmp, bundle):
    """Every dtype and several shapes with JIT off: what is asked for is in the bundle."""
    for op in ("rmsnorm", "fused_add_rmsnorm"):
        for dtype in ("f16", "bf16", "f32"):
            bad, worst = [], 0.0
            for i, (rows, hidden) in enumerate(SHAPES):
                extra = ["--seed", str(i), "--pad", str(i * 3), "--offset", str(i % 3)]
                got, done = run(op, dtype, rows, hidden, tmp / "empty", bundle=bundle, jit=False, extra=extra)
                if not (got.get("ok") and got.get("from") == "bundle"):
                    bad.append(f"[{rows},{hidden}] {json.dumps(got)[:600]} {done.stderr[:600]}")
                worst = max(worst, got.get("max_rel_err") or 0.0)
            verdict(not bad, f"{op} {dtype} from the bundle, {len(SHAPES)} shapes, worst relative error {worst:.1e} {bad[:1] or ''}")
    verdict(not (tmp / "empty").exists(), "with JIT off nothing was written")


def from_jit(tmp):
    """Uncovered: compiled in process, then served by the store in another process."""
    got, done = run("rmsnorm", "f32", 64, 4096, tmp / "jit")
    verdict(got.get("ok") and got.get("from") == "jit",
            f"uncovered: JIT on {got.get('target')} in {got.get('compile_ms')} ms, load {got.get('load_ms')} ms {got if not got.get('ok') else ''} {done.stderr[:500]}")
    got, _ = run("rmsnorm", "f32", 64, 4096, tmp / "jit")
    verdict(got.get("ok") and got.get("from") == "store", f"second process: {got.get('from')}, load {got.get('load_ms')} ms")
    got, done = run("rmsnorm", "f32", 64, 4096, tmp / "jit", jit=False)
    verdict(got.get("ok") and got.get("from") == "store", f"JIT off, warm store: {got.get('from')}")
    done = parbake(["run", "rmsnorm", "dtype=f32"], tmp / "gap", jit=False)
    verdict(done.returncode == 3 and "parbake build --arch" in done.stderr, f"JIT off, nothing covers it: exit {done.returncode}")


def wrong_architecture(tmp, bundle):
    """Images of other chips are refused before the driver sees them."""
    other = tmp / "other.pbk"
    done = parbake(["build", "--arch", "80,120f", "--op", "rmsnorm", "--only", "dtype=f32", "-o", str(other), "--level", "3"],
                   tmp / "build")
    if done.returncode != 0:
        verdict(False, f"build for other chips: {done.stderr[-800:]}")
        return
    done = parbake(["run", "rmsnorm", "dtype=f32"], tmp / "gap", bundle=other, jit=False)
    verdict(done.returncode == 3 and "sm_80" in done.stderr and "sm_120f" in done.stderr,
            f"a bundle of sm_80 and sm_120f on this GPU: exit {done.returncode}, both named")


def sanitized(tmp, bundle):
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not pathlib.Path(tool).exists():
        COUNT["skipped"] += 1
        print("skipped: needs compute-sanitizer")
        return
    for check in ("memcheck", "racecheck"):
        bad = []
        for op in ("rmsnorm", "fused_add_rmsnorm"):
            for dtype, rows, hidden, offset in (("bf16", 5, 1000, 0), ("bf16", 37, 96, 0), ("f16", 3, 111, 1), ("f32", 2, 8192, 0),
                                                ("bf16", 2, 40000, 0), ("f32", 5, 33, 1)):
                done = parbake(["run", op, f"dtype={dtype}", "--shape", f"rows={rows}", "--shape", f"hidden={hidden}",
                                "--offset", str(offset), "--pad", str(offset)], tmp / "empty", bundle=bundle, jit=False,
                               prefix=(tool, "--tool", check, "--error-exitcode", "66"))
                said = done.stdout + done.stderr
                if done.returncode != 0 or "ERROR SUMMARY: 0 errors" not in said and "0 hazards displayed" not in said:
                    bad.append(f"{op} {dtype} [{rows},{hidden}] exit {done.returncode}: {said[-600:]}")
        verdict(not bad, f"compute-sanitizer {check}, 12 small runs {bad[:1] or ''}")


def loading(baked, tests):
    """Wrong images, forged entries, bundles by several toolkits; load.py counts for itself."""
    if not baked:
        COUNT["skipped"] += 1
        print("skipped: needs bundles by several toolkits (--baked)")
        return
    args = [sys.executable, str(HERE / "load.py"), str(PARBAKE), str(baked)] + (["--tests", str(tests)] if tests else [])
    done = subprocess.run(args, stdout=subprocess.PIPE, text=True, timeout=900)
    *lines, last = done.stdout.splitlines() or [""]
    print("\n".join(lines))
    counted = re.fullmatch(r"(\d+) passed, (\d+) failed, (\d+) skipped", last)
    if not counted:
        verdict(False, f"load.py: exit {done.returncode}, {last}")
        return
    for name, n in zip(COUNT, counted.groups()):
        COUNT[name] += int(n)


def demo(tmp):
    start = time.time()
    done = parbake(["demo"], tmp / "demo")
    print("\n".join("    " + line for line in done.stdout.splitlines()))
    verdict(done.returncode == 0, f"demo, {time.time() - start:.1f} s {done.stderr[-800:] if done.returncode else ''}")


def bench(tmp, bundle):
    done = parbake(["--json", "bench", "bake", "--bundle", str(bundle)], tmp / "bench")
    verdict(done.returncode == 0, f"bench {done.stderr[-500:] if done.returncode else ''}")
    if done.returncode != 0:
        return
    rows = json.loads(done.stdout)["rows"]
    for row in rows:
        print(f"    {row['what']:<46}{row['median']:>10.3f} {row['unit']}")
    # What a launch costs beyond that is the driver's: docs/measurements/bake.md has its own figure beside ours.
    for name, most, unit in (("first kernel, from ", 20, "ms"), ("registry hit", 200, "ns"),
                             ("check, choose, look up, arrange", 1, "µs")):
        found = [row for row in rows if row["what"].startswith(name)]
        ok = len(found) == 1 and found[0]["unit"] == unit and found[0]["median"] <= most
        verdict(ok, f"{name}: {[row['median'] for row in found]}, at most {most} {unit}")


def whole_kernels(tmp, bundle, out):
    """Every image of the bundle for this GPU over rows x hidden, and its speed beside PyTorch."""
    folder = tmp / "images"
    done = parbake(["inspect", str(bundle), "--extract", str(folder)], tmp / "empty")
    if done.returncode != 0:
        verdict(False, f"extract: {done.stderr[-500:]}")
        return
    args = [sys.executable, str(HERE / "norm.py"), str(folder), "--check", "--bench", "--strict"]
    done = subprocess.run(args + (["--json", str(out)] if out else []), timeout=500)
    verdict(done.returncode == 0, "every image against float64, then timed")


def main():
    global PARBAKE
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parbake", type=pathlib.Path)
    parser.add_argument("bundle", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path, help="where the kernels' figures go")
    parser.add_argument("--only", help="comma-separated parts: bundle, jit, arch, load, demo, bench, sanitizer, kernels")
    parser.add_argument("--baked", type=pathlib.Path, help="bundles by several toolkits, as load.py says")
    parser.add_argument("--tests", type=pathlib.Path, help="the test program `device`, as load.py says")
    a = parser.parse_args()
    PARBAKE, bundle = a.parbake.resolve(), a.bundle.resolve()
    os.environ.setdefault("PARBAKE_KERNELS", str(HERE.parent.parent / "kernels"))
    with tempfile.TemporaryDirectory() as folder:
        tmp = pathlib.Path(folder)
        print(parbake(["doctor"], tmp / "empty").stdout)
        parts = {
            "bundle": lambda: from_bundle(tmp, bundle),
            "jit": lambda: from_jit(tmp),
            "arch": lambda: wrong_architecture(tmp, bundle),
            "load": lambda: loading(a.baked, a.tests),
            "demo": lambda: demo(tmp),
            "bench": lambda: bench(tmp, bundle),
            "sanitizer": lambda: sanitized(tmp, bundle),
            "kernels": lambda: whole_kernels(tmp, bundle, a.json),
        }
        for name, part in parts.items():
            if not a.only or name in a.only.split(","):
                part()
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**COUNT))
    return COUNT["failed"] != 0


if __name__ == "__main__":
    sys.exit(main())
