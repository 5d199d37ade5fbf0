"""Many threads at once; a thread of Python runs on while a kernel is compiled."""

import os
import subprocess
import sys
import tempfile
import threading

import numpy
from harness import Numpy, Torch, check, expect_near, norm, random

import parbake


def alone(program, **settings):
    """What a program prints in a process of its own, with a workspace that nobody used."""
    with tempfile.TemporaryDirectory() as workspace:
        paths = [os.path.dirname(os.path.dirname(parbake.__file__)), os.path.dirname(__file__)]
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(paths), PARBAKE_WORKSPACE=workspace, **settings)
        ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def hammer(framework, threads=16, calls=625):
    """Every thread calls with numbers of its own and looks at each result."""
    rows = 2
    findings = []

    def work(seed):
        try:
            x, weight = random((rows, 128), "f32", seed), random((128,), "f32", seed + 1)
            expected = norm(x, weight)
            a, w = framework.make(x, "f32"), framework.make(weight, "f32")
            for i in range(calls):
                if i % 2:
                    out = parbake.rmsnorm(a, w, target=framework.target)
                else:
                    out = framework.make(x * numpy.nan, "f32")
                    parbake.rmsnorm(a, w, out=out, target=framework.target)
                if i % 25 < 2:
                    expect_near(framework.read(out), expected, "f32")
        except Exception as error:
            findings.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=300)
    assert not any(worker.is_alive() for worker in workers), "a deadlock"
    assert not findings, findings[0]


@check("tvm_ffi", "host")
def ten_thousand_calls_from_sixteen_threads_numpy():
    hammer(Numpy())


@check("tvm_ffi", "torch")
def ten_thousand_calls_from_sixteen_threads_torch():
    hammer(Torch())


@check("tvm_ffi", "host")
def threads_that_come_first_together_are_served_while_one_compiles():
    """All are right, the kernel is compiled once, and Python runs on meanwhile."""
    said = alone(
        "import sys, threading, time\n"
        "from harness import Numpy\n"
        "import check_threads, numpy, parbake\n"
        "import parbake._load; parbake._load.module()\n"
        "gap = [0.0]; done = threading.Event()\n"
        "def tick():\n"
        "    last = time.perf_counter()\n"
        "    while not done.is_set():\n"
        "        time.sleep(0.001); now = time.perf_counter(); gap[0] = max(gap[0], now - last); last = now\n"
        "ticker = threading.Thread(target=tick); ticker.start()\n"
        "began = time.perf_counter()\n"
        "check_threads.hammer(Numpy(), calls=4)\n"
        "took = time.perf_counter() - began; done.set(); ticker.join()\n"
        "print(took, gap[0])\n"
    )
    took, gap = map(float, said.split())
    print(f"  first calls with a compilation: {took:.2f} s; the longest time Python stood still: {gap * 1e3:.0f} ms")
    assert gap < max(0.25 * took, 0.3)


@check("tvm_ffi", "torch")
def functions_are_there_before_any_fast_path_is_taken():
    """One thread stands between two look-ups of the first call; what the others call must not be None."""
    said = alone(
        "import threading, time, torch, parbake\n"
        "from parbake import _load\n"
        "module, looked, inside, go = _load.module(), [], threading.Event(), threading.Event()\n"
        "class Slow:\n"
        "    def get_function(self, name):\n"
        "        looked.append(name)\n"
        "        if len(looked) == 2: inside.set(); go.wait(30)\n"
        "        return module.get_function(name)\n"
        "_load.module = Slow\n"
        "said = []\n"
        "def work(call):\n"
        "    try: call()\n"
        "    except Exception as error: said.append((type(error).__name__, 'device' in str(error)))\n"
        "x, r, w = torch.ones(2, 64), torch.ones(2, 64), torch.ones(64)\n"
        "calls = [lambda: parbake.rmsnorm(x, w), lambda: parbake.fused_add_rmsnorm(x, r, w)]\n"
        "first = threading.Thread(target=work, args=(calls[0],)); first.start(); assert inside.wait(30)\n"
        "threads = [first]\n"
        "for _ in range(2):\n"
        "    more = [threading.Thread(target=work, args=(call,)) for call in calls]\n"
        "    for thread in more: thread.start()\n"
        "    time.sleep(0.2); threads += more\n"
        "go.set()\n"
        "for thread in threads: thread.join(60)\n"
        "print(sorted(set(said)), len(said), len(looked) == len(set(looked)))\n"
    )
    assert said == "[('ValueError', True)] 5 True", said


@check("tvm_ffi", "host")
def two_ops_are_called_first_together():
    said = alone(
        "import threading\n"
        "from harness import Numpy, expect_near, norm, random\n"
        "import parbake\n"
        "f, start, good = Numpy(), threading.Barrier(16), []\n"
        "x, w = random((3, 128), 'f32', 1), random((128,), 'f32', 2)\n"
        "def work(number):\n"
        "    a, b, c = f.make(x, 'f32'), f.make(x, 'f32'), f.make(w, 'f32'); start.wait()\n"
        "    if number % 2: expect_near(f.read(parbake.rmsnorm(a, c, target='host')), norm(x, w), 'f32')\n"
        "    else: parbake.fused_add_rmsnorm(a, b, c, target='host'); expect_near(f.read(b), 2 * x, 'f32', 'fused_add_rmsnorm')\n"
        "    good.append(number)\n"
        "threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join(120)\n"
        "print(len(good))\n"
    )
    assert said == "16", said


@check("tvm_ffi", "host")
def calls_go_on_while_another_kernel_is_compiled():
    said = alone(
        "import threading, time\n"
        "from harness import Numpy, random\n"
        "import check_threads, parbake\n"
        "f = Numpy(); x, w = f.make(random((2, 128), 'f32', 1), 'f32'), f.make(random((128,), 'f32', 2), 'f32')\n"
        "parbake.rmsnorm(x, w, target='host')\n"
        "h, g = f.make(random((2, 128), 'f16', 1), 'f16'), f.make(random((128,), 'f16', 2), 'f16')\n"
        "one = threading.Thread(target=parbake.rmsnorm, args=(h, g), kwargs=dict(target='host')); one.start()\n"
        "calls = 0\n"
        "while one.is_alive(): parbake.rmsnorm(x, w, target='host'); calls += 1\n"
        "check_threads.hammer(f, threads=4, calls=50); print(calls)\n"
    )
    assert int(said) > 20, f"{said} calls while a kernel was compiled"
