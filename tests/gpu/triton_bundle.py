#!/usr/bin/env python3
"""Runs the ops in Triton on a GPU, from a bundle and without Triton. Builds nothing; needs no PyTorch.

    python3 tests/gpu/triton_bundle.py PARBAKE BUNDLE

BUNDLE is what `parbake build --op gated_rmsnorm` made for this GPU. Each trial draws random inputs, poisons the output and
compares with the float64 reference. Prints one line a check and closes with `N passed, N failed`.
"""

import json
import os
import subprocess
import sys
import tempfile

SHAPES = [(1, 1), (19, 128), (989, 128), (99, 500), (512, 1024), (7, 4096), (33, 4097), (64, 5120), (3, 65536), (0, 128)]


def trial(parbake, bundle, words, workspace):
    """A trial in a process that finds no compiler and no Python packages."""
    env = {"PATH": "/nonexistent", "HOME": workspace, "PARBAKE_WORKSPACE": workspace, "PARBAKE_JIT": "off", "PARBAKE_BUNDLES": bundle}
    env.update({name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PARBAKE_KERNELS") if name in os.environ})
    done = subprocess.run([parbake, "--json", "run", *words], env=env, capture_output=True, text=True, timeout=300)
    try:
        return json.loads(done.stdout), done.stderr
    except json.JSONDecodeError:
        return {"ok": False}, done.stdout + done.stderr


def main():
    parbake, bundle = map(os.path.abspath, sys.argv[1:3])
    passed = failed = 0
    with tempfile.TemporaryDirectory() as workspace:
        for dtype in ("f16", "bf16", "f32"):
            for order in ("norm_first", "gate_first"):
                worst = 0.0
                for seed, (rows, hidden) in enumerate(SHAPES):
                    # Dense, then rows that begin anywhere.
                    for pad, offset in ((0, 0), (3, 1)):
                        words = ["gated_rmsnorm", f"dtype={dtype}", f"order={order}", "--shape", f"rows={rows}"]
                        words += ["--shape", f"hidden={hidden}", "--seed", str(seed), "--pad", str(pad), "--offset", str(offset)]
                        got, said = trial(parbake, bundle, words, workspace)
                        # Nothing is loaded for no rows.
                        good = got.get("ok") and (rows == 0 or got.get("from") == "bundle")
                        passed, failed = passed + bool(good), failed + (not good)
                        worst = max(worst, got.get("max_rel_err") or 0.0)
                        if not good:
                            print(f"FAIL {' '.join(words)}: {json.dumps(got)[:500]} {said[:500]}", flush=True)
                print(f"ok   {dtype} {order}, worst relative error {worst:.1e}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
