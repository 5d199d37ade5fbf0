#!/usr/bin/env python3
"""All workloads of `parbake.bench` on this GPU, beside PyTorch, Triton and FlashInfer, in a few minutes.

    python3 tests/gpu/bench.py [--json FILE] [--only NAMES] [--flashinfer MODULES] [--limit SECONDS] [--compile] [--strict]

Needs PyTorch with CUDA and the package `parbake` (installed, or PYTHONPATH=wheels/python with PARBAKE_LIBRARY and
PARBAKE_KERNELS). Kernels of ours that nothing covers are compiled first.

FlashInfer compiles a module when it is first called, which takes a minute or more. Only the modules that `--flashinfer`
names are compiled, all at the same time and each in a process of its own, before anything is measured; one that takes
longer than --limit is left out and named. Without the flag FlashInfer is left out.

--strict fails unless the lines of docs/bench.md hold. Exit status: 1 if a result of ours is wrong, or with --strict slow.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Which workload makes a module of FlashInfer be compiled.
MODULES = {
    "norm": "U1,U4a", "activation": "U6a", "rope": "U8", "page": "U10", "sampling": "U13,S1,S1p,S3,S5", "topk": "S4",
}


def bench(*words):
    return [sys.executable, "-W", "ignore", "-m", "parbake.bench", *words]


def environment():
    found = dict(os.environ, PYTHONUNBUFFERED="1")
    if importlib.util.find_spec("parbake") is None:
        found["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT / "wheels/python"), found.get("PYTHONPATH"))))
    return found


def warm(modules, limit):
    """Compiles modules of FlashInfer side by side; gives those that are ready in time."""
    if not modules:
        return []
    if importlib.util.find_spec("flashinfer") is None:
        print("skipped: needs flashinfer", flush=True)
        return []
    began, running = time.time(), {}
    for module in modules:
        words = bench("--warm", "--backend", "flashinfer", "--workload", MODULES[module], "--flashinfer", module)
        # Compilers are children of it, so it gets a group that ends as a whole.
        running[module] = subprocess.Popen(words, env=environment(), start_new_session=True)
    ready = []
    for module, process in running.items():
        try:
            code = process.wait(max(0.1, limit - (time.time() - began)))
            ready += [module] if code == 0 else []
            print(f"flashinfer.{module}: exit {code} after {time.time() - began:.0f} s", flush=True)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            print(f"skipped: needs flashinfer.{module} within {limit} s", flush=True)
    return ready


def lines(rows):
    """What must hold: name, value, bound and whether it does. Only of what was measured."""
    ours = {r["workload"]: r for r in rows if r["backend"] == "parbake" and r.get("median_us")}
    for name in ("U3", "U4", "U5", "U6", "U7", "U8", "U9", "U10", "U11", "U12"):
        if name in ours and ours[name].get("share") is not None:
            yield f"{name} share of the roof", ours[name]["share"], ">= 0.95", ours[name]["share"] >= 0.95
    for names, bound in ((("U1", "U4a"), 3.0), (("U2", "U4b"), 4.0)):
        for name in names:
            if name in ours and ours[name].get("replay_us") is not None:
                us = ours[name]["replay_us"]
                yield f"{name} in a graph, µs", us, f"<= {bound}", us <= bound
    if "S1p" in ours:
        us = ours["S1p"]["median_us"]
        yield "S1p, µs", us, "<= 20", us <= 20
    if "S2w" in ours and ours["S2w"].get("roof_us"):
        # The roof reads half of the bytes and writes half; a pass reads all of them, about as fast.
        passes = ours["S2w"]["median_us"] / ours["S2w"]["roof_us"]
        yield "S2w over one pass", round(passes, 3), "<= 2.2", passes <= 2.2
    for name, row in ours.items():
        peers = [r for r in rows if r["workload"] == name and r["backend"] != "parbake" and r["check"]["ok"]
                 and r.get("median_us") and r["timer"] == row["timer"] != "wall"]
        if peers:
            best = min(peers, key=lambda r: r["median_us"])
            ratio = round(best["median_us"] / row["median_us"], 3)
            yield f"{name} against {best['backend']}", ratio, ">= 1", ratio >= 1


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--json", type=pathlib.Path, help="where the rows go")
    words.add_argument("--only", metavar="NAMES", help="workloads, with commas")
    words.add_argument("--flashinfer", metavar="MODULES", default="", help=", ".join(MODULES))
    words.add_argument("--limit", type=float, default=100.0, help="seconds for the modules of FlashInfer")
    words.add_argument("--compile", action="store_true", help="also what torch.compile makes of the eager form")
    words.add_argument("--timer", choices=("cupti", "kineto", "graph", "events"))
    words.add_argument("--strict", action="store_true")
    given = words.parse_args()
    modules = [m for m in given.flashinfer.split(",") if m]
    unknown = [m for m in modules if m not in MODULES]
    if unknown:
        words.error(f"no module {', '.join(unknown)}; there are {', '.join(MODULES)}")
    began = time.time()
    ready = warm(modules, given.limit)
    with tempfile.TemporaryDirectory() as folder:
        path = given.json or pathlib.Path(folder, "rows.jsonl")
        path.unlink(missing_ok=True)
        backends = ["parbake", "torch", *(["compile"] if given.compile else []), "triton", *(["flashinfer"] if ready else [])]
        options = ["--json", str(path), "--backend", ",".join(backends)]
        options += ["--flashinfer", ",".join(ready)] if ready else []
        options += ["--workload", given.only] if given.only else []
        options += ["--timer", given.timer] if given.timer else []
        done = subprocess.run(bench(*options), env=environment())
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    bad = 0
    for name, value, bound, holds in lines(rows):
        bad += not holds
        print(f"{'ok  ' if holds else 'MISS'} {name}: {value} ({bound})")
    right = sum(r["check"]["ok"] for r in rows)
    print(f"{right} of {len(rows)} results right, {bad} lines missed, {time.time() - began:.0f} s")
    return done.returncode or int(given.strict and bad > 0)


if __name__ == "__main__":
    sys.exit(main())
