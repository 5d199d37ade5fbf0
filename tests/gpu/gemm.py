#!/usr/bin/env python3
"""Checks and times products of matrices on a GPU, through the functions of the Python package. Needs PyTorch with CUDA.

    python3 tests/gpu/gemm.py [--only WORD] [--bench] [--sweep] [--no-check] [--host] [--limit SECONDS] [--json FILE]

Checks hold every element to float64: half an ulp of the result's type and 1e-5 of the sum without signs (5e-4 with 8 bits,
which tensor cores add up with fewer digits), or exactly where all sums are. They are those of tests/python/check_gemm.py,
larger ones, probes that show each element's way (matrices of ones and zeros), strides of 0 and beyond 2^31 elements, and
graphs. Then each tile of each path of both ops by force, in a process of its own (PARBAKE_TACTICS),
some at a time.

--bench times the rows G1 to G10, F1 to F7 and GG1 to GG5 in CUDA graphs with a cold L2, each after its result was checked,
beside torch (cuBLAS, its grouped products) and a plain Triton kernel, all in one run; for up to 64 rows also how long torch
takes to read as many bytes. Then ours by path 1 on sm_90a, and row G2 by path 0, which is what other architectures have.
--sweep times ours by each tile of each path, which says what the model of costs should choose.

Where nothing is heard of a check or row for --limit seconds (60) it is killed, and it is a failure. Kernels that no bundle
has are compiled: name one with PARBAKE_BUNDLES to have the times of the checks only. --host runs everything in little on
the CPU, to test this script.
"""

import argparse
import concurrent.futures
import itertools
import json
import pathlib
import sys

from watchdog import say, watch

HERE = pathlib.Path(__file__).resolve().parent
# Processes that check at the same time.
AT_ONCE = 8


def parse():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--only", default="", metavar="WORD", help="checks and rows whose name has it")
    words.add_argument("--bench", action="store_true")
    words.add_argument("--sweep", action="store_true")
    words.add_argument("--no-check", action="store_true")
    words.add_argument("--host", action="store_true")
    words.add_argument("--limit", type=float, default=60.0)
    words.add_argument("--json", metavar="FILE")
    words.add_argument("--child", help=argparse.SUPPRESS)
    words.add_argument("--done", default="", help=argparse.SUPPRESS)
    return words.parse_args()


def forced():
    """Each tile of each path of both ops, and whether the host target has it."""
    ops = json.loads((HERE.parents[1] / "generated-manifest/ops.json").read_text(encoding="utf-8"))["ops"]
    for op in (entry["op"] for entry in ops if entry["op"]["name"] in ("bmm", "group_mm")):
        values = {tactic["name"]: tactic["values"] for tactic in op["tactic"]}
        for chosen in itertools.product(*(values.get(name, [None]) for name in ("path", "tile"))):
            of = dict(zip(("path", "tile"), chosen))
            barred = [e for e in op["exclude"] if all(of.get(name) in some for name, some in e["when"].items())]
            if not [e for e in barred if "except" not in e]:
                words = ",".join(f"{name}={value}" for name, value in of.items() if value is not None)
                yield f"{op['name']}:{words}", not barred


def child(given):
    """Runs what is asked, and tells the parent of each thing that begins and ends."""
    sys.path[:0] = [str(HERE), str(HERE.parent / "python")]
    import attention_setup as setup

    setup.start(given.host, say)
    if given.child.startswith("bench"):
        import gemm_bench as part
    else:
        import gemm_checks as part
    part.run(given.child, given.only, set(filter(None, given.done.split(","))))


def main():
    given = parse()
    if given.child:
        return child(given)
    options = ["--only", given.only] + ["--host"] * given.host
    results = {}
    if not given.no_check:
        results["checks"] = watch(__file__, "checks", options, given.limit)
        with concurrent.futures.ThreadPoolExecutor(1 if given.host else AT_ONCE) as threads:
            started = {
                tactic: threads.submit(watch, __file__, f"forced {tactic}", options, given.limit, PARBAKE_TACTICS=tactic)
                for tactic, everywhere in forced()
                if everywhere or not given.host
            }
            results |= {tactic: future.result() for tactic, future in started.items()}
    if given.bench:
        results["bench"] = watch(__file__, "bench", options, given.limit)
        alone = ["bmm:path=0"] + ["bmm:path=1;group_mm:path=1"] * (not given.host)
    else:
        alone = []
    alone += [tactic for tactic, everywhere in forced() if everywhere or not given.host] if given.sweep else []
    for tactic in alone:
        # One after the other: they are timed.
        results[f"bench {tactic}"] = watch(__file__, f"bench {tactic}", options, given.limit, PARBAKE_TACTICS=tactic)
    failed = sum(row["ok"] is False for rows in results.values() for row in rows)
    passed = sum(row["ok"] is True for rows in results.values() for row in rows)
    print(f"{passed} passed, {failed} failed")
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(results, indent=1))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
