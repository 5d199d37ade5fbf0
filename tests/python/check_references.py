"""`reference.py` of each op gives what the kernel gives, on the host target.

The command line runs each op on data that mean something to it and compares with `reference.rs`; a dump of that call has
its inputs and what the kernel wrote. The same inputs go to `reference.py`. So the three agree, or this fails.
"""

import importlib.util
import inspect
import itertools
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile

from harness import CHECKOUT, Skip, check, manifest

# How the format of the dumps calls what PyTorch calls otherwise.
TYPES = {
    "F16": "float16", "BF16": "bfloat16", "F32": "float32", "I32": "int32", "I64": "int64", "U8": "uint8",
    "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}
NAMES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
# Combinations of axes that are run of an op; tests/utilities.rs runs all of them against reference.rs.
MOST = 2
# No tensor that is computed here is larger, in elements: a CPU plays every thread of the kernel.
LARGEST = 1 << 21


def program():
    """The command line that was built with the library, or the installed one."""
    library = os.environ.get("PARBAKE_LIBRARY")
    beside = pathlib.Path(library).parent / "parbake" if library else None
    found = str(beside) if beside and beside.is_file() else shutil.which("parbake")
    if not found:
        raise Skip("the command `parbake`, beside the library or in PATH")
    return found


def combinations(op):
    """Values of the axes: as many combinations as the longest axis has values, up to a few."""
    axes = op["axis"]
    count = min(MOST, max((len(a["values"]) for a in axes), default=1))
    picked = [[a["values"][i % len(a["values"])]["value"] for a in axes] for i in range(count)]
    return [dict(zip((a["name"] for a in axes), values)) for values in picked]


def asked(op, axes):
    """The values that a person gives: what follows from an extent or a scalar is not among them."""
    own = {a["name"] for a in op["axis"] if not a.get("dim") and not a.get("scalar")}
    return [f"{name}={value}" for name, value in axes.items() if name in own]


def sizes(op, axes, example):
    """Extents to try: what an op asks of its extents together is for it to say.

    First those that are not constant are small, then only those that come first in a tensor, then none.
    """
    constants, tensors = op["trace"].get("constants", {}), op["tensor"]
    first = {t["shape"][0] for t in tensors if t["shape"]}
    own = {a["dim"]: int(axes[a["name"]]) for a in op["axis"] if a.get("dim")}
    small = lambda d, n, may: min(n, 5) if may and d not in constants else n  # noqa: E731
    found = [{d: small(d, n, may(d)) for d, n in example.items()} | own
             for may in (lambda d: True, lambda d: d in first, lambda d: False)]
    return [shape for shape in found if all(elements(t, shape) <= LARGEST for t in tensors)]


def elements(tensor, shape):
    """About how many a tensor has: by its plain symbols and numbers."""
    product = 1
    for extent in tensor["shape"]:
        product *= max(shape.get(extent, 1), 1)
    return product


def chosen(op, axes):
    """Scalars that choose an axis' value."""
    found = []
    for axis in op["axis"]:
        if axis.get("scalar"):
            place = [v["value"] for v in axis["values"]].index(axes[axis["name"]])
            found += ["--scalar", f"{axis['scalar']}={place}"]
    return found


def presences(op):
    """Which optional tensors to give: those that the example gives, and all."""
    optional = [t["name"] for t in op["tensor"] if t.get("optional")]
    return [[], optional] if optional else [[]]


def run(command, op, axes, example, given, folder):
    """The dump of one call; why not if the combination does not exist, or no example's extents go with it."""
    said = ""
    for shape in sizes(op, axes, example):
        words = [w for name, n in shape.items() for w in ("--shape", f"{name}={n}")]
        words += [w for name in given for w in ("--with", name)]
        words = [command, "run", f"{op['family']}/{op['name']}", *asked(op, axes), *chosen(op, axes), *words, "--target", "host"]
        settings = dict(os.environ, PARBAKE_LOG="10", PARBAKE_LOG_DEST=str(folder / "log"), PARBAKE_DUMPS=str(folder / "dumps"))
        # The program calls again and again, to time it; the first call is enough.
        settings["PARBAKE_DUMP_COUNT"] = "1"
        done = subprocess.run(words, env=settings, capture_output=True, text=True, timeout=300)
        if done.returncode == 0:
            return next(p.parent for p in (folder / "dumps").glob("*/call.json"))
        if "PB-1109" in done.stderr:
            return done.stderr
        said = done.stderr
        # Arguments that do not fit together fit at another size; anything else is a failure.
        if "PB-2001" not in said and "PB-1108" not in said:
            raise AssertionError(f"{' '.join(words)}\n{said}")
    return said


def tensors(path):
    """The tensors of a safetensors file, by name."""
    import torch

    if not path.is_file():
        return {}
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    found = {}
    for name, row in header.items():
        begin, end = (8 + length + at for at in row["data_offsets"])
        kind = getattr(torch, TYPES[row["dtype"]])
        raw = torch.frombuffer(bytearray(data[begin:end]) or bytearray(1), dtype=torch.uint8)[: end - begin]
        found[name] = raw.view(kind).reshape(row["shape"])
    return found


def reference(op):
    path = CHECKOUT / "kernels" / op["family"] / op["name"] / "reference.py"
    spec = importlib.util.spec_from_file_location(f"reference_{op['name']}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.run


def arguments(op, function, call, inputs, axes):
    """What the reference takes by name: inputs that were given, scalars, and what no input says of the outputs."""
    kinds = {s["name"]: s.get("type", "f32") for s in op["scalar"]}
    scalars = {n: float(v) if kinds[n] == "f32" else int(float(v)) for n, v in call["scalars"].items()}
    given = {t["name"] for t in call["tensors"]}
    values = {n: t for n, t in inputs.items() if n in given} | scalars
    takes = inspect.signature(function).parameters
    for name, value in axes.items():
        if name in takes and name not in values and isinstance(takes[name].default, str):
            values[name] = value
    # A reference may have an element type of PyTorch as its default instead: that of the first output.
    import torch

    first = next(t["dtype"] for t in call["tensors"] if t["role"] != "in")
    for name, parameter in takes.items():
        if isinstance(parameter.default, torch.dtype):
            values[name] = getattr(torch, NAMES[first])
    shapes = {t["name"]: t["shape"] for t in call["tensors"]}
    for tensor in op["tensor"]:
        for extent, n in zip(tensor["shape"], shapes.get(tensor["name"], ())):
            if extent in takes and extent not in values:
                values[extent] = n
    return {n: v for n, v in values.items() if n in takes}


def written(op, call):
    """The tensors that the kernel writes, in the order in which a reference returns them."""
    given = {t["name"] for t in call["tensors"]}
    return [(t["name"], t["name"] in given) for t in op["tensor"] if t["role"] != "in"]


@check("torch", "host")
def references_in_python_give_what_kernels_give():
    from parbake.bench import check as verdicts

    command, count, failed = program(), 0, []
    for op in manifest():
        if not op["host"]:
            continue
        function, ran, said = reference(op), 0, ""
        cases = zip(combinations(op), itertools.cycle(op["trace"]["example"]))
        for (axes, example), given in itertools.product(cases, presences(op)):
            with tempfile.TemporaryDirectory() as folder:
                place = run(command, op, axes, example, given, pathlib.Path(folder))
                if isinstance(place, str):
                    said = place
                    continue
                call = json.loads((place / "call.json").read_text())
                inputs, outputs = tensors(place / "inputs.safetensors"), tensors(place / "outputs.safetensors")
            try:
                result = function(**arguments(op, function, call, inputs, axes))
            except Exception as error:  # noqa: BLE001 - every op is looked at
                failed.append(f"{op['name']} {axes}: {type(error).__name__}: {error}")
                continue
            ran += 1
            result = result if isinstance(result, (tuple, list)) else (result,)
            for (name, there), expected in zip(written(op, call), result):
                if not there or expected is None:
                    continue
                got = outputs[name]
                if not got.is_floating_point() and not expected.is_floating_point():
                    # How wide an integer is where no input says it.
                    expected = expected.to(got.dtype)
                bound = verdicts.bound_of(op["tolerance"], expected.dtype)
                verdict = verdicts.compare(got, expected, bound)
                if verdict.why or verdict.wrong:
                    why = verdict.why or f"{verdict.wrong} of {verdict.elements} are off, by up to {verdict.max_abs}"
                    failed.append(f"{op['name']} {axes} {name}: {why}")
        if not ran:
            failed.append(f"{op['name']}: none of its combinations ran\n{said}")
        count += ran
    print(f"  {count} calls of {len(manifest())} ops")
    assert not failed, "\n".join(failed)


@check("torch")
def definitions_stand_alone():
    """The reference of each trace definition runs by itself, and takes and gives what the definition says."""
    import ast

    folder = CHECKOUT / "generated-manifest/definitions"
    files = sorted(folder.glob("*/*.json"))
    assert {f"{op['trace']['op_type']}" for op in manifest()} == {f.parent.name for f in files}
    for file in files:
        definition = json.loads(file.read_text())
        assert (definition["name"], definition["op_type"]) == (file.stem, file.parent.name)
        tree = ast.parse(definition["reference"])
        (run,) = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "run"]
        names = [a.arg for a in run.args.args]
        assert names == list(definition["inputs"]), (file, names)
        assert not set(definition["inputs"]) & set(definition["outputs"]), file
        axes = definition["axes"]
        for tensor in [*definition["inputs"].values(), *definition["outputs"].values()]:
            assert all(extent in axes for extent in tensor["shape"] or []), file
            assert tensor["dtype"] in set(TYPES.values()) - {"uint8"} | {"int8"}, file
        for constraint in definition.get("constraints", []):
            used = {n.id for n in ast.walk(ast.parse(constraint, mode="eval")) if isinstance(n, ast.Name)}
            assert used <= set(axes), (file, constraint)
        space = {}
        exec(compile(tree, str(file), "exec"), space)
        assert callable(space["run"])
