"""A place of its own for a test of wheels: environments, what they run, and the count of what was checked."""

import json
import os
import pathlib
import subprocess
import sys

REPO = pathlib.Path(__file__).resolve().parents[2]
COUNT = {"passed": 0, "failed": 0, "skipped": 0}


def verdict(ok, what, otherwise=""):
    """One line a check; what was seen instead, if it does not hold."""
    COUNT["passed" if ok else "failed"] += 1
    print(f"{'ok  ' if ok else 'FAIL'} {what}" + ("" if ok else f"\n     {otherwise}"), flush=True)
    return ok


def skip(needs):
    COUNT["skipped"] += 1
    print(f"skipped: needs {needs}", flush=True)


def figure(what, value):
    print(f"     {what}: {value}", flush=True)


def run(words, env=None, **how):
    """Runs a program; what it printed comes back as text."""
    words = [str(word) for word in words]
    how = {"capture_output": True, "text": True, "timeout": 900, **how}
    return subprocess.run(words, env=env, check=False, **how)


def must(words, env=None, **how):
    done = run(words, env, **how)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done


class Environment:
    """A virtual environment below a folder, and programs in it that see nothing of this process's settings."""

    def __init__(self, folder):
        self.root = folder
        must([sys.executable, "-m", "venv", folder])
        self.python = folder / "bin/python"
        self.temporary = folder.parent / f"{folder.name}-tmp"
        self.temporary.mkdir()
        self.temporary.chmod(0o1777)
        self.packages = pathlib.Path(self.ask("import sysconfig; print(sysconfig.get_path('purelib'))"))

    def bare(self, **settings):
        """An environment without HOME and PARBAKE_…; compilers are found by PATH."""
        return {"PATH": os.environ["PATH"], "TMPDIR": str(self.temporary), **settings}

    def ask(self, code, **settings):
        return must([self.python, "-c", code], self.bare(**settings)).stdout.strip()

    def pip(self, *words, **how):
        # pip needs its own settings (an index, certificates) and its cache.
        env = {k: v for k, v in os.environ.items() if not k.startswith("PARBAKE_")} | how.pop("settings", {})
        return run([self.python, "-m", "pip", "--disable-pip-version-check", *words], env, **how)

    def install(self, *words, **how):
        done = self.pip("install", "--quiet", *words, **how)
        if done.returncode:
            raise SystemExit(f"pip install {' '.join(map(str, words))}:\n{done.stdout}{done.stderr}")

    def call(self, env=None, prefix=(), **how):
        """Calls rmsnorm on arrays of numpy: what came of it."""
        done = run([*prefix, self.python, "-c", CALL], env or self.bare(PARBAKE_JIT="off"), **how)
        lines = done.stdout.splitlines()
        return json.loads(lines[-1]) if lines else {"error": done.stderr}

    def listing(self):
        """Every file, with its size and time, except what Python caches for itself."""
        files = (p for p in sorted(self.root.rglob("*")) if "__pycache__" not in p.parts)
        return {str(p.relative_to(self.root)): (s.st_size, s.st_mtime_ns) for p in files if not p.is_dir() for s in [p.lstat()]}


CALL = r"""
import json, sys, time
begin = time.perf_counter()
import parbake
imported = time.perf_counter()
import numpy as np
x = np.random.default_rng(0).standard_normal((4, 256)).astype(np.float32)
w = np.linspace(0.5, 1.5, 256, dtype=np.float32)
wide = x.astype(np.float64)
want = wide / np.sqrt((wide * wide).mean(axis=1, keepdims=True) + 1e-6) * w
try:
    start = time.perf_counter()
    got = parbake.rmsnorm(x, w, target="host")
    first = time.perf_counter()
    parbake.rmsnorm(x, w, target="host")
    second = time.perf_counter()
    ratio = got / want
    print(json.dumps({
        "ok": bool(np.allclose(got, want, rtol=1e-5, atol=1e-6)), "ratio": float(np.median(ratio)),
        "import_ms": (imported - begin) * 1e3, "first_ms": (first - start) * 1e3, "second_ms": (second - first) * 1e3,
        "tvm_ffi": sys.modules["tvm_ffi"].__version__, "file": parbake.__file__,
    }))
except Exception as error:
    kind = type(error)
    print(json.dumps({"ok": False, "kind": f"{kind.__module__}.{kind.__qualname__}", "error": str(error)}))
"""
