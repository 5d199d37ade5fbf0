#!/usr/bin/env python3
"""Tests the Python package against a library that was built. Needs TVM FFI and NumPy; PyTorch and JAX where they are.

    python3 tests/python/run.py [--device cpu|cuda] [--only WORD] [--library FILE] [--installed]

The package is that of the checkout, with the library FILE (or PARBAKE_LIBRARY, or what `cargo build -p parbake-ffi` made);
with --installed it is the one that Python finds by itself. With --device cpu everything runs on the host target; with cuda
the tensors of PyTorch and JAX are on the GPU. Kernels are compiled on the first run, and found in the workspace after it.

Prints a line per check and `N passed, N failed, N skipped`; exits with 1 if one failed.

  package   what is public agrees with op.toml, stubs, reference page and exports; what an import costs
  values    the same numbers from NumPy, PyTorch and JAX, against float64
  outputs   several outputs, tensors that may be absent, choices, functions written by hand: of ops made for this
  families  a function of each kind from each framework
  errors    wrong arguments: the right exception, and nothing written
  threads   many threads, also while a kernel is compiled
  torch     torch.compile, gradients, graphs, streams, devices
  tracing   subclasses, modes and tracers of PyTorch; derivatives
  jax       jit, vmap, what does not exist there
  mla       the wrapper of multi-head latent attention
  ask       supports, explain, prepare
  guide     the examples of docs/python.md, docs/gemm.md, docs/moe.md and of the docstrings, and examples/serve
  bench     the harness: timers on a device that is played, checks, rows, its workloads on the CPU
  variants    scores of attention of the caller's own
  attention   its wrappers against float64, what they refuse
  recording   PARBAKE_RECORD, and `parbake lock` of what it wrote
  moe       mixtures of experts against float64, ranks, what they refuse
  gemm      products of matrices against float64, groups, factors, what they refuse
  comm      collectives of ranks that are threads, what they refuse
  references  reference.py of each op against its kernel, and the trace definitions
"""

import argparse
import importlib
import os
import pathlib
import sys

import harness

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
PARTS = (
    "package", "values", "outputs", "families", "errors", "threads", "torch", "tracing", "jax", "ask", "guide", "bench",
    "attention", "variants", "mla", "moe", "gemm", "comm", "references", "recording",
)  # fmt: skip


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    words.add_argument("--only", default="", metavar="WORD")
    words.add_argument("--library", metavar="FILE")
    words.add_argument("--installed", action="store_true")
    given = words.parse_args()
    if not given.installed:
        sys.path.insert(0, str(CHECKOUT / "wheels/python"))
        target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", CHECKOUT / "target"))
        default = os.environ.get("PARBAKE_LIBRARY", target / "debug/libparbake_ffi.so")
        os.environ["PARBAKE_LIBRARY"] = str(pathlib.Path(given.library or default).resolve())
        os.environ.setdefault("PARBAKE_KERNELS", str(CHECKOUT / "kernels"))
    harness.Setup.device = given.device
    # PyTorch and JAX share the GPU.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    for part in PARTS:
        importlib.import_module(f"check_{part}")
    return harness.run(given.only)


if __name__ == "__main__":
    sys.exit(main())
