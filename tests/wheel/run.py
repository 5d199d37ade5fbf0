#!/usr/bin/env python3
"""Tests the wheel `parbake` and data wheels as a user meets them: installed by pip into new environments.

    python3 tests/wheel/run.py [--wheel FILE] [--runs N]

Builds the wheel with cargo's profile `dev` (PARBAKE_WHEEL_PROFILE) unless FILE is given. Needs cargo, a C++20 compiler
and a package index for pip; no GPU. Prints a line a check and `N passed, N failed, N skipped`; exits with 1 if one
failed. tests/python/run.py is run in the same environment, behind a bar.

  hook       tags of other machines and linkers
  wheel      what it holds, its record, its tag
  import     costs at most 40 ms, imports nothing heavy, creates nothing, opens no driver, starts no thread
  call       the data wheel serves it without a compiler: read-only, without HOME and settings
  foreign    a data wheel of another version or launch ABI, or a damaged one, is an error that names both
  command    `parbake` finds the same data wheel
  native     a program in C is built with what was installed
  layout     our structs are those of the oldest TVM FFI's headers
  uninstall  leaves nothing
  editable   a kernel that is edited in the checkout is compiled anew by the next process
"""

import argparse
import base64
import csv
import hashlib
import json
import os
import pathlib
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zipfile

from place import COUNT, REPO, Environment, figure, must, run, skip, verdict

OLDEST = "0.1.9"
LIMIT_MS = 40


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=pathlib.Path, help="the wheel to test, instead of building one")
    parser.add_argument("--runs", type=int, default=20, help="how often importing is timed")
    args = parser.parse_args()
    if sys.version_info < (3, 10):
        skip("Python 3.10")
        return finish()
    if os.environ.get("PARBAKE_OFFLINE", "").lower() in ("1", "on", "true", "yes"):
        skip("a package index, and PARBAKE_OFFLINE is on")
        return finish()
    with tempfile.TemporaryDirectory(prefix="parbake-wheel-") as folder:
        work = pathlib.Path(folder)
        work.chmod(0o755)
        tools = Environment(work / "tools")
        fetched = tools.pip("install", "--quiet", "hatchling>=1.27,<2", "editables", "numpy", f"apache-tvm-ffi=={OLDEST}")
        if fetched.returncode:
            print(fetched.stderr)
            skip("a package index")
            return finish()
        hook(tools)
        wheel = args.wheel or build(tools, work / "dist")
        looks_right(wheel)
        clean = Environment(work / "clean")
        clean.install("numpy", wheel)
        data = data_wheel(clean, work)
        clean.install("--no-index", data)
        records(clean, wheel, data)
        imports(clean, args.runs)
        traced(clean, work)
        calls(clean)
        foreign(clean)
        command(clean)
        native(clean, work)
        layout(tools)
        uninstall_data(clean, data)
        # For the checks of JAX. PyTorch is too large to be fetched for this: its checks run where it is installed.
        clean.install("parbake[jax]")
        python_tests(clean)
        uninstall(clean)
        editable(tools, work)
    return finish()


def finish():
    print(f"{COUNT['passed']} passed, {COUNT['failed']} failed, {COUNT['skipped']} skipped")
    return 1 if COUNT["failed"] else 0


def build(tools, folder):
    """The wheel, as pip builds it. Debug information stays: it is there for the taking of what `cargo test` built."""
    start = time.monotonic()
    profile = os.environ.get("PARBAKE_WHEEL_PROFILE", "dev")
    done = tools.pip(
        "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir", folder, REPO / "wheels",
        settings={"PARBAKE_WHEEL_PROFILE": profile},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"pip wheel:\n{done.stdout}{done.stderr}")
    figure(f"built with the profile {profile}", f"{time.monotonic() - start:.0f} s")
    (wheel,) = folder.glob("parbake-*.whl")
    return wheel


def hook(tools):
    """What the machine that builds cannot show."""
    code = f"""if True:
        import sys
        sys.path.insert(0, {str(REPO / "wheels")!r})
        from hatch_build import glibc
        print(glibc({{"libc.so.6", "ld-linux-aarch64.so.1"}}, {{"GLIBC_2.17", "GCC_3.0"}}, "aarch64"))
        print(glibc({{"ld-linux-x86-64.so.2"}}, {{"GLIBC_2.34", "GLIBC_ABI_DT_RELR"}}, "x86_64"))
        for libraries, versions in [({{"ld-linux-aarch64.so.1"}}, set()), (set(), {{"GLIBC_PRIVATE"}})]:
            try:
                print(glibc(libraries, versions, "x86_64"))
            except RuntimeError:
                print("refused")"""
    said = tools.ask(code)
    verdict(said == "(2, 17)\n(2, 36)\nrefused\nrefused", "tags are right for other machines and linkers", said)


def looks_right(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    figure(wheel.name, f"{wheel.stat().st_size / 1e6:.1f} MB")
    found = {name.split("/", 1)[1] for name in names if name.startswith("parbake/")}
    verdict("libparbake.so" in found and "__init__.py" in found, "the library and the Python layer are in the wheel", names)
    native = {"include/parbake.h", "cmake/parbakeConfig.cmake", "cmake/parbakeConfigVersion.cmake"}
    verdict(native <= found, "the C header and the CMake package are in the wheel", names)
    facts = {f"bench/facts/{file.parent.name}.py" for file in REPO.glob("kernels/*/*/reference.py")} | {"bench/facts/ops.json"}
    verdict(facts <= found, "so is what benchmarks check results against", sorted(facts - found))
    with zipfile.ZipFile(wheel) as archive:
        texts = {n.rsplit("/", 1)[1]: archive.read(n).decode() for n in names if ".dist-info/licenses/" in n}
    verdict("Apache License" in texts.get("LICENSE", ""), "the licence is in the wheel", list(texts))
    notice = texts.get("THIRD-PARTY.txt", "")
    whole = re.search(r"^zstd-sys .*: .*BSD", notice, re.M) and "Redistribution and use in source and binary forms" in notice
    verdict(whole and "\nsyn " not in notice, "so are those of what is linked into the library", notice[:2000])
    verdict("_paths.py" not in found, "nothing of an editable install is in the wheel", names)
    verdict(any(n.endswith(".data/scripts/parbake") for n in names), "the command is in the wheel", names)
    version = re.search(r'^version = "(.+)"', (REPO / "Cargo.toml").read_text(), re.M)[1]
    verdict(wheel.name.startswith(f"parbake-{version}-py3-none-"), f"its version is {version}, its tag py3-none", wheel.name)
    objdump = shutil.which("objdump")
    tag = re.search(r"manylinux_2_(\d+)_", wheel.name)
    if not objdump or not tag:
        skip("objdump" if tag else "a manylinux tag")
        return
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        newest = 0
        for name in names:
            if name.endswith((".so", "scripts/parbake")):
                symbols = must([objdump, "-T", archive.extract(name, folder)]).stdout
                newest = max([newest, *(int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", symbols))])
    verdict(newest == int(tag[1]), f"the tag says glibc 2.{newest}, which is the newest that a symbol asks for", wheel.name)


def data_wheel(clean, work):
    """A bundle for the host, and for GPUs if their compiler is here, as a wheel."""
    program, bundle = clean.root / "bin/parbake", work / "norm.pbk"
    env = {k: v for k, v in os.environ.items() if not k.startswith("PARBAKE_")} | {"PARBAKE_WORKSPACE": str(work / "bake")}
    words = [program, "build", "--op", "norm/rmsnorm", "--only", "dtype=f32", "--level", "3", "-o", bundle]
    if "PARBAKE_TOOLCHAINS" in os.environ:
        env["PARBAKE_TOOLCHAINS"] = os.environ["PARBAKE_TOOLCHAINS"]
    baked = run([*words, "--arch", "host,90a"], env)
    if "PB-1501" in baked.stderr:
        skip("cuda-12.9 (parbake toolchain install 12.9)")
        must([*words, "--arch", "host"], env)
    elif baked.returncode:
        raise SystemExit(f"parbake build: {baked}")
    made = must([program, "wheel", bundle, "-o", work / "dist", "--json"], env)
    (made,) = json.loads(made.stdout)["wheels"]
    figure(pathlib.Path(made["wheel"]).name, f"{made['bytes'] / 1e3:.0f} kB")
    return pathlib.Path(made["wheel"])


def records(clean, *wheels):
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            (place,) = (n for n in archive.namelist() if n.endswith(".dist-info/RECORD"))
            rows = [row for row in csv.reader(archive.read(place).decode().splitlines()) if row[0] != place]
            wrong = [name for name, digest, size in rows if (digest, int(size)) != recorded(archive.read(name))]
            names = sorted(n for n in archive.namelist() if n != place)
        verdict(not wrong and sorted(row[0] for row in rows) == names, f"the record of {wheel.name} is right", wrong)
    checked = clean.pip("check")
    verdict(checked.returncode == 0, "pip finds every requirement met", checked.stdout)


def recorded(content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"sha256={digest}", len(content)


def imports(clean, runs):
    def milliseconds(code):
        start = time.perf_counter()
        must([clean.python, "-c", code], clean.bare())
        return (time.perf_counter() - start) * 1e3

    bare, ours = [], []
    for _ in range(runs):
        bare.append(milliseconds("pass"))
        ours.append(milliseconds("import parbake"))
    bare, ours = statistics.median(bare), statistics.median(ours)
    figure("a bare Python, one that imports parbake", f"{bare:.1f} ms, {ours:.1f} ms (medians of {runs})")
    verdict(ours - bare <= LIMIT_MS, f"import parbake costs {ours - bare:.1f} ms, at most {LIMIT_MS}")
    heavy = "torch", "numpy", "jax", "tvm_ffi", "ctypes", "subprocess", "importlib.metadata", "parbake._load"
    found = clean.ask(f"import sys, parbake; print([m for m in {heavy!r} if m in sys.modules])")
    verdict(found == "[]", "it imports nothing heavy and loads no library", found)


WRITES = "O_CREAT|O_WRONLY|O_RDWR|O_TRUNC"
CREATES = "mkdir|mkdirat|mknod|link|linkat|symlink|symlinkat|rename|renameat2?|unlink|unlinkat|truncate|creat"


def traced(clean, work):
    strace = shutil.which("strace")
    if not strace:
        skip("strace")
        return
    log = work / "trace"
    done = run([strace, "-f", "-qq", "-o", log, clean.python, "-c", "import parbake"], clean.bare())
    lines = log.read_text().splitlines()
    if not any("parbake/__init__" in line for line in lines):
        skip(f"a strace that works here ({done.stderr.strip()})")
        return
    called = [line for line in lines if re.search(rf"^\d+ +({CREATES})\(", line)]
    opened = [line for line in lines if re.search(rf"^\d+ +open(at)?\(.*({WRITES})", line)]
    verdict(not called + opened, "importing creates and writes nothing", called + opened)
    driver = [line for line in lines if "libcuda" in line or "/dev/nvidia" in line]
    verdict(not driver, "importing opens no driver", driver)
    threads = [line for line in lines if re.search(r"^\d+ +(clone3?|v?fork|execve)\(", line)][1:]
    verdict(not threads, "importing starts no thread and no process", threads)


def calls(clean):
    got = clean.call()
    figure("the first call, the second", f"{got.get('first_ms', 0):.1f} ms, {got.get('second_ms', 0):.3f} ms (host target)")
    verdict(got["ok"], f"a call is served by the data wheel, without a compiler (tvm-ffi {got.get('tvm_ffi')})", got)
    # The superuser may write whatever permissions say, until that is taken away.
    prefix = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    if prefix and not shutil.which("setpriv"):
        skip("setpriv, or a user who is not root")
        prefix = []
    for folder in [clean.packages, *(p for p in clean.packages.rglob("*") if p.is_dir())]:
        folder.chmod(0o555)
    before = clean.listing()
    got = clean.call(clean.bare(), prefix)
    verdict(got["ok"], "and with site-packages read-only, without HOME and settings", got)
    verdict(clean.listing() == before and not list(clean.temporary.iterdir()), "which writes nothing anywhere",
            [*clean.temporary.iterdir()])  # fmt: skip
    for folder in [clean.packages, *(p for p in clean.packages.rglob("*") if p.is_dir())]:
        folder.chmod(0o755)
    newest = got.get("tvm_ffi")
    clean.install(f"apache-tvm-ffi=={OLDEST}")
    got = clean.call()
    verdict(got["ok"] and got["tvm_ffi"].startswith(OLDEST), f"it works with apache-tvm-ffi {OLDEST} too", got)
    clean.install(f"apache-tvm-ffi=={newest}")


def foreign(clean):
    (bundle,) = clean.packages.glob("parbake_bundles/*/norm.pbk")
    good = bundle.read_bytes()
    name = f"parbake-bundle-{bundle.parent.name}"
    version = good[136:168].rstrip(b"\0").decode()
    (abi,) = struct.unpack_from("<I", good, 168)

    def forged(version, abi):
        """The bundle as another library would have made it: see codegen/model/bundle/mod.rs."""
        header = bytearray(good[:256])
        header[136:168] = version.encode().ljust(32, b"\0")
        struct.pack_into("<I", header, 168, abi)
        header[224:] = hashlib.sha256(header[:224]).digest()
        return bytes(header) + good[256:]

    ours = f"the library is version {version}, launch ABI {abi}"
    torn = bytearray(good)
    torn[300] ^= 1
    for what, content, parts in [
        ("another version", forged("9.9.9", abi), [f"made by version 9.9.9, launch ABI {abi}", ours, f"pip install --upgrade parbake {name}"]),
        ("another launch ABI", forged(version, 77), [f"made by version {version}, launch ABI 77", ours, f"pip uninstall {name}"]),
        ("damage", bytes(torn), ["damaged", f"pip install --force-reinstall --no-deps {name}"]),
    ]:  # fmt: skip
        bundle.write_bytes(content)
        # A compiler could serve it: that must not hide what is wrong.
        got = clean.call(clean.bare())
        said = all(part in got.get("error", "") for part in [*parts, "PB-1391", str(bundle)])
        verdict(said and got["kind"].endswith("Error"), f"a data wheel with {what} is an error that names it", got)
        verdict(not list(clean.temporary.iterdir()), "after which nothing was written", list(clean.temporary.iterdir()))
    bundle.write_bytes(good)
    verdict(clean.call()["ok"], "the right one serves again")


def command(clean):
    program = clean.root / "bin/parbake"
    version = run([program, "--version"], clean.bare()).stdout
    verdict(version.startswith("parbake "), "the command parbake works", version)
    why = run([program, "why", "rmsnorm", "dtype=f32", "--target", "host"], clean.bare(PARBAKE_JIT="off"))
    verdict("→ bundle, host" in why.stdout and "parbake_bundles" in why.stdout, "it finds the data wheel beside it", why)


def native(clean, work):
    """A program in C against what was installed."""
    package = clean.packages / "parbake"
    source, program = work / "native.c", work / "native"
    source.write_text('#include "parbake.h"\n#include <stdio.h>\nint main(void) { return puts(parbake_version()) < 0; }\n')
    compiler = os.environ.get("CC", "cc")
    words = [compiler, source, "-I", package / "include", package / "libparbake.so", "-o", program]
    compiled = run(words, timeout=120)
    said = run([program], clean.bare(LD_LIBRARY_PATH=str(package))) if compiled.returncode == 0 else compiled
    versions = re.findall(r"^parbake (.+)$", run([clean.root / "bin/parbake", "--version"], clean.bare()).stdout, re.M)
    verdict([said.stdout.strip()] == versions, "a program in C is built with the header and runs with the library", said)


def layout(tools):
    """The check against headers, which has none where it runs among the tests of cargo."""
    ask = "import tvm_ffi.libinfo as l; print(l.find_include_path(), l.find_dlpack_include_path(), sep=':')"
    env = os.environ | {"PARBAKE_TEST_TVM_INCLUDE": tools.ask(ask)}
    words = ["cargo", "test", "--quiet", "--locked", "--package", "parbake", "--test", "tvm_layout", "--", "--nocapture"]
    done = run(words, env, cwd=REPO, timeout=1800)
    if "skipped: needs" in done.stdout:
        return skip(done.stdout.partition("skipped: needs ")[2].splitlines()[0])
    verdict(done.returncode == 0, f"our structs are those of TVM FFI {OLDEST}", done.stdout + done.stderr)


def python_tests(clean):
    script = REPO / "tests/python/run.py"
    env = {k: v for k, v in os.environ.items() if not k.startswith("PARBAKE_")} | clean.bare()
    process = subprocess.Popen([clean.python, script, "--installed"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in process.stdout:
        print(f"| {line}", end="", flush=True)
    verdict(process.wait() == 0, "the tests of the Python layer pass in the clean environment")


def uninstall_data(clean, data):
    name = data.name.split("-")[0].replace("_", "-")
    done = clean.pip("uninstall", "--yes", name)
    verdict(done.returncode == 0 and not (clean.packages / "parbake_bundles").exists(), f"pip uninstalls {name}", done)
    got = clean.call()
    kinds = "parbake._error.NotCoveredError", "parbake.NotCoveredError"
    verdict(got.get("kind") in kinds and "PB-2002" in got["error"], "without it the gap is named", got)


def uninstall(clean):
    clean.pip("uninstall", "--yes", "parbake")
    left = [str(p) for p in clean.root.rglob("*parbake*")]
    verdict(not left, "pip uninstall leaves nothing of parbake", left)


def editable(tools, work):
    """In a copy of what an editable install uses of the checkout; library and command are those that were built."""
    checkout = work / "checkout"
    for folder in ["kernels", "wheels"]:
        shutil.copytree(REPO / folder, checkout / folder, ignore=shutil.ignore_patterns("__pycache__", "_paths.py", "dist"))
    shutil.copy(REPO / "Cargo.toml", checkout)
    target = json.loads(must(["cargo", "metadata", "--format-version=1", "--no-deps", "--offline"], cwd=REPO).stdout)
    built = pathlib.Path(target["target_directory"]) / "debug"
    freeze = tools.pip("freeze").stdout
    tools.install("--no-build-isolation", "--no-deps", "--editable", checkout / "wheels",
                  settings={"PARBAKE_WHEEL_BINARIES": str(built)})  # fmt: skip
    lines = [line for line in tools.pip("freeze").stdout.splitlines() if "parbake" not in line]
    verdict(lines == freeze.splitlines(), "an editable install changes no other package", lines)
    env = tools.bare(PARBAKE_WORKSPACE=str(work / "workspace"))
    entries = lambda: len(list((work / "workspace/store").glob("v1/*/host/*/kernel.so")))  # noqa: E731
    got = tools.call(env)
    verdict(got["ok"] and str(checkout) in got["file"], "its Python files are those of the checkout", got)
    first = entries()
    verdict(tools.call(env)["ok"] and entries() == first > 0, "a second process finds what the first compiled", entries())
    source = checkout / "kernels/norm/rmsnorm/rmsnorm.cuh"
    text = source.read_text()
    source.write_text(text.replace("const float r = rsqrt_fast(", "const float r = 2.f * rsqrt_fast(", 1))
    got = tools.call(env)
    verdict(abs(got.get("ratio", 0) - 2) < 1e-4 and entries() > first, "an edited kernel is compiled by the next process", got)
    source.write_text(text)
    again = entries()
    verdict(tools.call(env)["ok"] and entries() == again, "and taken from the store when the edit is undone", entries())
    shape = ["--shape", "rows=4", "--shape", "hidden=256", "--target", "host", "--json"]
    done = run([tools.root / "bin/parbake", "run", "rmsnorm", "dtype=f32", *shape], env)
    verdict('"from": "store"' in done.stdout, "the command parbake uses the same kernels", done)


if __name__ == "__main__":
    sys.exit(main())
