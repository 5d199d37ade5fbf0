#!/usr/bin/env python3
"""Checks and times attention on a GPU, through the wrappers of the Python package. Needs PyTorch with CUDA.

    python3 tests/gpu/attention.py [--only WORD] [--bench] [--no-check] [--flashinfer] [--host] [--limit SECONDS]
                                   [--json FILE]

Every check holds each request and head to a float64 reference: ‖out − ref‖ / ‖ref‖ up to 5e-3 (bf16) or 1e-3 (f16), of a
query alone up to thrice that, the logarithm of the sum to 1e-3, and where it says so FlashAttention's rule: no element is further off than twice what
PyTorch is in the same precision. Shapes are those of the peers' tests; the others are bugs that peers had.

Checks run in a child process. It says what it does before it does it; where nothing is heard for --limit seconds (120)
that is a hang: it is a failure with the shape named, and the other checks go on in another child.

--bench times the rows D1 to D10 and P1 to P9 in CUDA graphs with a cold L2, each after its result was checked, beside
torch's SDPA (flash and cuDNN) and with --flashinfer FlashInfer (fa2 prefill, tensor-core decode), all in one run; and
what plan and run cost the host. --host runs everything in little on the CPU, to test this script.
"""

import argparse
import json
import pathlib
import sys

from watchdog import say, watch

HERE = pathlib.Path(__file__).resolve().parent


def parse():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--only", default="", metavar="WORD", help="checks, or rows of --bench, whose name has it")
    words.add_argument("--bench", action="store_true")
    words.add_argument("--no-check", action="store_true")
    words.add_argument("--flashinfer", action="store_true")
    words.add_argument("--host", action="store_true")
    words.add_argument("--limit", type=float, default=120.0)
    words.add_argument("--json", metavar="FILE")
    words.add_argument("--child", help=argparse.SUPPRESS)
    words.add_argument("--done", default="", help=argparse.SUPPRESS)
    return words.parse_args()


def child(given):
    """Runs what is asked, and tells the parent of each thing that begins and ends."""
    sys.path[:0] = [str(HERE), str(HERE.parent / "python")]
    import attention_setup as setup

    setup.start(given.host, say)
    if given.child == "bench":
        import attention_bench as part
    else:
        import attention_checks as part
    part.run(given.only, set(filter(None, given.done.split(","))), given.flashinfer)


def main():
    given = parse()
    if given.child:
        return child(given)
    parts = [] if given.no_check else ["checks"]
    parts += ["bench"] if given.bench else []
    options = ["--only", given.only] + [f"--{name}" for name in ("host", "flashinfer") if getattr(given, name)]
    results = {part: watch(__file__, part, options, given.limit) for part in parts}
    failed = sum(row["ok"] is False for rows in results.values() for row in rows)
    passed = sum(row["ok"] is True for rows in results.values() for row in rows)
    print(f"{passed} passed, {failed} failed")
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(results, indent=1))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
