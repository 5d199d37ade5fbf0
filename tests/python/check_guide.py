"""The examples of the guides and of the docstrings run, and give what they say."""

import doctest
import json
import os
import re
import subprocess
import sys

from harness import CHECKOUT, Setup, Skip, check, missing

import parbake
from parbake._ops import FUNCTIONS, WRAPPERS


def on_the_device(text):
    """Examples are written for a GPU. Without one they run on the host target, which is what they show otherwise."""
    if Setup.device == "cuda":
        return text
    text = text.replace('device="cuda"', 'device="cpu"')
    calls = rf"(parbake\.(?:\w+\.)?(?:{'|'.join([*FUNCTIONS, *WRAPPERS])})\((?:[^()]|\([^()]*\))*)\)"
    return re.sub(calls, lambda m: m[0] if "target=" in m[0] else m[1] + ', target="host")', text)


def run(name, text, names):
    failures = []
    example = doctest.DocTestParser().get_doctest(on_the_device(text), names, name, name, 0)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    runner = doctest.DocTestRunner(optionflags=flags, verbose=False)
    runner.run(example, out=failures.append, clear_globs=False)
    assert not failures, "".join(failures)


@check("tvm_ffi", "torch")
def docstrings():
    """On the host target those of one family: every other function is a kernel to compile, and large for a CPU."""
    ops = json.loads((CHECKOUT / "generated-manifest/ops.json").read_text(encoding="utf-8"))["ops"]
    only_gpu = {entry["op"]["name"] for entry in ops if not entry["op"].get("host", False)}
    for name in parbake.__all__:
        if Setup.device == "cpu" and FUNCTIONS.get(name, ("norm",))[0] != "norm":
            continue
        if Setup.device == "cpu" and name in only_gpu:
            print(f"skipped: needs a GPU (the example of {name})")
            continue
        value = getattr(parbake, name)
        text = getattr(value, "__doc__", None) or ""
        if ">>>" in text and name != "prepare":
            run(name, text, {"parbake": parbake})


@check("tvm_ffi", "torch")
def the_example_serves():
    """The tokens of a whole model, prefill and decode, are those of PyTorch."""
    example("serve")


@check("tvm_ffi", "torch")
def the_example_has_experts():
    """A layer of experts, router and norm among it, is that of float64."""
    example("moe_layer")


def example(name):
    words = [sys.executable, CHECKOUT / f"examples/serve/{name}.py", "--device", Setup.device]
    path = os.pathsep.join(p for p in sys.path if p)
    ran = subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    print(ran.stdout, end="")


@check("tvm_ffi", "torch")
def the_guide():
    follow("python", 6)


@check("tvm_ffi", "torch")
def the_guide_of_products():
    follow("gemm", 1)


@check("tvm_ffi", "torch")
def the_guide_of_experts():
    follow("moe", 1)


def follow(page, least):
    """Blocks run in order, with the names of those before. A block says what it needs after the fence."""
    file = f"docs/{page}.md"
    blocks = re.findall(r"^```python( [\w ,]+)?\n(.*?)^```", (CHECKOUT / file).read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) >= least, "the page's examples were not found"
    names, needed = {}, []
    for needs, text in blocks:
        lacks = [m for m in map(missing, needs.split()) if m]
        needed += lacks
        if lacks:
            continue
        if ">>>" in text:
            run(file, text, names)
        else:
            exec(compile(on_the_device(text), file, "exec"), names)
    if needed:
        raise Skip(f"{', '.join(sorted(set(needed)))}, for {len(needed)} of {len(blocks)} examples; the others are right")
