#!/usr/bin/env python3
"""Whether wrong images are caught where the driver says nothing, and right ones load. Builds nothing; needs a GPU of
compute capability 9.0 (or `--fake`, see below). No PyTorch.

    python3 tests/gpu/load.py PARBAKE BAKED [--tests PROGRAM] [--fake]

What must be there before:

    cargo build --release -p parbake-cli                        PARBAKE is target/release/parbake
    for each toolkit T of 12.9, 13.0 and 13.5:                  BAKED is the folder
        parbake build --toolkit T --arch 90a --op norm/rmsnorm --only dtype=bf16 -o BAKED/T.pbk
    cargo test --release -p parbake --test device --no-run      PROGRAM, optional: what needs one process and the
                                                                library itself (graphs, forks, several specs)

A bundle that is not in BAKED is skipped and named. JIT needs an NVRTC that `parbake toolchain` finds; without one its
checks are skipped. `--fake` is for trying the script under tests/fake/driver.c, whose kernels compute nothing: numbers
are not judged then.

1. The facts, with the driver alone: it "loads" a cubin of another architecture, an empty file, random bytes and PTX that
   it cannot read, and gives no kernel of them.
2. The same images in a store entry and in a bundle, with all hashes right: caught before the driver, by a code of ours.
3. Bundles by several toolkits load, or are refused, as the rule says: the driver's major version is not below the
   toolkit's.

Prints one line a check and closes with `N passed, N failed, N skipped`.
"""

import argparse
import ctypes
import hashlib
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SAMPLES = ROOT / "codegen/model/testdata"
TOOLKITS = ("12.9", "13.0", "13.5")
COUNT = {"passed": 0, "failed": 0, "skipped": 0}


def verdict(ok, text):
    COUNT["passed" if ok else "failed"] += 1
    print(f"{'ok  ' if ok else 'FAIL'} {text}", flush=True)


def skip(text):
    COUNT["skipped"] += 1
    print(f"skipped: needs {text}", flush=True)


def noise(size):
    return hashlib.shake_256(b"parbake").digest(size)


def sample(name):
    return (SAMPLES / name).read_bytes()


# ---- 1. the driver alone --------------------------------------------------------------------------------------------

class Driver:
    """The driver by hand, with the primary context of device 0 current."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        device, version = ctypes.c_int(), ctypes.c_int()
        self.context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDriverGetVersion", ctypes.byref(version))
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.call("cuCtxSetCurrent", self.context)
        part = []
        for attribute in (75, 76):
            value = ctypes.c_int()
            self.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
            part.append(value.value)
        self.version = (version.value // 1000, version.value % 1000 // 10)
        self.capability = tuple(part)

    def call(self, name, *arguments):
        code = getattr(self.lib, name)(*arguments)
        if code:
            raise RuntimeError(f"{name}: {code}")

    def load(self, image, entry):
        """Result of the load, number of kernels, result of asking for the kernel; None is not asked."""
        library, kernel, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint()
        # Zeros behind it: the driver is told no length, and PTX ends with one.
        buffer = ctypes.create_string_buffer(image + bytes(64))
        loaded = self.lib.cuLibraryLoadData(ctypes.byref(library), buffer, None, None, 0, None, None, 0)
        if loaded:
            return loaded, None, None
        counted = None
        if hasattr(self.lib, "cuLibraryGetKernelCount"):
            counted = count.value if self.lib.cuLibraryGetKernelCount(ctypes.byref(count), library) == 0 else None
        got = self.lib.cuLibraryGetKernel(ctypes.byref(kernel), library, entry.encode())
        function = ctypes.c_void_p()
        if got == 0:
            got = self.lib.cuKernelGetFunction(ctypes.byref(function), kernel)
        return loaded, counted, got


def newer_ptx(version):
    isa = f"{version[0] - 4}.{version[1] + 5}"
    return isa, f".version {isa}\n.target sm_90\n.address_size 64\n.visible .entry sample()\n{{\n ret;\n}}\n".encode()


def facts(driver):
    print(f"driver of CUDA {driver.version[0]}.{driver.version[1]}, device of {driver.capability[0]}.{driver.capability[1]}")
    print(f"    {'image':<34}{'load':>6}{'kernels':>9}{'get':>6}")
    isa, ptx = newer_ptx(driver.version)
    right = sample("12.9-90a.cubin")
    rows = [
        ("right: cubin for sm_90a", right, True),
        ("cubin for sm_80", sample("13.0-80.cubin"), False),
        ("cubin for sm_100a", sample("13.0-100a.cubin"), False),
        ("fatbin for sm_100f", sample("13.0-100f.fatbin"), False),
        ("empty file", b"", False),
        ("random bytes", noise(len(right)), False),
        (f"PTX of version {isa}", ptx, False),
    ]
    silent = []
    for name, image, good in rows:
        loaded, kernels, got = driver.load(image, "sample")
        print(f"    {name:<34}{loaded:>6}{'-' if kernels is None else kernels:>9}{'-' if got is None else got:>6}")
        verdict((loaded, got) == (0, 0) if good else got != 0, f"the driver gives {'the' if good else 'no'} kernel of: {name}")
        if not good and loaded == 0:
            silent.append(name)
    print(f"    loaded with success all the same: {', '.join(silent) or 'none'}")


# ---- Parbake --------------------------------------------------------------------------------------------------------

def parbake(args, workspace, bundle=None, jit=False):
    env = dict(os.environ, PARBAKE_WORKSPACE=str(workspace), PARBAKE_JIT="on" if jit else "off")
    env.pop("PARBAKE_BUNDLES", None)
    if bundle:
        env["PARBAKE_BUNDLES"] = str(bundle)
    return subprocess.run([str(A.parbake), *args], env=env, capture_output=True, text=True, timeout=300)


def run(workspace, dtype="bf16", **how):
    done = parbake(["--json", "run", "rmsnorm", f"dtype={dtype}", "--shape", "rows=7", "--shape", "hidden=4096"], workspace, **how)
    try:
        got = json.loads(done.stdout)
    except json.JSONDecodeError:
        got = {}
    code = re.search(r"PB-\d{4}", done.stderr + done.stdout)
    return got, code.group() if code else None, done


def served(got, place):
    """Whether a kernel came from there and its numbers are right; the fake driver computes none."""
    return got.get("from") == place and (got.get("ok") is True or A.fake)


def caught(got, code, what, says=""):
    """Refused before the driver, with the code for an image that is not what it is said to be."""
    why = (got.get("errors") or [{}])[0].get("error", "")
    ok = not got.get("from") and code == "PB-2119" and says in why
    verdict(ok, f"{what:<52} {code} {why.partition('said to be: ')[2][:90] if ok else got}")


# ---- 2. images with right hashes ------------------------------------------------------------------------------------

def wrong_cubins(right):
    return {
        "for sm_80": sample("13.0-80.cubin"),
        "for sm_100a": sample("13.0-100a.cubin"),
        "for sm_90 without its suffix": sample("12.9-90.cubin"),
        "with another kernel": sample("13.0-90a.cubin"),
        "cut in half": right[: len(right) // 2],
        "one byte short": right[:-1],
        "a fatbin": sample("13.0-90a.fatbin"),
        "random": noise(len(right)),
        "empty": b"",
        "PTX": newer_ptx((13, 0))[1],
    }


def forged_store(tmp):
    work = tmp / "forged-store"
    got, _, done = run(work, jit=True)
    entries = list((work / "store").glob("v*/*/sm_*/*/meta.json")) or list((work / "store").glob("*/sm_*/*/meta.json"))
    if not served(got, "jit") or len(entries) != 1:
        skip(f"an NVRTC for this GPU: {done.stderr.strip()[:200] or got}")
        return
    verdict(True, f"JIT: {got.get('uri')} on {got.get('target')} in {got.get('compile_ms')} ms, load {got.get('load_ms'):.1f} ms")
    got, _, _ = run(work)
    verdict(served(got, "store"), "the entry serves a second process, JIT off")
    meta, file = entries[0], entries[0].with_name("kernel.cubin")
    text, right = meta.read_text(), file.read_bytes()
    # Entries are immutable: forged ones are new files in a copy of the workspace.
    for name, image in wrong_cubins(right).items():
        forged = tmp / "forged-entry"
        shutil.rmtree(forged, ignore_errors=True)
        shutil.copytree(work, forged)
        new = re.sub(r'"image": "[0-9a-f]{64}"', f'"image": "{hashlib.sha256(image).hexdigest()}"', text)
        new = re.sub(r'"size": \d+', f'"size": {len(image)}', new, count=1)
        place = forged / file.relative_to(work)
        place.write_bytes(image)
        place.with_name("meta.json").write_text(new)
        for jit in (False, True):
            got, code, _ = run(forged, jit=jit)
            caught(got, code, f"store entry {name}, JIT {'on' if jit else 'off'}")
    got, _, _ = run(work)
    verdict(served(got, "store"), "the right entry still serves")


HEADER, ENTRY, FRAME = 256, 116, 48


def raw_frame(content):
    """A zstd frame that holds its content as it is."""
    frame = struct.pack("<IBQ", 0xFD2FB528, 0xE0, len(content))
    blocks = [content[i:i + 65536] for i in range(0, len(content), 65536)] or [b""]
    for i, block in enumerate(blocks):
        frame += struct.pack("<I", (len(block) << 3) | (i == len(blocks) - 1))[:3] + block
    return frame


def forge(bundle, image):
    """The bundle with another image in every place, all sizes and hashes right (codegen/model/bundle/mod.rs has the layout)."""
    old = bundle.read_bytes()
    count = struct.unpack_from("<I", old, 24)[0]
    details_at, details_size = struct.unpack_from("<QQ", old, 80)
    entries = b""
    for i in range(count):
        row = bytearray(old[HEADER + i * ENTRY:HEADER + (i + 1) * ENTRY])
        row[72:104] = hashlib.sha256(image).digest()
        struct.pack_into("<III", row, 104, 0, i * len(image), len(image))
        entries += row
    frame = raw_frame(image * count)
    index_size = len(entries) + FRAME
    details = old[details_at:details_at + details_size]
    frame_at = HEADER + index_size + len(details)
    index = entries + struct.pack("<QII", frame_at, len(frame), len(image) * count) + hashlib.sha256(frame).digest()
    head = bytearray(old[:224])
    struct.pack_into("<Q", head, 16, frame_at + len(frame))
    struct.pack_into("<II", head, 24, count, 1)
    struct.pack_into("<QQ", head, 32, HEADER, index_size)
    head[48:80] = hashlib.sha256(index).digest()
    struct.pack_into("<Q", head, 80, HEADER + index_size)
    return bytes(head) + hashlib.sha256(head).digest() + index + details + frame


def forged_bundles(tmp):
    made = [A.baked / f"{t}.pbk" for t in TOOLKITS if (A.baked / f"{t}.pbk").exists()]
    if not made:
        skip(f"a bundle in {A.baked}")
        return
    images = tmp / "images"
    done = parbake(["inspect", str(made[0]), "--extract", str(images)], tmp / "none")
    rows = json.loads((images / "images.json").read_text()) if done.returncode == 0 else []
    if not rows:
        verdict(False, f"images of {made[0].name}: {done.stderr[:300]}")
        return
    toolkit = made[0].stem
    got, _, _ = run(tmp / "none", bundle=made[0])
    right = next(((images / row["file"]).read_bytes() for row in rows if row["uri"] == got.get("uri")), None)
    if right is None:
        skip(f"a driver that takes {made[0].name}")
        return
    # Every place holds the image of the spec that is asked for. That it is served shows that the forger gets sizes and
    # hashes right, and that only the image decides below.
    path = tmp / "forged.pbk"
    path.write_bytes(forge(made[0], right))
    got, code, _ = run(tmp / "none", bundle=path)
    verdict(served(got, "bundle"), f"the right image in a forged bundle is served: {code or got.get('from')}")
    relabelled = bytearray(right)
    struct.pack_into("<I", relabelled, 16 + 28, 80)
    cases = {
        "for sm_100f": sample("13.0-100f.fatbin"),
        "labelled sm_90 with sm_90a inside": sample("13.0-90a-as-90.fatbin"),
        "of another label": bytes(relabelled),
        "with half a cubin": sample("13.0-half.fatbin"),
        "with three images": sample("13.0-mixed.fatbin"),
        "with PTX": sample("13.0-ptx.fatbin"),
        "compressed inside": sample("13.0-compressed.fatbin"),
        "with another kernel": sample(f"{toolkit}-90a.fatbin"),
        "that is a bare cubin": sample(f"{toolkit}-90a.cubin"),
        "cut in half": right[: len(right) // 2],
        "random": noise(len(right)),
        "one byte long": b"\x50",
    }
    for name, image in cases.items():
        path.write_bytes(forge(made[0], image))
        got, code, _ = run(tmp / "none", bundle=path)
        caught(got, code, f"bundle with an image {name}")
    path.write_bytes(forge(made[0], b""))
    got, code, _ = run(tmp / "none", bundle=path)
    verdict(not got.get("from") and code and code.startswith("PB-13"), f"bundle with an image of no bytes: {code}")
    # A label that states another toolkit would change the verdict on the driver.
    lie = bytearray(forge(made[0], right))
    for i in range(struct.unpack_from("<I", lie, 24)[0]):
        struct.pack_into("<I", lie, HEADER + i * ENTRY + 36, 12 << 16 | 1)
    index_size = struct.unpack_from("<Q", lie, 40)[0]
    lie[48:80] = hashlib.sha256(lie[HEADER:HEADER + index_size]).digest()
    lie[224:256] = hashlib.sha256(lie[:224]).digest()
    path.write_bytes(lie)
    got, code, _ = run(tmp / "none", bundle=path)
    caught(got, code, "bundle that states another toolkit", f"compiled by CUDA {toolkit}")
    verdict(not (tmp / "none").exists(), "with JIT off nothing was written")


# ---- 3. toolkits ----------------------------------------------------------------------------------------------------

def toolkits(tmp, driver):
    for toolkit in TOOLKITS:
        path = A.baked / f"{toolkit}.pbk"
        if not path.exists():
            skip(f"{path}")
            continue
        major = int(toolkit.split(".")[0])
        got, code, done = run(tmp / "none", bundle=path)
        if driver.capability != (9, 0):
            fits, why = False, "another device"
        else:
            fits, why = major <= driver.version[0], f"driver of CUDA {driver.version[0]}"
        if fits:
            ok = served(got, "bundle") and got.get("target") == "sm_90a"
            verdict(ok, f"bundle by {toolkit} ({why}): from {got.get('from')}, {got.get('target')}, largest relative error "
                        f"{got.get('max_rel_err')} {'' if ok else done.stderr[:300]}")
        else:
            said = f"compiled by CUDA {toolkit}" in done.stderr or "9.0 exactly" in done.stderr
            verdict(not got.get("from") and code == "PB-2002" and said, f"bundle by {toolkit} ({why}) is refused: {code}")


def own_process():
    if A.fake:
        skip("a GPU for tests in one process")
        return
    if not A.tests:
        skip("the program of `cargo test -p parbake --test device --no-run` (--tests)")
        return
    env = dict(os.environ, PARBAKE_KERNELS=str(ROOT / "kernels"))
    args = [str(A.tests), "--nocapture", "--test-threads=1"]
    done = subprocess.run(args, env=env, capture_output=True, text=True, timeout=500)
    said = done.stdout + done.stderr
    print("\n".join("    " + line for line in said.splitlines() if line.strip())[-6000:])
    result = re.search(r"test result: (\w+)\. (\d+) passed; (\d+) failed", said)
    skipped = said.count("skipped: needs")
    COUNT["skipped"] += skipped
    verdict(bool(result) and result.group(1) == "ok" and int(result.group(2)) > 0,
            f"tests in one process: {result.group(0) if result else said[-400:]}, of them {skipped} skipped")


def main():
    global A
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parbake", type=pathlib.Path)
    parser.add_argument("baked", type=pathlib.Path)
    parser.add_argument("--tests", type=pathlib.Path, help="the test program `device`")
    parser.add_argument("--fake", action="store_true", help="the driver is tests/fake/driver.c: numbers are not judged")
    A = parser.parse_args()
    A.parbake, A.baked = A.parbake.resolve(), A.baked.resolve()
    os.environ.setdefault("PARBAKE_KERNELS", str(ROOT / "kernels"))
    driver = Driver()
    if driver.capability == (9, 0):
        facts(driver)
    else:
        skip("a device of 9.0 for the facts")
    with tempfile.TemporaryDirectory() as folder:
        tmp = pathlib.Path(folder)
        toolkits(tmp, driver)
        if driver.capability == (9, 0):
            forged_bundles(tmp)
        else:
            skip("a device of 9.0 for bundles that were baked for 90a")
        forged_store(tmp)
        own_process()
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**COUNT))
    return COUNT["failed"] != 0


if __name__ == "__main__":
    sys.exit(main())
