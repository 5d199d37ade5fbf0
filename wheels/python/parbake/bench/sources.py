"""The facts of an op that a check needs: its float64 reference and what may be off by how much.

In a checkout they are `kernels/<family>/<op>/reference.py` and `generated-manifest/ops.json`; a wheel has copies in
`parbake/bench/facts`.
"""

import importlib.util
import json
import os
from functools import lru_cache
from pathlib import Path

from parbake._error import Error

PACKED = Path(__file__).resolve().parent / "facts"


def kernels():
    """The kernel folder of a checkout: the one that is set, that of an editable install, or the one around this file."""
    named = os.environ.get("PARBAKE_KERNELS")
    if named:
        return Path(named)
    try:
        from parbake._paths import KERNELS
    except ImportError:
        KERNELS = None
    return Path(KERNELS) if KERNELS else Path(__file__).resolve().parents[4] / "kernels"


def _file(packed, checkout):
    for path in (PACKED / packed, kernels() / checkout):
        if path.is_file():
            return path
    raise Error(
        f"a benchmark checks its results, and has nothing to check them against\n  expected: {PACKED / packed}\n"
        f"  or: {kernels() / checkout}\n  help: install the wheel `parbake` again, or set PARBAKE_KERNELS to a checkout's"
    )


@lru_cache(maxsize=1)
def _ops():
    document = json.loads(_file("ops.json", "../generated-manifest/ops.json").read_text(encoding="utf-8"))
    return {f"{row['op']['family']}/{row['op']['name']}": row["op"] for row in document["ops"]}


def op_of(function):
    """The op `family/name` behind a public function; None if there is none of that name."""
    for path, op in _ops().items():
        peers = [peer["name"].rpartition(".")[2] for peer in op["peers"]]
        if function in (op["name"], *peers, *op.get("api", ())):
            return path
    return None


def definition(path):
    """What op.toml says of `family/name`."""
    return _ops()[path]


def axes_of(uri):
    """Op, axis values and tactic that a URI stands for."""
    name, *parts = uri.split("-")
    op = next(o for o in _ops().values() if o["name"] == name)
    axes, tactics = op["axis"], op["tactic"]
    values = {a["name"]: p.removeprefix(a["prefix"]) for a, p in zip(axes, parts)}
    tactic = {t["name"]: int(p.removeprefix(t["prefix"])) for t, p in zip(tactics, parts[len(axes) :])}
    return name, values, tactic


@lru_cache(maxsize=None)
def reference(path):
    """The function `run` of an op's reference."""
    name = path.rpartition("/")[2]
    file = _file(f"{name}.py", f"{path}/reference.py")
    spec = importlib.util.spec_from_file_location(f"parbake_reference_{name}", file)
    module = importlib.util.module_from_spec(spec)
    # A reference is read, not compiled beside its kernel.
    source = file.read_text(encoding="utf-8")
    exec(compile(source, str(file), "exec"), module.__dict__)
    return module.run
