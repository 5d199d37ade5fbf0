"""What the wheel `parbake` holds beside Python files: builds the library and the command with cargo, and tags the wheel.

Three variables steer it. PARBAKE_WHEEL_PROFILE is the cargo profile: `release` for wheels, `dev` for editable installs if
it is not set. PARBAKE_WHEEL_GLIBC, as in `2.28`, builds for that libc with zig as the linker, which the build then
requires; without it the system's linker is taken. PARBAKE_WHEEL_BINARIES is a folder with `libparbake_ffi.so` and
`parbake`, which are packed as they are. In every case the tag is read from the files.
"""

import json
import os
import struct
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# What links for an older libc than the build machine's. One pair that was tried.
ZIG = ["cargo-zigbuild==0.24.1", "ziglang==0.17.1"]

# What of others is linked into the library and the command, and under which licences.
NOTICE = "THIRD-PARTY.txt"
TEXTS = ("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")

# Libraries that every manylinux system has. What else a file needs would have to be packed with it.
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1"}


class CustomBuildHook(BuildHookInterface):
    """Called by hatchling before a wheel is put together."""

    def dependencies(self) -> list[str]:
        """What an isolated build installs before this hook runs."""
        return ZIG if os.environ.get("PARBAKE_WHEEL_GLIBC") else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds, and says what goes where. `version` is `standard` or `editable`."""
        if self.target_name != "wheel":
            raise RuntimeError("parbake: only wheels are made, and from a checkout; see docs/packaging.md")
        wheels = Path(self.root)
        checkout = wheels.parent
        if version == "editable":
            self.editable(checkout, build_data)
        else:
            self.standard(checkout, build_data)

    def standard(self, checkout: Path, build_data: dict[str, Any]) -> None:
        """A wheel that needs nothing of the checkout: kernel sources are inside the library."""
        profile = os.environ.get("PARBAKE_WHEEL_PROFILE") or "release"
        glibc = os.environ.get("PARBAKE_WHEEL_GLIBC")
        library, command = build(checkout, profile, glibc, ["--features", "embed-sources"])
        add = build_data["force_include"]
        add[str(library)] = "parbake/libparbake.so"
        for source, place in shared_files(checkout):
            add[str(source)] = place
        build_data["shared_scripts"][str(command)] = "parbake"
        notice = Path(self.directory, NOTICE)
        notice.parent.mkdir(parents=True, exist_ok=True)
        notice.write_text(third_parties(linked(checkout)), encoding="utf-8")
        add[str(notice)] = f"{self.build_config.builder.project_id}.dist-info/licenses/{NOTICE}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag([library, command])}"

    def editable(self, checkout: Path, build_data: dict[str, Any]) -> None:
        """Python files, library and kernels stay in the checkout: an edit of a kernel or a `cargo build` counts at once.

        The profile is that of `cargo test`, so a checkout is built once.
        """
        library, command = build(checkout, os.environ.get("PARBAKE_WHEEL_PROFILE") or "dev", None, [])
        kernels = checkout / "kernels"
        paths = Path(self.root, "python/parbake/_paths.py")
        paths.write_text(
            '"""Where an editable install finds what a wheel packs. Written by hatch_build.py, tracked by nobody."""\n\n'
            f"LIBRARY: str = {str(library)!r}\nKERNELS: str | None = {str(kernels)!r}\n"
        )
        script = Path(self.directory, "parbake-editable")
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(
            "#!/bin/sh\n"
            f"PARBAKE_KERNELS=${{PARBAKE_KERNELS:-{quoted(kernels)}}} exec {quoted(command)} \"$@\"\n"
        )
        script.chmod(0o755)
        build_data["shared_scripts"][str(script)] = "parbake"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """What was packed need not lie beside the wheel."""
        Path(self.directory, NOTICE).unlink(missing_ok=True)


def quoted(path: Path) -> str:
    """As one word of a shell."""
    return "'" + str(path).replace("'", "'\\''") + "'"


def build(checkout: Path, profile: str, glibc: str | None, options: list[str]) -> tuple[Path, Path]:
    """Runs cargo: the library and the command, as it names them. If they are there already, these."""
    if ready := os.environ.get("PARBAKE_WHEEL_BINARIES"):
        return Path(ready, "libparbake_ffi.so").absolute(), Path(ready, "parbake").absolute()
    machine = f"{os.uname().machine}-unknown-linux-gnu"
    words = ["cargo", "zigbuild", "--target", f"{machine}.{glibc}"] if glibc else ["cargo", "build"]
    words += ["--locked", "--profile", profile, "--package", "parbake-ffi", "--package", "parbake-cli", *options]
    words += ["--message-format", "json-render-diagnostics"]
    try:
        run = subprocess.run(words, cwd=checkout, stdout=subprocess.PIPE, text=True, check=False)
    except FileNotFoundError as error:
        raise RuntimeError("parbake: `cargo` was not found; the wheel is built from Rust sources") from error
    if run.returncode:
        raise RuntimeError(f"parbake: `{' '.join(words)}` failed with status {run.returncode}")
    built: dict[str, Path] = {}
    for line in run.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact":
            built |= {message["target"]["name"]: Path(f) for f in message["filenames"] if f.endswith(".so")}
            if message["executable"]:
                built[message["target"]["name"]] = Path(message["executable"])
    return built["parbake_ffi"], built["parbake"]


def linked(checkout: Path) -> list[dict[str, Any]]:
    """The crates of others that are linked into the library and the command, as `cargo metadata` describes them."""
    words = ["cargo", "metadata", "--locked", "--format-version", "1"]
    words += ["--filter-platform", f"{os.uname().machine}-unknown-linux-gnu"]
    try:
        run = subprocess.run(words, cwd=checkout, stdout=subprocess.PIPE, text=True, check=False)
    except FileNotFoundError as error:
        raise RuntimeError("parbake: `cargo` was not found; it says what is linked into the wheel") from error
    if run.returncode:
        raise RuntimeError(f"parbake: `{' '.join(words)}` failed with status {run.returncode}")
    graph = json.loads(run.stdout)
    packages = {package["id"]: package for package in graph["packages"]}
    nodes = {node["id"]: node for node in graph["resolve"]["nodes"]}
    found: set[str] = set()
    rest = [key for key, package in packages.items() if package["name"] in ("parbake-ffi", "parbake-cli")]
    while rest:
        key = rest.pop()
        # A macro runs in the compiler, and so does all that it needs.
        macro = any("proc-macro" in target["kind"] for target in packages[key]["targets"])
        if key not in found and not macro:
            found.add(key)
            needs = nodes[key]["deps"]
            rest += [need["pkg"] for need in needs if any(kind["kind"] is None for kind in need["dep_kinds"])]
    others = [packages[key] for key in found if packages[key]["source"]]
    return sorted(others, key=lambda package: (package["name"], package["version"]))


def third_parties(crates: list[dict[str, Any]]) -> str:
    """Name, version and licence of each crate, then the texts that its sources bring, each text once."""
    lines = ["Library and command of parbake contain the Rust standard library (MIT OR Apache-2.0) and these crates:", ""]
    texts: dict[str, tuple[str, list[str]]] = {}
    for crate in crates:
        name = f"{crate['name']} {crate['version']}"
        lines.append(f"{name}: {crate['license'] or 'see below'}")
        folder = Path(crate["manifest_path"]).parent
        files = [file for file in sorted(folder.iterdir()) if file.is_file() and file.name.upper().startswith(TEXTS)]
        for file in files:
            text = file.read_text(encoding="utf-8", errors="replace").strip()
            texts.setdefault(" ".join(text.split()), (text, []))[1].append(f"{name} ({file.name})")
    for text, names in texts.values():
        lines += ["", "-" * 72, *names, "", text]
    return "\n".join(lines) + "\n"


def shared_files(checkout: Path) -> list[tuple[Path, str]]:
    """The C header, the CMake package, and what benchmarks check results against."""
    files = [(checkout / "generated-manifest/parbake.h", "parbake/include/parbake.h")]
    for name in ["parbakeConfig.cmake", "parbakeConfigVersion.cmake"]:
        files.append((checkout / "wheels/cmake" / name, f"parbake/cmake/{name}"))
    files.append((checkout / "generated-manifest/ops.json", "parbake/bench/facts/ops.json"))
    for file in sorted(checkout.glob("kernels/*/*/reference.py")):
        files.append((file, f"parbake/bench/facts/{file.parent.name}.py"))
    missing = [str(file) for file, _ in files if not file.is_file()]
    if missing:
        raise RuntimeError(f"parbake: {', '.join(missing)}: not there; the wheel is built from a whole checkout")
    return files


def platform_tag(files: list[Path]) -> str:
    """The oldest manylinux that has every symbol these files ask for. It is read from them, so it is never a wish."""
    machine = os.uname().machine
    newest = (2, 17)
    for file in files:
        try:
            newest = max(newest, glibc(*needs(file.read_bytes()), machine))
        except RuntimeError as error:
            raise RuntimeError(f"parbake: {file.name}: {error}") from error
    return f"manylinux_{newest[0]}_{newest[1]}_{machine}"


# How the dynamic loader is called, and versions that are no numbers: with which glibc they came.
LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
MARKS = {"GLIBC_ABI_DT_RELR": (2, 36)}


def glibc(libraries: set[str], versions: set[str], machine: str) -> tuple[int, ...]:
    """The oldest glibc that has these versions, if these libraries are everywhere."""
    foreign = libraries - SYSTEM - {LOADERS.get(machine)}
    if foreign:
        raise RuntimeError(f"needs {', '.join(sorted(foreign))}, which no manylinux promises")
    newest = (2, 0)
    for version in versions:
        if version.startswith("GLIBC_2."):
            newest = max(newest, tuple(int(part) for part in version.removeprefix("GLIBC_").split(".")[:2]))
        elif version in MARKS:
            newest = max(newest, MARKS[version])
        elif version.startswith("GLIBC_"):
            raise RuntimeError(f"asks for {version}, and nobody said which glibc has it")
    return newest


def needs(elf: bytes) -> tuple[set[str], set[str]]:
    """Libraries that a 64-bit little-endian ELF file needs, and the symbol versions that it asks of them."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise RuntimeError("not a 64-bit little-endian ELF file")
    at, size, count = struct.unpack_from("<Q", elf, 32)[0], *struct.unpack_from("<HH", elf, 54)
    segments = [struct.unpack_from("<IIQQQQQQ", elf, at + i * size) for i in range(count)]

    def offset(address: int) -> int:
        for kind, _, start, virtual, _, length, _, _ in segments:
            if kind == 1 and virtual <= address < virtual + length:
                return start + address - virtual
        raise RuntimeError("an address outside every segment")

    dynamic = [(start, length) for kind, _, start, _, _, length, _, _ in segments if kind == 2]
    entries: list[tuple[int, int]] = []
    for start, length in dynamic:
        entries += struct.iter_unpack("<QQ", elf[start : start + length - length % 16])
    facts = dict(entries)
    if 5 not in facts:
        return set(), set()
    strings = offset(facts[5])

    def string(index: int) -> str:
        start = strings + index
        return elf[start : elf.index(b"\0", start)].decode()

    libraries = {string(value) for tag, value in entries if tag == 1}
    versions = set()
    # Verneed: one record a library, each with a chain of records, one a version.
    record = offset(facts[0x6FFFFFFE]) if 0x6FFFFFFE in facts else 0
    for _ in range(facts.get(0x6FFFFFFF, 0)):
        _, count, _, first, following = struct.unpack_from("<HHIII", elf, record)
        auxiliary = record + first
        for _ in range(count):
            _, _, _, name, step = struct.unpack_from("<IHHII", elf, auxiliary)
            versions.add(string(name))
            auxiliary += step
        record += following
    return libraries, versions
