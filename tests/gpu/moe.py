#!/usr/bin/env python3
"""Checks and times mixtures of experts on a GPU, through `parbake.fused_moe`. Needs PyTorch with CUDA.

    python3 tests/gpu/moe.py [--only WORD] [--bench] [--no-check] [--host] [--limit SECONDS] [--json FILE]

Checks hold routes and layers to float64: ids exactly, weights to 1e-5, each row of a layer to 1e-2 of its norm,
with 8 bits of a reference that quantises rows at the same two places. They have what peers had bugs with: experts with no token, one and all of them, ids of -1 and of other ranks, duplicates, NaN in rows that
go nowhere, logits that underflow, 1025 experts, more than 65535 choices, graphs that are replayed with other routes.

--bench times the rows M1 to M9 in CUDA graphs, each after its result was checked, beside torch's grouped products (sorting
included) of the same weights in bf16, and says what share of its floor a row reaches; rows with a z have tokens that prefer
experts as Zipf's law has it. Then the launches of M4 and M6 one by one. Weights do not fit into the second cache, so that
nothing has to be flushed.

Each check and row runs in a child process; one from which nothing is heard for --limit seconds (120) is killed, and it is a
failure. --host runs everything in little on the CPU, to test this script.
"""

import argparse
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def parse():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--only", default="", metavar="WORD", help="checks and rows whose name has it")
    words.add_argument("--bench", action="store_true")
    words.add_argument("--no-check", action="store_true")
    words.add_argument("--host", action="store_true")
    words.add_argument("--limit", type=float, default=120.0)
    words.add_argument("--json", metavar="FILE")
    words.add_argument("--child", metavar="NAME", help=argparse.SUPPRESS)
    return words.parse_args()


def names(given):
    sys.path[:0] = [str(HERE), str(HERE.parent / "python")]
    import moe_bench
    import moe_checks

    checks = [] if given.no_check else list(moe_checks.CHECKS)
    rows = list(moe_bench.ROWS) + list(moe_bench.PARTS) if given.bench else []
    return [name for name in checks + rows if given.only in name]


def child(given):
    sys.path[:0] = [str(HERE), str(HERE.parent / "python")]
    import moe_bench
    import moe_checks
    from moe_setup import Where

    Where.start(given.host)
    for table in (moe_checks.CHECKS, moe_bench.ROWS, moe_bench.PARTS):
        if given.child in table:
            print("@@ " + json.dumps(table[given.child](given.child)), flush=True)


def main():
    given = parse()
    if given.child:
        return child(given)
    results = {}
    for name in names(given):
        words = [sys.executable, __file__, "--child", name] + ["--host"] * given.host
        try:
            process = subprocess.run(words, capture_output=True, text=True, timeout=given.limit)
            said = [line for line in process.stdout.splitlines() if line.startswith("@@ ")]
            if process.returncode == 0 and said:
                results[name] = {"ok": True, **json.loads(said[-1][3:])}
            else:
                results[name] = {"ok": False, "detail": (process.stderr or process.stdout).strip()[-2000:]}
        except subprocess.TimeoutExpired:
            results[name] = {"ok": False, "detail": f"a hang: nothing for {given.limit:.0f} s"}
        print(("ok   " if results[name]["ok"] else "FAIL ") + f"{name}: {results[name]['detail']}", flush=True)
    failed = sum(not result["ok"] for result in results.values())
    print(f"{len(results) - failed} passed, {failed} failed")
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(results, indent=1))
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
