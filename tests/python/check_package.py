"""What is public agrees everywhere; what an import costs."""

import ast
import importlib.util
import inspect
import os
import re
import subprocess
import sys

from harness import CHECKOUT, check, manifest


def functions(by_hand=True):
    """Public functions and their families, by what op.toml says; without those written by hand if so."""
    found = {}
    for op in manifest():
        peers = [p for p in op["peers"] if p.get("arguments")]
        names = [p["name"].rpartition(".")[2] for p in peers]
        written = op.get("api", [])
        own = [] if op["name"] in written else [op["name"]]
        found |= {name: op["family"] for name in [*names, *own, *(written if by_hand else [])]}
    return found


def stub(name):
    """The public names that a stub defines or brings, and its function definitions."""
    import parbake

    text = open(os.path.join(os.path.dirname(parbake.__file__), f"{name}.pyi"), encoding="utf-8").read()
    names, definitions = set(), {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            definitions[node.name] = node
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname for alias in node.names if alias.asname}
        elif isinstance(node, ast.AnnAssign):
            names.add(node.target.id)
    return names, definitions


@check()
def names_agree():
    import parbake

    expected = functions()
    families = set(expected.values())
    lists = re.findall(r"(?:TAKEN|WRITTEN): .*?= \[(.*?)^\];", read("codegen/model/function.rs"), re.S | re.M)
    own = set(re.findall(r'"(\w+)"', " ".join(lists)))
    public = set(dir(parbake)) - {"__version__"}
    # They import PyTorch, which may not be there.
    hidden = set() if importlib.util.find_spec("torch") else {*parbake._ops.WRAPPERS, "comm", "fused_moe"}
    assert public == set(expected) | families | own, public ^ (set(expected) | families | own)
    assert public <= set(parbake.__all__) and all(hasattr(parbake, name) for name in public - hidden)
    assert stub("__init__")[0] == public | {"__version__"}, stub("__init__")[0] ^ public
    for family in families:
        module = getattr(parbake, family)
        mine = {name for name, f in expected.items() if f == family}
        assert set(stub(family)[1]) == mine
        there = {n for n, v in vars(module).items() if inspect.isfunction(v) and not n.startswith("_")}
        assert {n for n in there if getattr(module, n).__module__ == module.__name__} == mine
        assert all(getattr(module, n).__module__ == "parbake._arrays" for n in there - mine), there - mine
        written = {n for n, f in parbake._ops.WRAPPERS.items() if f == family}
        assert stub(family)[0] - mine - {"ScoreVariant"} == written, stub(family)[0] ^ mine
        assert all(getattr(module, n) is getattr(parbake, n) for n in mine | written - hidden)
    page = re.findall(r"^parbake\.(\w+)\(", read("docs/reference/ops.md"), re.M)
    assert sorted(page) == sorted(expected), page


@check()
def exports_agree():
    from parbake import _load

    ops = {op["name"] for op in manifest()}
    with open(_load.path(), "rb") as library:
        exported = set(re.findall(rb"\0__tvm_ffi_(?!_)(\w+)(?=\0)", library.read()))
    assert {name.decode() for name in exported} == ops, exported
    loaded = _load.library()
    for op in ops:
        assert all(hasattr(loaded, f"__tvm_ffi{part}_{op}") for part in ("", "__metadata", "__doc"))


@check()
def signatures_are_those_of_the_stubs_and_of_the_peer():
    import parbake

    for name, family in functions().items():
        signature = inspect.signature(getattr(parbake, name))
        arguments = stub(family)[1][name].args
        assert [a.arg for a in (*arguments.args, *arguments.kwonlyargs)] == list(signature.parameters)
        defaults = [ast.literal_eval(d) for d in (*arguments.defaults, *arguments.kw_defaults)]
        assert defaults == [p.default for p in signature.parameters.values() if p.default is not p.empty]
        assert signature.parameters["target"].kind is inspect.Parameter.KEYWORD_ONLY
    expected = {
        "rmsnorm": "(input, weight, eps=1e-06, out=None, enable_pdl=None, *, target=None)",
        "gemma_rmsnorm": "(input, weight, eps=1e-06, out=None, enable_pdl=None, *, target=None)",
        "fused_add_rmsnorm": "(input, residual, weight, eps=1e-06, enable_pdl=None, *, target=None)",
        "gemma_fused_add_rmsnorm": "(input, residual, weight, eps=1e-06, enable_pdl=None, *, target=None)",
    }
    for name, text in expected.items():
        assert str(inspect.signature(getattr(parbake, name))) == text


@check("flashinfer")
def signatures_are_those_of_flashinfer():
    import importlib

    import parbake

    for op in manifest():
        for peer in (p for p in op["peers"] if p["name"].startswith("flashinfer.") and p.get("arguments")):
            module, _, name = peer["name"].rpartition(".")
            theirs = inspect.signature(getattr(importlib.import_module(module), name)).parameters.values()
            ours = list(inspect.signature(getattr(parbake, name)).parameters.values())[:-1]
            assert [(p.name, p.default) for p in ours] == [(p.name, p.default) for p in theirs], peer["name"]


@check()
def functions_are_documented():
    import parbake

    for name in functions():
        function = getattr(parbake, name)
        for argument in inspect.signature(function).parameters:
            assert f"\n    {argument}: " in inspect.cleandoc(function.__doc__), (name, argument)
        for part in ("Returns:", "Raises:", "Example:") if name in functions(by_hand=False) else ("Returns:",):
            assert part in function.__doc__, (name, part)


@check()
def an_import_costs_little_and_brings_nothing():
    import parbake

    environment = dict(os.environ, PYTHONPATH=os.path.dirname(os.path.dirname(parbake.__file__)))
    heavy = "torch numpy tvm_ffi jax ctypes json typing inspect threading"
    program = f"import sys, parbake; print([m for m in '{heavy}'.split() if m in sys.modules])"
    said = subprocess.run([sys.executable, "-S", "-c", program], env=environment, capture_output=True, text=True)
    assert said.stdout.strip() == "[]", said

    def cost(text):
        """Processor time of a process: other programs do not count."""
        process = subprocess.Popen([sys.executable, "-S", "-c", text], env=environment)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = status
        assert status == 0
        return (used.ru_utime + used.ru_stime) * 1e3

    pairs = [(cost("pass"), cost("import parbake")) for _ in range(12)]
    bare, with_package = (min(times) for times in zip(*pairs))
    print(f"  import parbake: {with_package - bare:.1f} ms over {bare:.1f} ms of bare Python")
    assert with_package - bare < 40


@check("tvm_ffi", "host")
def the_first_call_serves_functions_that_were_imported_before():
    program = (
        "from parbake import rmsnorm; import numpy, sys\n"
        "assert 'tvm_ffi' not in sys.modules\n"
        "x, w = numpy.ones((2, 64), numpy.float32), numpy.ones(64, numpy.float32)\n"
        "for _ in range(2): assert abs(rmsnorm(x, w, target='host') - 1).max() < 1e-5\n"
    )
    import parbake

    environment = dict(os.environ, PYTHONPATH=os.path.dirname(os.path.dirname(parbake.__file__)))
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


@check()
def names_of_ops_and_arguments_hide_nothing():
    """Beside its functions a module has names that no op, function or argument leads to."""
    import parbake

    for family in set(functions().values()):
        module = getattr(parbake, family)
        ops = [op for op in manifest() if op["family"] == family]
        public = {name for name, f in functions().items() if f == family}
        # A function that one of the same name calls, which is written by hand, is ours all the same.
        mine = {name for name, f in functions(by_hand=False).items() if f == family}
        mine |= {f"_{op['name']}" for op in ops if op["name"] in op.get("api", [])}
        lent = ("parbake._arrays", "parbake._variant")
        helpers = {n for n, v in vars(module).items() if getattr(v, "__module__", None) in lent}
        others = {n for n in vars(module) if not n.startswith("__")} - mine - public - helpers
        made = {f"_traced_{n}" for n in mine} | {f"_ROW_{n.upper()}" for n in mine}
        made |= {f"_native_{op['name']}" for op in ops}
        choices = {a.get("scalar") for op in ops for a in op["axis"]}
        made |= {f"_choices_{op['name']}_{i}" for op in ops for i, s in enumerate(op["scalar"]) if s["name"] in choices}
        assert made <= others, made - others
        kinds = ("_traced_", "_ROW_", "_native_", "_choices_")
        assert not [n for n in others - made if not n.startswith("_") or n.startswith(kinds)]
        locals = {n for name in mine for n in getattr(module, f"_traced_{name}").__code__.co_varnames}
        arguments = {a for name in mine for a in inspect.signature(getattr(module, name)).parameters}
        assert all(n.startswith("_") for n in locals - arguments), locals - arguments


@check()
def a_library_that_is_open_already_is_told():
    from check_threads import alone

    program = (
        "import ctypes, os, sys, warnings\n"
        "from parbake import _load, supports\n"
        "sys.path[:] = [p for p in sys.path if not os.path.isdir(os.path.join(p, 'parbake_bundles'))]\n"
        "workspace = os.environ['PARBAKE_WORKSPACE']\n"
        "if {bundles}:\n"
        "    sys.path.append(workspace); os.makedirs(os.path.join(workspace, 'parbake_bundles'))\n"
        "if {opened}:\n"
        "    c, handle, error = ctypes.CDLL(_load.path()), ctypes.c_void_p(), ctypes.c_void_p()\n"
        "    assert c.parbake_default(ctypes.byref(handle), ctypes.byref(error)) == 0\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always'); supports('rmsnorm', dtype='f32', target='host')\n"
        "print([(w.category.__name__, os.path.join(workspace, 'parbake_bundles') in str(w.message)) for w in caught])\n"
    )
    for bundles in (True, False):
        for opened in (True, False):
            said = alone(program.format(bundles=bundles, opened=opened), PARBAKE_KERNELS=str(CHECKOUT / "kernels"))
            assert said == ("[('RuntimeWarning', True)]" if bundles and opened else "[]"), (bundles, opened, said)


@check()
def a_library_of_another_version_is_refused():
    import parbake
    from parbake import _load

    kept = _load.VERSION
    _load.VERSION = "99.0.0"
    try:
        _load._load()
    except parbake.Error as error:
        assert "99.0.0" in str(error) and kept in str(error), error
    else:
        raise AssertionError("it was accepted")
    finally:
        _load.VERSION = kept


def read(path):
    return (CHECKOUT / path).read_text(encoding="utf-8")
