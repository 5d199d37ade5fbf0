#!/usr/bin/env python3
"""Checks and times attention on a GPU, through the wrappers of the Python package. Needs PyTorch with CUDA.

    python3 tests/gpu/attention.py [--only WORD] [--bench] [--no-check] [--flashinfer] [--host] [--limit SECONDS]
                                   [--json FILE]

Every check holds each request and head to a float64 reference: ‖out − ref‖ / ‖ref‖ up to 5e-3 (bf16) or 1e-3 (f16), the
logarithm of the sum to 1e-3, and where it says so FlashAttention's rule: no element is further off than twice what
PyTorch is in the same precision. Shapes are those of the peers' tests; the others are bugs that peers had.

Checks run in a child process. It says what it does before it does it; where nothing is heard for --limit seconds (120)
that is a hang: it is a failure with the shape named, and the other checks go on in another child.

--bench times the rows D1 to D10 and P1 to P9 in CUDA graphs with a cold L2, each after its result was checked, beside
torch's SDPA (flash and cuDNN) and with --flashinfer FlashInfer (fa2 prefill, tensor-core decode), all in one run; and
what plan and run cost the host. --host runs everything in little on the CPU, to test this script.
"""

import argparse
import json
import os
import pathlib
import queue
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
# What the child begins a line with that is for the parent.
MARK = "@@ "
# Seconds that its imports may take.
START = 300.0


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

    setup.start(given.host, lambda **what: print(MARK + json.dumps(what), flush=True))
    if given.child == "bench":
        import attention_bench as part
    else:
        import attention_checks as part
    part.run(given.only, set(filter(None, given.done.split(","))), given.flashinfer)


def hand_over(lines, to):
    """Line by line, and None where they end."""
    for line in lines:
        to.put(line)
    to.put(None)


def watch(given, part):
    """The results of a part, from one child or, after a hang or a crash, several."""
    results = {}
    while True:
        words = [sys.executable, __file__, "--child", part, "--only", given.only, "--done", ",".join(results)]
        words += [f"--{name}" for name in ("host", "flashinfer") if getattr(given, name)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=dict(os.environ, PYTHONUNBUFFERED="1"))
        lines = queue.Queue()
        threading.Thread(target=hand_over, args=(process.stdout, lines), daemon=True).start()
        name, shape, lost = None, "", None
        while True:
            try:
                line = lines.get(timeout=given.limit if name else max(given.limit, START))
            except queue.Empty:
                process.kill()
                lost = f"a hang: nothing for {given.limit if name else max(given.limit, START):.0f} s"
                break
            if line is None:
                lost = f"the process ended with {process.wait()}" if name or process.wait() else None
                break
            if not line.startswith(MARK):
                print(line, end="", flush=True)
                continue
            said = json.loads(line[len(MARK) :])
            if "begin" in said:
                name, shape = said["begin"], ""
            elif "shape" in said:
                shape = said["shape"]
            elif "end" in said:
                results[said["end"]] = said
                name = None
                state = {True: "ok  ", False: "FAIL", None: "skip"}[said["ok"]]
                print(f"{state} {said['end']}: {said['detail']}", flush=True)
        process.wait()
        if lost is None:
            return results
        # What is lost before a check begins would be lost again.
        name = name or f"the {part} itself"
        results[name] = {"end": name, "ok": False, "detail": f"{lost}, at {shape or 'its beginning'}"}
        print(f"FAIL {name}: {results[name]['detail']}", flush=True)
        if name.startswith("the "):
            return results


def main():
    given = parse()
    if given.child:
        return child(given)
    parts = [] if given.no_check else ["checks"]
    parts += ["bench"] if given.bench else []
    results = {part: list(watch(given, part).values()) for part in parts}
    failed = sum(row["ok"] is False for rows in results.values() for row in rows)
    passed = sum(row["ok"] is True for rows in results.values() for row in rows)
    print(f"{passed} passed, {failed} failed")
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(results, indent=1))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
