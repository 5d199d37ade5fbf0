"""PARBAKE_RECORD: what a program in Python calls is written down, and `parbake lock` makes a lock of it."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from harness import Skip, check

import parbake

PROGRAM = """
import numpy, parbake
x, weight = numpy.ones((3, 64), numpy.float32), numpy.ones(64, numpy.float32)
for _ in range(3):
    parbake.rmsnorm(x, weight, target="host")
parbake.gemma_rmsnorm(x, weight, target="host")
try:
    parbake.rmsnorm(x.astype(numpy.float64), weight, target="host")
except TypeError:
    pass
half = x.astype(numpy.float16)
parbake.fused_add_rmsnorm(half, half.copy(), weight.astype(numpy.float16), target="host")
"""


def command():
    """The command that belongs to the library: beside it in a build, in the environment of an installed package."""
    built = pathlib.Path(os.environ["PARBAKE_LIBRARY"]).parent if "PARBAKE_LIBRARY" in os.environ else None
    for folder in filter(None, (built, pathlib.Path(sys.executable).parent)):
        if (folder / "parbake").exists():
            return str(folder / "parbake")
    raise Skip("the command (cargo build -p parbake-cli)")


def ran(words, **settings):
    paths = [os.path.dirname(os.path.dirname(parbake.__file__)), os.path.dirname(__file__)]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(paths), **settings)
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def named(specs):
    """Specs as recordings and locks name them, in one order."""
    fields = ("spec_id", "op", "axes", "tactic")
    return sorted([spec[field] for field in fields] for spec in specs)


@check("tvm_ffi", "host")
def what_is_called_is_recorded_once_and_locked():
    parbake_command = command()
    with tempfile.TemporaryDirectory() as folder:
        calls = pathlib.Path(folder) / "calls.jsonl"
        ran([sys.executable, "-c", PROGRAM], PARBAKE_RECORD=str(calls))
        records = [json.loads(line) for line in calls.read_text().splitlines()]
        lock = json.loads(ran([parbake_command, "lock", str(calls), "--json"]))
    # `gemma_rmsnorm` is the same kernel with another scalar, and what was refused asked for none.
    asked = [(r["op"], dict(r["axes"])["dtype"], r["target"]) for r in records]
    assert asked == [("rmsnorm", "f32", "host"), ("fused_add_rmsnorm", "f16", "host")], records
    for record in records:
        assert record["from"] in ("bundle", "store", "jit") and record["library"] == parbake.__version__, record
        # The identity is the one of these values, as the package itself says.
        why = parbake.explain(record["op"], **dict(record["axes"]), **dict(record["tactic"]), target="host")
        assert why.identities["spec_id"]["digest"] == record["spec_id"], (why.identities, record)
    assert named(lock["specs"]) == named(records) and lock["targets"] == ["host"], lock
