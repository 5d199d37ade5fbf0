"""Every op of the utility families under AddressSanitizer with UBSan and under ThreadSanitizer, in several schedules.

The test `every_op_under_several_schedules` of tests/utilities.rs has the cases, the launchers and the references. Here its
program is run once more with the sanitizer in the process and a compiler that instruments kernels: a script that adds
the options to units and leaves the host target's runtime as it is. Rust is not instrumented; what lies around the
elements of a tensor is closed to kernels by runtime/asan.rs. Seeded bugs show that all of that notices something.
"""

import concurrent.futures
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
KERNELS = REPO / "kernels"
TEST = "schedules::every_op_under_several_schedules"
OPTIONS = {"asan": "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer",
           "tsan": "-fsanitize=thread"}
RUNTIME = {"asan": ["libasan.so", "libubsan.so"], "tsan": ["libtsan.so"]}
# Rust frees at exit what it does not free before, and starts its own stacks for signals.
SETTINGS = {"ASAN_OPTIONS": "detect_leaks=0:color=never:use_sigaltstack=0",
            "UBSAN_OPTIONS": "print_stacktrace=1:color=never",
            "TSAN_OPTIONS": "color=never:halt_on_error=1:report_signal_unsafe=0:ignore_noninstrumented_modules=1"}
# Units are what the host toolchain links; -O1 takes half the time of -O2 to compile.
WRAPPER = """#!/bin/sh
case " $* " in
    *" unit.so "*) exec {compiler} "$@" -O1 -g1 {options} ;;
    *) exec {compiler} "$@" ;;
esac
"""
# (what, op, which sanitizer sees it, what that says, file, text, replacement); the text occurs once.
BUGS = [
    ("read past the last row", "act_and_mul", "asan", "AddressSanitizer: use-after-poison",
     "activation/act_and_mul/act_and_mul.cuh", "ld<kVec>(x + p.hidden)", "ld<kVec>(x + p.hidden + kLane)"),
    ("write past shared memory", "packed_indptr", "asan", "runtime error: index 64 out of bounds",
     "quantization/packed_indptr/packed_indptr.cuh", "sums[turn + warp_id()] = sum", "sums[2 * turn + warp_id()] = sum"),
    ("a product that overflows", "packbits", "asan", "runtime error: signed integer overflow",
     "quantization/packbits/packbits.cuh", "(i64)blockIdx.x * 256 + threadIdx.x",
     "(i64)blockIdx.x * 256 + threadIdx.x + ((i32)p.n * (i32)p.n * (i32)p.n * (i32)p.n == 7)"),
    ("no barrier before shared memory is read", "packed_indptr", "tsan", "ThreadSanitizer: data race",
     "quantization/packed_indptr/packed_indptr.cuh", "        __syncthreads();\n", ""),
    ("queries are read before all threads have brought them", "batch_attention", "tsan", "ThreadSanitizer: data race",
     "attention/batch_attention/batch_attention.cuh",
     "            cp_async_wait<S::kStages - 1>();\n            __syncthreads();\n", "            cp_async_wait<0>();\n"),
    ("a rank says that it has come before all of its threads have", "all_reduce", "tsan", "ThreadSanitizer: data race",
     "collective/group.cuh", "void meet(u32 phase) const {\n        __syncthreads();\n", "void meet(u32 phase) const {\n"),
    ("what another rank wrote is read without an acquire", "all_gather", "tsan", "ThreadSanitizer: data race",
     "include/parbake/system.cuh", "__ATOMIC_ACQUIRE", "__ATOMIC_RELAXED"),
    ("a call writes over what a slow rank still reads", "all_gather", "tsan", "ThreadSanitizer: data race",
     "collective/group.cuh", "(i64)(calls & 1) * g.half", "(i64)(calls & 0) * g.half"),
    ("two threads write one byte", "packbits", "tsan", "ThreadSanitizer: data race",
     "quantization/packbits/packbits.cuh", "st<1>(out + thread,", "st<1>(out + thread / 2,"),
]


class Missing(Exception):
    """What this machine lacks."""


class Wrong(Exception):
    """What was found."""


@functools.cache
def program():
    """The program of the Rust test, built if it is not."""
    command = ["cargo", "test", "--quiet", "--test", "utilities", "--no-run", "--message-format=json"]
    built = subprocess.run(command, cwd=REPO, capture_output=True, text=True)
    if built.returncode:
        raise Wrong(built.stderr[-3000:])
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    return next(m["executable"] for m in messages
                if m.get("executable") and m["target"]["name"] == "utilities" and m["profile"]["test"])


def libraries(compiler, sanitizer):
    """The run-time libraries that come first in the process."""
    found = []
    for name in RUNTIME[sanitizer]:
        path = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
        if not os.path.isabs(path):
            raise Missing(f"{compiler} has no {name}")
        found.append(os.path.realpath(path))
    return ":".join(found)


def run(build, compiler, sanitizer, kernels=KERNELS, only=None, timeout=600):
    """Runs the test by instrumented kernels; returns how it ended."""
    folder = build / f"utilities-{sanitizer}"
    folder.mkdir(parents=True, exist_ok=True)
    wrapper = folder / "c++"
    text = WRAPPER.format(compiler=shutil.which(compiler), options=OPTIONS[sanitizer])
    if not wrapper.exists() or wrapper.read_text() != text:
        wrapper.write_text(text)
        wrapper.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PARBAKE_")}
    env |= SETTINGS | {"CXX": str(wrapper), "CUDA_VISIBLE_DEVICES": "", "PARBAKE_TEST_KERNELS": str(kernels),
                       "RUST_BACKTRACE": "0"}
    if only:
        env["PARBAKE_TEST_ONLY"] = only
    # The library is for the program alone. Where addresses are more random than ThreadSanitizer expects, they are not.
    command = ["env", f"LD_PRELOAD={libraries(compiler, sanitizer)}", program(), "--exact", TEST]
    if sanitizer == "tsan" and random_bits() > 28:
        command = ["setarch", "-R", *command]
    return subprocess.run(command, cwd=REPO, env=env, capture_output=True, text=True, timeout=timeout)


def random_bits():
    try:
        return int(pathlib.Path("/proc/sys/vm/mmap_rnd_bits").read_text())
    except OSError:
        return 0


def ops():
    """The ops that the test has; row norms have tests of their own."""
    manifest = json.loads((REPO / "generated-manifest/ops.json").read_text())
    return [row["op"]["name"] for row in manifest["ops"] if row["op"]["family"] != "norm"]


def clean(build, compiler, sanitizer):
    """A process for each op: what ThreadSanitizer keeps of the fibers of all would be too much for one."""
    program()
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = list(pool.map(lambda op: (op, run(build, compiler, sanitizer, only=op)), ops()))
    wrong = [f"{op}: exit {r.returncode}\n{(r.stdout + r.stderr)[-3000:]}" for op, r in results
             if r.returncode or not re.search(r"\b1 passed", r.stdout)]
    if wrong:
        raise Wrong("\n".join(wrong))
    return f"{len(results)} ops"


def seeded(build, compiler):
    """Each bug must be seen by its sanitizer, in its op."""
    missed = []
    for what, op, sanitizer, says, file, text, replacement in BUGS:
        copy = build / "utilities-bug"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(KERNELS, copy)
        source = (copy / file).read_text()
        if source.count(text) != 1:
            raise Wrong(f"bug '{what}': the text occurs {source.count(text)} times in {file}")
        (copy / file).write_text(source.replace(text, replacement))
        r = run(build, compiler, sanitizer, copy, op)
        if not r.returncode or says not in r.stdout + r.stderr:
            missed.append(f"{what}: exit {r.returncode}, {(r.stdout + r.stderr)[-600:]}")
    if missed:
        raise Wrong("not found: " + "\n".join(missed))
    return f"{len(BUGS)} bugs found"
