#!/usr/bin/env python3
"""Tests the kernels on the host target, and the host target itself. Needs a C++20 compiler, no GPU.

    python3 tests/host/run.py [--quick] [--only WORD] [--seed N] [--build DIR]

Prints a line per check and `N passed, N failed, N skipped`; exits with 1 if one failed.

  headers    every device header and parameter struct compiles alone; C and C++ agree on every offset
  probe      the wrappers return the bits that a GPU returned (shim/probe.txt)
  norm       the norm kernels against a float64 reference: plain, with ASan and UBSan, with TSan, and preempted at
             basic blocks at random
  utilities  (not with --quick) every op of the other families with ASan and UBSan and with TSan, in several schedules,
             and bugs that these must find
  hopper     (not with --quick) kernels of sm_90a alone, with the copy engine, its barriers and wgmma emulated (hopper/),
             against a float64 reference in several schedules
  bugs       42 tiny kernels, 35 with a seeded bug: each bug must be found, no good kernel accused
  mutants    (not with --quick) norm kernels with one line broken: each must be found
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import utilities

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parent.parent
KERNELS = REPO / "kernels"
CXX = os.environ.get("CXX", "g++")
CC = os.environ.get("CC", "gcc")

WARN = ["-Wall", "-Wextra", "-Wno-unknown-pragmas"]
# A frame larger than a guard page must not jump over it: every fiber has its own small stack.
UNIT = ["-std=c++20", "-g", "-O1", "-fstack-clash-protection", "-fvisibility=hidden"]
SANITIZE = {"asan": "-fsanitize=address,undefined", "tsan": "-fsanitize=thread"}
VARIANTS = {
    "plain": [],
    "asan": [SANITIZE["asan"], "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"],
    "tsan": [SANITIZE["tsan"]],
    "preempt": ["-fsanitize-coverage=trace-pc"],
}
ENV = dict(os.environ, ASAN_OPTIONS="detect_leaks=0:color=never",
           TSAN_OPTIONS="color=never:halt_on_error=1:report_signal_unsafe=0")

CPP = {"bf16": "pb::bf16", "f16": "pb::f16", "f32": "float"}
# The tactics of kernels/norm: (block, rows, vec, peel). A vec of 0 stands for one element.
TACTICS = [(128, 32, 16, 0), (128, 16, 16, 0), (128, 8, 16, 0), (512, 1, 16, 0), (1024, 1, 16, 0),
           (128, 8, 16, 1), (512, 1, 16, 1), (128, 8, 0, 0), (512, 1, 0, 0)]
FEW_TACTICS = [(128, 8, 16, 0), (512, 1, 16, 0), (512, 1, 16, 1), (128, 8, 0, 0)]
OPS = ["rmsnorm", "fused_add_rmsnorm"]


class Skip(Exception):
    pass


class Fail(Exception):
    pass


def run(command, timeout=300, **kw):
    command = [str(c) for c in command]
    return subprocess.run(command, capture_output=True, text=True, env=ENV, timeout=timeout, **kw)


def must(command, **kw):
    r = run(command, **kw)
    if r.returncode:
        raise Fail(f"{' '.join(map(str, command))}\n{(r.stdout + r.stderr)[-3000:]}")
    return r.stdout


class Build:
    """Compiles into a folder; `kernels` may be a mutated copy."""

    def __init__(self, folder, kernels=KERNELS, runtime=None):
        self.folder, self.kernels = pathlib.Path(folder), pathlib.Path(kernels)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.include = [f"-I{self.kernels / 'include'}", f"-I{self.kernels}", f"-I{HERE}", f"-I{self.folder}"]
        self.runtime = runtime

    def unit(self, source, name, variant, warn=WARN):
        out = self.folder / f"{variant}_{name}.o"
        must([CXX, *UNIT, *warn, *VARIANTS[variant], *self.include, "-x", "c++", "-c", source, "-o", out])
        return out

    def host_object(self, source, name):
        out = self.folder / f"{name}.o"
        must([CXX, "-std=c++20", "-g", "-O2", "-fPIC", "-fvisibility=hidden", *WARN, *self.include, "-c", source,
              "-o", out])
        return out

    def link(self, objects, name, variant, flags=()):
        out = self.folder / f"{variant}_{name}"
        sanitize = [SANITIZE[variant]] if variant in SANITIZE else []
        must([CXX, *sanitize, *objects, self.runtime, "-o", out, *flags, "-ldl", "-lpthread"])
        return out


def render(kernels, op, dtype, tactic, entry):
    """What the generator renders, for the few expressions these templates have."""
    block, rows, vec, peel = tactic
    context = {"entry": entry, "axes.dtype.cpp": CPP[dtype], "axes.dtype.value": dtype,
               "tactic.block": block, "tactic.rows": rows, "tactic.vec": vec, "tactic.peel": peel}
    text = (kernels / "norm" / op / f"{op}.cu.tera").read_text()
    return re.sub(r"\$\{\s*(.*?)\s*\}\$", lambda m: str(context[m[1]]), text)


drivers = {}


def norm_program(build, variant, dtypes, name, tactics=TACTICS, ops=OPS):
    """One source per op and dtype, all tactics in it: that compiles faster than one source per unit."""
    units, objects = [], []
    for op in ops:
        for dtype in dtypes:
            text = ""
            for block, rows, vec, peel in tactics:
                vec = vec or (4 if dtype == "f32" else 2)
                entry = f"{op}_{dtype}_b{block}_r{rows}_v{vec}_p{peel}"
                units.append((op, dtype, block, rows, vec, peel, entry))
                text += render(build.kernels, op, dtype, (block, rows, vec, peel), entry)
            source = build.folder / f"{op}_{dtype}.cu"
            source.write_text(text)
            objects.append(build.unit(source, f"{op}_{dtype}", variant))
    rows = "".join(f'    {{"{o}", "{d}", {b}, {r}, {v}, {p}, "{e}", {e}}},\n' for o, d, b, r, v, p, e in units)
    entries = "".join(f"entry_fn {u[-1]};\n" for u in units)
    table = ('#pragma once\n#include "host/pb_host.h"\n'
             'typedef int entry_fn(pb_host_launch*, const void*, char*, size_t);\n'
             'struct Unit {\n    const char *op, *dtype;\n    unsigned block, rows, vec, peel;\n'
             '    const char* name;\n    entry_fn* entry;\n};\n'
             f'extern "C" {{\n{entries}}}\nstatic const Unit kUnits[] = {{\n{rows}}};\n')
    if table not in drivers:  # it depends on the table alone, and is not instrumented: variants and mutants share it
        (build.folder / "units.h").write_text(table)
        drivers[table] = build.host_object(HERE / "norm.cpp", f"{name}_driver_{len(drivers)}")
    return build.link([drivers[table], *objects], name, variant)


def sanitizer_works(build, variant):
    """A compiler without the sanitizer's run-time library skips a check; it does not fail it."""
    source = build.folder / "empty.cpp"
    source.write_text("int main() {}\n")
    flags = VARIANTS[variant]
    r = run([CXX, *flags, source, build.runtime, "-o", build.folder / "empty", "-lpthread"])
    return r.returncode == 0 and run([build.folder / "empty"]).returncode == 0


def execute(program, *args):
    r = run([program, *args])
    if r.returncode:
        raise Fail(f"exit {r.returncode}\n{(r.stdout + r.stderr)[-3000:]}")
    return r.stdout


# ---- the checks: each returns a short summary -----------------------------------------------------------------------

def headers(build):
    n = 0
    for header in sorted((KERNELS / "include" / "parbake").glob("*.cuh")):
        must([CXX, "-std=c++20", *WARN, "-Werror", *build.include, "-fsyntax-only", "-x", "c++", "-include", header,
              os.devnull])
        n += 1
    for params in sorted(KERNELS.glob("*/*/params.h")):
        text = params.read_text()
        struct, body = re.search(r"typedef struct (\w+) \{(.*?)\n\}", text, re.S).group(1, 2)
        body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
        fields = re.findall(r"(\w+)\s*;", body)
        # Offsets as the C++ compiler has them, asserted by the C compiler.
        lines = "".join(f'    printf("_Static_assert(PB_OFFSETOF({struct}, {f}) == %d, \\"{f}\\");\\n", '
                        f"(int)PB_OFFSETOF({struct}, {f}));\n" for f in fields)
        include = f'#include "{params.relative_to(KERNELS)}"\n'
        source = build.folder / "layout.cpp"
        source.write_text(f"#include <stdio.h>\n{include}int main() {{\n{lines}}}\n")
        must([CXX, *WARN, "-Werror", *build.include, source, "-o", build.folder / "layout"])
        asserts = must([build.folder / "layout"])
        source = build.folder / "layout.c"
        source.write_text(include + asserts)
        must([CC, "-std=c11", "-pedantic", "-nostdinc", *WARN, "-Werror", *build.include, "-fsyntax-only", source])
        n += 1
    return f"{n} headers"


def probe(build):
    unit = build.unit(HERE / "shim/probe.cu", "probe_unit", "plain")
    main = build.host_object(HERE / "shim/probe.cpp", "probe_main")
    got = execute(build.link([main, unit], "probe", "plain")).split()
    want = (HERE / "shim/probe.txt").read_text().split()
    wrong = [i for i, (a, b) in enumerate(zip(got, want)) if a != b]
    if wrong or len(got) != len(want):
        raise Fail(f"{len(wrong)} of {len(want)} words differ; word {wrong[:4]}")
    return f"{len(want)} words as on the GPU"


def norm(build, variant, dtypes, seeds, quick, tactics):
    program = norm_program(build, variant, dtypes, "norm", tactics)
    out = execute(program, *(["--quick"] if quick else []), *seeds)
    cases = sum(int(m) for m in re.findall(r"(\d+) cases", out))
    worst = {d: max(float(m) for m in re.findall(rf"_{d}_.*worst ([\d.]+)", out)) for d in dtypes}
    errors = ", ".join(f"{d} {w:g}" for d, w in worst.items())
    return f"{cases} cases, seeds {' '.join(map(str, seeds))}, worst error over tolerance: {errors}"


def hopper(build, name, seeds):
    """Emulated headers come before those of kernels/."""
    out = build.folder / f"{name}.o"
    must([CXX, *UNIT, *WARN, f"-I{HERE / 'hopper'}", *build.include, "-c", HERE / f"{name}.cpp", "-o", out])
    program = build.link([out], name, "plain")
    cases = sum(int(execute(program, seed).split()[0]) for seed in seeds)
    return f"{cases} cases, seeds {' '.join(map(str, seeds))}"


def verdict(result):
    """How a run ended, in a word or two; '-' is a clean run."""
    r = re.search(r"(AddressSanitizer|ThreadSanitizer): ([\w-]+)|runtime error: (.{0,40})", result.stderr)
    if r:
        return f"{r[1]} {r[2]}" if r[1] else f"ubsan {r[3]}"
    if result.stdout.startswith("same"):
        return "-"
    if result.returncode < 0:
        return f"signal {-result.returncode}"
    return result.stdout.split(":")[0].split(" in ")[0].split(" depends")[0].strip() or f"exit {result.returncode}"


def bugs(build, every_variant, verbose):
    """Every bug must be seen under at least one variant, and the good kernels under none."""
    orders = {"plain": range(6), "preempt": [0, *range(2, 10)], "asan": [0], "tsan": [0]}
    variants = list(orders)
    source = HERE / "shim/bugs.cu"
    names = re.findall(r"^K\((\w+)\)", source.read_text(), re.M)
    main = build.host_object(HERE / "shim/bugs.cpp", "bugs_main")
    programs = {v: build.link([main, build.unit(source, "bugs_unit", v, ["-w"])], "bugs", v, ["-rdynamic"])
                for v in variants}
    wrong = []
    for name in names:
        row = {}
        for variant, program in programs.items():
            try:
                row[variant] = verdict(run([program, name, *orders[variant]], timeout=60))
            except subprocess.TimeoutExpired:
                row[variant] = "hang"
            if row[variant] != "-" and not every_variant:
                break
        if verbose:
            print(f"    {name}: " + "; ".join(f"{v} {x}" for v, x in row.items()), flush=True)
        if all(x == "-" for x in row.values()) != name.startswith("ok_"):
            wrong.append(f"{name} {row}")
    if wrong:
        raise Fail("wrong verdict on " + "; ".join(wrong))
    good = sum(n.startswith("ok_") for n in names)
    return f"{len(names) - good} bugs found, {good} good kernels passed ({', '.join(variants)})"


NORM = "norm/norm.cuh"
RMS = "norm/rmsnorm/rmsnorm.cuh"
ADD = "norm/fused_add_rmsnorm/fused_add_rmsnorm.cuh"
BLOCK = "include/parbake/block.cuh"
WARP = "include/parbake/warp.cuh"
VEC = "include/parbake/vec.cuh"
# (what, file, text, replacement); the text occurs once.
MUTANTS = [
    ("no barrier in block_sum", BLOCK, "    __syncthreads();\n", ""),
    ("sum over half the lanes", WARP, "m = kLanes / 2; m; m >>= 1) v =", "m = kLanes / 4; m; m >>= 1) v ="),
    ("absent warps are summed", BLOCK, "lane_id() < blockDim.x / 32 ? slots[lane_id()] : Op::kNone", "slots[lane_id()]"),
    ("the last warp is left out", BLOCK, "lane_id() < blockDim.x / 32 ?", "lane_id() + 1 < blockDim.x / 32 ?"),
    ("threads without a row leave", RMS, "    const Tile tile(x,", "    if (row >= p.rows) return;\n    const Tile tile(x,"),
    ("rows not bounded", RMS, "row < p.rows ? p.hidden : 0", "p.hidden"),
    ("one row for all", RMS, "(i64)blockIdx.x * kRows", "(i64)(blockIdx.x / 2) * kRows"),
    ("columns not bounded on the way in", NORM, "column(i) < end ? ld<kVec>(row + column(i)) : words<kVec>{}",
     "ld<kVec>(row + column(i))"),
    ("columns not bounded on the way out", RMS, "if (c >= tile.end) break;\n", ""),
    ("columns beyond the registers not summed", RMS, "        sum = sum_of_squares(v, sum);\n    }\n    if (kPeel", "    }\n    if (kPeel"),
    ("one access too many in registers", NORM, "return lead + (i * threads() + thread()) * kLane",
     "return lead + (i * (threads() - 1) + thread()) * kLane"),
    ("peel: lead counts bytes", NORM, "(kVec - 1)) / (int)sizeof(T)", "(kVec - 1))"),
    ("peel: no head", NORM, "edge = thread() < lead ? thread() : end + thread() - lead", "edge = end + thread()"),
    ("peel: edges not summed", RMS, "        sum = sum_of_squares(edge, sum);\n", ""),
    ("peel: weights taken for aligned", NORM, "return gather_nc<kVec>(ptr);", "return ld_nc<kVec>(ptr);"),
    ("gather: halves swapped", VEC, "r.w[i] = ld_nc<2>(ptr + 2 * i PB_PASS_AT).w[0] |",
     "r.w[i] = ld_nc<2>(ptr + 2 * i + 1 PB_PASS_AT).w[0] |"),
    ("eps left out", RMS, " * inv_hidden + p.eps", " * inv_hidden"),
    ("weight bias left out", NORM, "(w[j] + bias)", "(w[j] + 0.f * bias)"),
    ("output stride confused", RMS, "row * p.out_stride", "row * p.x_stride"),
    ("norm of the rounded sum", ADD, "        sum = sum_of_squares(s[i], sum);",
     "        unpack<T, kVec>(pack<T, kVec>(s[i]), s[i]);\n        sum = sum_of_squares(s[i], sum);"),
    ("residual stored before it is read again", ADD, "        sum = sum_of_squares(t, sum);\n",
     "        sum = sum_of_squares(t, sum);\n        st<kVec>(residual + c, pack<T, kVec>(t));\n"),
    ("residual not stored beyond the registers", ADD, "        st<kVec>(residual + c, pack<T, kVec>(t));\n", ""),
    ("norm of x alone", ADD, "s[j] += v[j]", "s[j] += 0.f * v[j]"),
]


def mutants(folder, runtime, verbose):
    """The cheapest variant that notices ends the search for a mutant."""
    missed, found_by = [], []
    for what, file, text, replacement in MUTANTS:
        copy = folder / f"mutant{len(found_by)}"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(KERNELS, copy / "kernels")
        target = copy / "kernels" / file
        source = target.read_text()
        if source.count(text) != 1:
            raise Fail(f"mutant '{what}': the text occurs {source.count(text)} times in {file}")
        target.write_text(source.replace(text, replacement))
        build = Build(copy / "build", copy / "kernels", runtime)
        ops = ["rmsnorm"] if file == RMS else ["fused_add_rmsnorm"] if file == ADD else OPS
        by = None
        for variant, seeds in (("plain", [0, 2]), ("asan", [0]), ("preempt", [2, 3]), ("tsan", [0])):
            try:
                program = norm_program(build, variant, ["bf16"], "norm", FEW_TACTICS, ops)
                r = run([program, "--quick", *seeds], timeout=120)
                by = variant if r.returncode else None
            except subprocess.TimeoutExpired:
                by = f"{variant} (hang)"
            if by:
                break
        if verbose:
            print(f"    {what}: {by or 'NOT FOUND'}", flush=True)
        if not by:
            missed.append(what)
        found_by.append(by)
    if missed:
        raise Fail("not found: " + "; ".join(missed))
    return f"{len(MUTANTS)} mutants found: " + ", ".join(f"{v} {found_by.count(v)}" for v in dict.fromkeys(found_by))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="less than a minute on one core")
    parser.add_argument("--only", help="checks whose name contains this word")
    parser.add_argument("--seed", type=int, help="the random seed of the full run")
    parser.add_argument("--build", default=REPO / "target" / "host-tests", type=pathlib.Path, help="where to build")
    parser.add_argument("--verbose", action="store_true", help="a line per seeded bug and mutant")
    a = parser.parse_args()
    seed = a.seed if a.seed is not None else int.from_bytes(os.urandom(3), "little") + 2
    build = Build(a.build)
    build.runtime = build.host_object(KERNELS / "host/pb_host.cpp", "pb_host")

    def with_sanitizer(variant, check):
        def checked():
            if not sanitizer_works(build, variant):
                raise Skip(f"{CXX} has no {variant} run-time library")
            return check()
        return checked

    every = ["bf16", "f16", "f32"]
    checks = [("headers", lambda: headers(build)), ("probe", lambda: probe(build))]
    plans = {"plain": (every, [0] if a.quick else [0, 1, seed]),
             "asan": (["bf16"] if a.quick else every, [0] if a.quick else [seed]),
             "tsan": (["bf16"] if a.quick else ["bf16", "f32"], [0]),
             "preempt": (["bf16"] if a.quick else every, [2] if a.quick else [seed])}
    for variant, (dtypes, seeds) in plans.items():
        few = a.quick and variant != "plain"
        tactics = FEW_TACTICS if few else TACTICS
        checks.append((f"norm {variant}", with_sanitizer(
            variant, lambda v=variant, d=dtypes, s=seeds, t=tactics: norm(build, v, d, s, a.quick or v in SANITIZE, t))))
    if not a.quick:
        for name in ("asan", "tsan"):
            checks.append((f"utilities {name}", with_sanitizer(name, lambda n=name: utilities.clean(a.build, CXX, n))))
        checks.append(("hopper products", lambda: hopper(build, "hopper", [0, 1, seed])))
        checks.append(("hopper attention", lambda: hopper(build, "hopper_attention", [0, 1, seed, seed + 1])))
        checks.append(("utilities bugs", with_sanitizer(
            "tsan", with_sanitizer("asan", lambda: utilities.seeded(a.build, CXX)))))
    checks.append(("bugs", with_sanitizer(
        "tsan", with_sanitizer("asan", lambda: bugs(build, not a.quick, a.verbose)))))
    if not a.quick:
        checks.append(("mutants", lambda: mutants(build.folder, build.runtime, a.verbose)))

    passed = failed = skipped = 0
    for name, check in checks:
        if a.only and a.only not in name:
            continue
        start = time.monotonic()
        try:
            summary, word = check(), "ok"
            passed += 1
        except (Skip, utilities.Missing) as e:
            summary, word = str(e), "skip"
            skipped += 1
        except (Fail, utilities.Wrong, subprocess.TimeoutExpired) as e:
            summary, word = str(e), "FAIL"
            failed += 1
        print(f"{word:4} {name:18} {time.monotonic() - start:5.1f} s  {summary}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
