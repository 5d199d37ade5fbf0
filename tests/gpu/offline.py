#!/usr/bin/env python3
"""A lock, what it covers, and a job without a compiler, on a GPU (or on the host, to try the script).

    python3 tests/gpu/offline.py PARBAKE [--target auto|host|90a] [--keep FOLDER]

PARBAKE is the command line's binary, with kernel sources inside or in a checkout. The part that bakes needs the compiler
of the target: NVRTC as `parbake toolchain` finds it, or a C++ compiler for `--target host`.

1. A program's calls are recorded (PARBAKE_RECORD) and locked, and the lock is baked.
2. `coverage` says that the bundle serves all of them.
3. The program runs again with an empty workspace, PARBAKE_JIT=off, no PATH, no toolchains and no variable that would find
   a compiler; where `unshare` may be used, with no network either. Everything comes from the bundle.
4. One call more: `coverage` names it beforehand with the command that closes the gap, the error at run time names the
   same spec, and the command closes it.

Prints one line a check and closes with `N passed, N failed, N skipped`.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

COUNT = {"passed": 0, "failed": 0, "skipped": 0}
CALLS = [("rmsnorm", "f16", 99, 4096), ("rmsnorm", "bf16", 7, 64), ("fused_add_rmsnorm", "bf16", 19, 500)]
EXTRA = ("rmsnorm", "f32", 3, 1024)


def verdict(ok, text, details=""):
    COUNT["passed" if ok else "failed"] += 1
    print(f"{'ok  ' if ok else 'FAIL'} {text}{'' if ok else ': ' + str(details)[-800:]}", flush=True)
    return ok


class Machine:
    """A workspace, and whether there is anything to compile with."""

    def __init__(self, folder, bare):
        self.folder, self.bare = folder, bare
        folder.mkdir(parents=True)

    def run(self, words, **settings):
        env = {n: v for n, v in os.environ.items() if not n.startswith("PARBAKE_")}
        env |= {"PARBAKE_WORKSPACE": str(self.folder / "workspace"), "PARBAKE_RECORD": str(self.folder / "calls.jsonl")}
        before = []
        if self.bare:
            for name in ("CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CXX", "CC"):
                env.pop(name, None)
            env |= {"PATH": "", "PARBAKE_JIT": "off", "PARBAKE_TOOLCHAINS": str(self.folder / "none")}
            before = OFFLINE
        done = subprocess.run([*before, str(PARBAKE), "--json", *words], env=env | settings, capture_output=True,
                              text=True, timeout=600, cwd=self.folder)
        try:
            return done.returncode, json.loads(done.stdout), done.stderr
        except json.JSONDecodeError:
            return done.returncode, {}, done.stdout + done.stderr

    def call(self, call, **settings):
        op, dtype, rows, hidden = call
        shape = ["--shape", f"rows={rows}", "--shape", f"hidden={hidden}"]
        return self.run(["run", op, f"dtype={dtype}", *shape, "--target", TARGET], **settings)


def recorded(machine):
    return [json.loads(line) for line in (machine.folder / "calls.jsonl").read_text().splitlines()]


def main(folder):
    builder = Machine(folder / "builder", bare=False)
    good = [builder.call(call) for call in CALLS]
    verdict(all(status == 0 for status, _, _ in good), f"{len(CALLS)} calls run and are right", good)
    records = recorded(builder)
    targets = sorted({r["target"] for r in records})
    verdict(len(records) == len(CALLS) and len(targets) == 1, f"each is recorded once, for {targets}", records)
    lock, bundle = builder.folder / "job.lock", builder.folder / "job.pbk"
    status, made, err = builder.run(["lock", "calls.jsonl", "-o", str(lock)])
    verdict(status == 0 and made.get("specs") == len(CALLS), "the recording becomes a lock", err)
    status, made, err = builder.run(["build", "--lock", str(lock), "-o", str(bundle)])
    verdict(status == 0 and made.get("images") == len(CALLS), f"the lock is baked: {made.get('bytes')} bytes", err)

    job = Machine(folder / "job", bare=True)
    status, said, err = job.run(["coverage", "--lock", str(lock), "--bundle", str(bundle)])
    verdict(status == 0 and said.get("covered") is True, "coverage says that all of it is there", said or err)
    settings = {"PARBAKE_BUNDLES": str(bundle)}
    for call in CALLS:
        status, said, err = job.call(call, **settings)
        verdict(status == 0 and said.get("ok") and said.get("from") == "bundle", f"{call} runs without a compiler", said or err)
    verdict(not (job.folder / "workspace").exists(), "and leaves nothing in the workspace")

    status, _, err = builder.call(EXTRA)
    extra = recorded(builder)[-1]
    verdict(status == 0, f"one call more: {EXTRA}", err)
    status, said, err = job.run(["coverage", "--calls", str(builder.folder / "calls.jsonl"), "--bundle", str(bundle)])
    missing = [c for c in said.get("calls", []) if c["served"] == "missing"]
    named = len(missing) == 1 and missing[0]["spec_id"] == extra["spec_id"]
    verdict(status == 1 and named and "parbake build --lock" in err, "coverage names it and the command beforehand", said or err)
    spec = missing[0]["spec"] if missing else "?"
    status, _, err = job.call(EXTRA, **settings)
    verdict(status == 3 and spec in err, f"the error at run time names it: {spec}", err)
    last = recorded(job)[-1]
    verdict(last["from"] is None and last["spec_id"] == extra["spec_id"], "and the recording of that run has it", last)

    second = builder.folder / "second.pbk"
    builder.run(["lock", "calls.jsonl", "-o", str(lock)])
    status, _, err = builder.run(["build", "--lock", str(lock), "-o", str(second)])
    verdict(status == 0, "the command closes the gap", err)
    status, said, err = job.call(EXTRA, PARBAKE_BUNDLES=str(second))
    verdict(status == 0 and said.get("from") == "bundle", "and the call runs without a compiler", said or err)


def offline():
    """The words that take the network away, if that is allowed here."""
    unshare = shutil.which("unshare")
    words = [unshare, "--net", "--map-root-user"] if unshare else []
    if words and subprocess.run([*words, "true"], capture_output=True).returncode == 0:
        return words
    COUNT["skipped"] += 1
    print("skipped: needs unshare --net: the job keeps its network", flush=True)
    return []


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("parbake", type=pathlib.Path)
    parser.add_argument("--target", default="auto")
    parser.add_argument("--keep", type=pathlib.Path)
    args = parser.parse_args()
    PARBAKE, TARGET, OFFLINE = args.parbake.resolve(), args.target, offline()
    if args.keep:
        main(args.keep)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(pathlib.Path(scratch))
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**COUNT))
    sys.exit(1 if COUNT["failed"] else 0)
