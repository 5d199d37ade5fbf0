"""The benchmark harness. What a GPU does is played here: a clock that launches move on, and records of them."""

import json
import math
import os
import subprocess
import sys
from contextlib import contextmanager

from harness import Skip, check

KERNELS = {"one": [("one", 5.0)], "two": [("first", 3.0), ("second", 4.0)]}


class Played:
    """A device whose clock is moved by launches. A gap of 1 µs lies between two kernels of a graph, 10 µs when eager."""

    kind, l2 = "cuda", 1000

    def __init__(self, *, records="good", captures=True):
        self.now, self.gap, self.log = 100.0, 10.0, []
        self.how, self.captures = records, captures

    def launch(self, kind, scale=1.0):
        def run():
            for name, cost in KERNELS[kind]:
                self.now += self.gap
                self.log.append((round(self.now * 1e3), round((self.now + cost * scale) * 1e3), name))
                self.now += cost * scale

        return run

    @contextmanager
    def work(self):
        yield

    def synchronize(self):
        pass

    def capture(self, launches):
        if not self.captures:
            raise RuntimeError("cannot be captured\nsecond line")
        return launches

    def replay(self, graph):
        self.gap = 1.0
        for launch in graph:
            launch()
        self.gap = 10.0

    def event(self):
        return self.now

    def between(self, begin, end):
        return end - begin

    def records(self, way, work):
        from parbake.bench.cupti import Unavailable

        if self.how == "none" or (self.how == "kineto" and way == "cupti"):
            raise Unavailable("no records here")
        self.log = []
        work()
        log = self.log[:-1] if self.how == "lost" else self.log
        factor = 1000 if self.how == "ticks" else 1
        return sorted((b * factor, e * factor, n) for b, e, n in log)


def near(got, expected):
    assert math.isclose(got, expected, rel_tol=1e-6), (got, expected)


@check()
def records_give_each_launch_its_own_time():
    from parbake.bench.timers import choose

    device = Played()
    timer, refused = choose(device, probe=device.launch("one"))
    assert (timer.way, refused) == ("cupti", {})
    prepared = timer.prepare([device.launch("two", scale) for scale in (1, 2, 3, 10)])
    for _ in range(3):
        prepared.sample()
    facts = prepared.figures.facts()
    assert (facts["timer"], facts["launch"], facts["span"]) == ("cupti", "graph", "span")
    # 3 + 1 + 4, twice, three and ten times the kernels and one gap each.
    assert sorted({round(s, 3) for r in prepared.figures.rounds for s in r}) == [8.0, 15.0, 22.0, 71.0]
    assert facts["n"] % 4 == 0 and len(facts["rounds_us"]) == 3
    near(facts["median_us"], 18.5)
    # A replay has the gap before each launch too.
    near(facts["replay_us"], (8 + 15 + 22 + 71 + 4) / 4)


@check()
def mechanisms_are_taken_in_their_order_and_named():
    from parbake.bench.cupti import Unavailable
    from parbake.bench.timers import choose

    for how, way in (("kineto", "kineto"), ("none", "graph"), ("ticks", "graph"), ("lost", "graph")):
        device = Played(records=how)
        timer, refused = choose(device, probe=device.launch("one"))
        assert timer.way == way and "cupti" in refused, (how, timer.way, refused)
        prepared = timer.prepare([device.launch("one")] * 4)
        prepared.sample()
        assert prepared.figures.facts()["timer"] == way
    device = Played(records="none")
    try:
        choose(device, "cupti", device.launch("one"))
    except Unavailable as why:
        assert "no records here" in str(why)
    else:
        raise AssertionError("a mechanism that is not there was taken")


@check()
def what_cannot_be_captured_is_timed_eagerly_and_says_so():
    from parbake.bench.timers import Timer

    device = Played(captures=False)
    prepared = Timer(device, "cupti").prepare([device.launch("two")] * 4)
    prepared.sample()
    facts = prepared.figures.facts()
    # The sum of the kernels: what lies between eager launches is the CPU.
    assert (facts["launch"], facts["span"], facts["median_us"], facts["replay_us"]) == ("eager", "sum", 7.0, None)
    assert prepared.why_eager == "RuntimeError: cannot be captured"
    prepared = Timer(device, "graph").prepare([device.launch("two")] * 4)
    prepared.sample()
    facts = prepared.figures.facts()
    assert (facts["timer"], facts["launch"], facts["median_us"]) == ("events", "eager", 27.0)


@check()
def records_that_do_not_fit_the_launches_are_refused():
    from parbake.bench.cupti import Unavailable
    from parbake.bench.timers import per_launch

    good = [(1000, 2000, "a"), (3000, 4000, "b"), (5000, 6500, "a"), (7000, 8000, "b")]
    assert per_launch(good, 2, True) == [3.0, 3.0] and per_launch(good, 2, False) == [2.0, 2.5]
    other = [*good[:2], (5000, 6500, "b"), (7000, 8000, "a")]
    for records, launches in (([], 1), (good, 3), (other, 2), ([(0, 5, "a")], 1), ([(5, 5, "a")], 1)):
        try:
            per_launch(records, launches, True)
        except Unavailable:
            continue
        raise AssertionError(records)


@check()
def quantiles_lie_between_samples():
    from parbake.bench.timers import quantile

    near(quantile([1.0, 2.0, 3.0, 4.0], 0.5), 2.5)
    assert (quantile([7.0], 0.9), quantile([1.0, 2.0, 3.0], 1.0), quantile([1.0, 2.0], 0.0)) == (7.0, 3.0, 1.0)


@check("torch")
def records_of_cupti_are_read_where_its_headers_say():
    """Against the C headers, if they and a compiler are here."""
    import ctypes
    import glob
    import shutil
    import tempfile

    from parbake.bench import cupti

    headers = [f for p in sys.path for f in glob.glob(f"{p}/nvidia/cu*/include/cupti_activity.h")]
    if not headers or not shutil.which("cc"):
        raise Skip("the headers of CUPTI and a C compiler")
    program = (
        "#include <stdio.h>\n#include <stddef.h>\n#include <cuda.h>\n#include <cupti.h>\n#define K CUpti_ActivityKernel9\n"
        "int main(){printf(\"%zu %zu %zu %zu %zu %zu %zu %d %d %d %d\", offsetof(K,start), offsetof(K,end), offsetof(K,name),\n"
        "offsetof(CUpti_ActivityMemcpy6,start), offsetof(CUpti_ActivityMemcpy6,end), offsetof(CUpti_ActivityMemset4,start),\n"
        "offsetof(CUpti_ActivityMemset4,end), CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,\n"
        "CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ERROR_MAX_LIMIT_REACHED);}\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        source, out = f"{folder}/layout.c", f"{folder}/layout"
        with open(source, "w", encoding="utf-8") as file:
            file.write(program)
        # The headers of a wheel of CUPTI lack some of CUDA, which Triton brings.
        folders = [os.path.dirname(headers[0])]
        folders += [os.path.dirname(os.path.dirname(f)) for p in sys.path
                    for f in glob.glob(f"{p}/triton/backends/nvidia/include/crt/host_defines.h")]
        includes = [f"-I{f}" for f in folders]
        built = subprocess.run(["cc", *includes, source, "-o", out], capture_output=True, text=True)
        if built.returncode:
            raise Skip(f"headers that compile: {built.stderr.splitlines()[0]}")
        said = [int(n) for n in subprocess.run([out], capture_output=True, text=True).stdout.split()]
    assert said == [16, 24, 104, 16, 24, 16, 24, 10, 1, 2, 12], said
    assert said[:3] == [cupti.START, cupti.END, cupti.NAME] and said[7:] == [*cupti.KINDS, cupti.NO_MORE_RECORDS]
    # A record as the library would lay it down.
    name = ctypes.create_string_buffer(b"kernel")
    record = (ctypes.c_uint64 * 32)()
    place = ctypes.addressof(record)
    ctypes.c_uint32.from_address(place).value = cupti.KERNEL
    record[2], record[3], record[13] = 111, 222, ctypes.addressof(name)
    assert cupti.read(place) == (111, 222, "kernel")
    ctypes.c_uint32.from_address(place).value = cupti.MEMCPY
    assert cupti.read(place) == (111, 222, "memcpy")
    ctypes.c_uint32.from_address(place).value = 46
    assert cupti.read(place) is None


@check("torch")
def a_result_is_right_within_its_bound_and_nothing_else_is():
    import torch

    from parbake.bench.check import bound_of, compare

    ulp, both = {"ulp": 1.0}, {"abs": 1e-6, "rel": 1e-5}
    for dtype in (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2):
        values = torch.tensor([1.0, -2.0, 0.5, 0.0]).to(dtype)
        bits = values.clone().view(torch.uint8 if dtype.itemsize == 1 else torch.int16)
        for step, ok in ((0, True), (1, True), (2, False)):
            off = (bits + torch.tensor([step, 0, 0, 0], dtype=bits.dtype)).view(dtype)
            verdict = compare(off, values, ulp)
            assert verdict.ok is ok and verdict.wrong == (0 if ok else 1), (dtype, step, verdict.facts())
    x = torch.tensor([1.0, 100.0, math.inf, -math.inf])
    assert compare(x, x, both).ok and compare(x * (1 + 1e-5), x, both).ok
    assert not compare(x * (1 + 2e-5), x, both).ok
    # Half a unit of the exact value, and half a unit of the reference's own rounding, are one.
    half = {"abs": 1e-9, "rel": 2.0**-8}
    low = torch.tensor([1.0, 1.0], dtype=torch.bfloat16)
    up = torch.tensor([1.0 + 2.0**-7, 1.0], dtype=torch.bfloat16)
    assert compare(up, low, half).ok and not compare(up + 2.0**-7, low, half).ok
    for bad in (math.nan, math.inf, -math.inf):
        y = x.clone()
        y[0] = bad
        assert not compare(y, x, both).ok and not compare(x, y, both).ok, bad
        json.dumps(compare(y, x, both).facts(), allow_nan=False)
    nan = torch.tensor([math.nan])
    assert not compare(nan, nan, both).ok and not compare(nan.bfloat16(), nan.bfloat16(), ulp).ok
    a = torch.tensor([1, 2, 3], dtype=torch.int32)
    assert compare(a, a, None).ok and not compare(a, a + 1, None).ok and not compare(a, a.long(), None).ok
    assert not compare(a[:2], a, None).ok and not compare(a[:0], a[:0], None).ok
    assert bound_of({"u8": {"abs": 0.0, "rel": 0.0}}, torch.uint8) is None and bound_of({}, torch.int64) is None


@check("torch")
def samplers_are_held_to_their_filter():
    import torch

    from parbake.bench.check import outside

    p = torch.tensor([[0.5, 0.3, 0.2, 0.0]] * 4)
    of = lambda *tokens, **how: outside(torch, torch.tensor(tokens, dtype=torch.int32), p, **how)  # noqa: E731
    assert of(0, 1, 2, 0) == 0 and of(0, 1, 3, 0) == 1 and of(-1, 4, 0, 0) == 2
    assert of(0, 1, 1, 0, top_k=2) == 0 and of(0, 2, 1, 0, top_k=2) == 1
    # The token that crosses p is inside, the one behind it is not.
    assert of(0, 1, 1, 0, top_p=0.6) == 0 and of(0, 2, 1, 0, top_p=0.6) == 1 and of(1, 0, 0, 0, top_p=0.4) == 1
    assert of(0, 1, 1, 0, min_p=0.5) == 0 and of(0, 2, 1, 0, min_p=0.5) == 1
    # More rows than are looked at at once.
    many = torch.tensor([[0.5, 0.5, 0.0]] * 150)
    tokens = torch.zeros(150, dtype=torch.int64)
    tokens[149] = 2
    assert outside(torch, tokens, many) == 1


@check("torch")
def sets_are_distinct_aligned_poisoned_and_cold():
    import torch

    from parbake.bench import buffers, device
    from parbake.bench.workloads import every

    assert buffers.sets_for(100 << 20, 60 << 20) == 3 and buffers.sets_for(1 << 20, 60 << 20) == 180
    assert buffers.sets_for(1, 60 << 20) == buffers.MOST_SETS
    for workload in every():
        workload = workload.reduced()
        maker = buffers.Maker(device.Cpu(), 3, 7)
        workload.inputs(maker)
        sets = maker.sets()
        tensors = [(n, t) for s in sets for n, t in vars(s).items()]
        assert all(t.data_ptr() % 64 == 0 and t.is_contiguous() for _, t in tensors), workload.name
        places = sorted((t.data_ptr(), t.numel() * t.element_size()) for _, t in tensors)
        assert all(a + n <= b for (a, n), (b, _) in zip(places, places[1:])), workload.name
        again = buffers.Maker(device.Cpu(), 3, 7)
        workload.inputs(again)
        for a, b in zip(sets, again.sets()):
            assert all(torch.equal(x.view(torch.uint8), y.view(torch.uint8)) for x, y in zip(vars(a).values(), vars(b).values()))
        size = buffers.size_of_set(workload)
        assert 0 < size <= maker.bytes and workload.bytes() > 0
        assert buffers.need(workload, 60 << 20) >= 3 * size
    out = buffers.Maker(device.Cpu(), 1, 0)
    out.output("out", (3, 5), "bf16")
    assert torch.isnan(out.sets()[0].out).all()


@check("torch")
def names_of_workloads_are_unique_and_their_sizes_those_of_the_tables():
    from parbake.bench.workloads import every

    found = {w.name: w for w in every()}
    assert len(found) == len(every())
    # MB of the tables, by name.
    for name, megabytes in (("U3", 268.44), ("U4", 469.76), ("U5", 88.08), ("U6", 352.32), ("U7", 83.89), ("U8", 83.89),
                            ("U9", 75.5), ("U10", 33.55), ("U11", 89.0), ("U12", 89.0), ("U13", 65.67), ("S1", 0.51), ("S2", 32.83), ("S3", 155.58), ("S4", 16.78)):
        assert abs(found[name].bytes() / 1e6 / megabytes - 1) < 0.1, (name, found[name].bytes())


@check("torch")
def a_ratio_stands_only_beside_checked_rows_of_one_run_and_timer():
    from parbake.bench.harness import shares
    from parbake.bench.table import ratios, text

    def row(backend, us, **more):
        return {"run": "r", "workload": "U3", "op": "norm/x", "shape": {"rows": 1}, "dtype": "bf16", "gpu": "g",
                "backend": backend, "timer": "cupti", "launch": "graph", "median_us": us, "p10_us": us, "p90_us": us,
                "check": {"ok": True, "error": 0.5, "tolerance": "1 ulp", "why": None}} | more

    ours, wrong = row("parbake", 10.0), {"ok": False, "error": None, "tolerance": "exact", "why": "off"}
    assert ratios([ours, row("torch", 20.0), row("triton", 15.0)])[id(ours)] == (1.5, "triton")
    for other in (row("torch", 20.0, timer="events"), row("torch", 20.0, run="s"), row("torch", 20.0, check=wrong),
                  row("torch", 20.0, shape={"rows": 2})):
        assert ratios([ours, other]) == {}
    slow = [row("parbake", 10.0, timer="wall"), row("torch", 20.0, timer="wall")]
    assert ratios(slow) == {} and "2.00x" not in text(slow)
    assert "WRONG" in text([row("torch", 20.0, check=wrong)]) and "20.00" not in text([row("torch", 20.0, check=wrong)])
    timed = row("parbake", 10.0, bytes=4e6, flop=0)
    assert shares(timed, {"timer": "cupti", "median_us": 8.0})["share"] == 0.8
    assert shares(timed, {"timer": "graph", "median_us": 8.0})["share"] is None
    assert shares(timed | {"timer": "wall"}, {"timer": "wall", "median_us": 8.0})["share"] is None


class PlayedGpu(Played):
    """Tensors are the CPU's; each launch takes 5 µs, those of `slow` twice as long, and leaves one record."""

    def __init__(self, **how):
        super().__init__(**how)
        import torch

        self.torch, self.place, self.l2 = torch, torch.device("cpu"), 20_000
        self.slow, self.bytes = (), 1 << 30

    def free(self):
        return self.bytes

    def timed(self, launch):
        def run():
            cost = 10.0 if getattr(launch, "__name__", "") in self.slow else 5.0
            self.now += self.gap
            self.log.append((round(self.now * 1e3), round((self.now + cost) * 1e3), "kernel"))
            self.now += cost
            launch()

        return run

    def capture(self, launches):
        return super().capture([self.timed(launch) for launch in launches])


class PlayedMachine:
    target = "sm_00"

    def facts(self):
        return {"gpu": "played", "cpu": "cpu", "driver": "0", "versions": {}, "settings": {}}

    def state(self):
        return {"clock_mhz": None, "power_w": None}


def session(device):
    from parbake.bench import harness, workload

    frameworks = workload.Frameworks(device)
    frameworks.target = {"target": "host"}
    made = harness.Session(device, PlayedMachine(), frameworks, say=lambda text: None)
    return made


@check("torch", "tvm_ffi", "host")
def a_session_checks_times_in_turns_and_compares_with_the_roof():
    from parbake.bench.workloads.norm import Rmsnorm

    device = PlayedGpu()
    made = session(device)
    rows = made.measure(Rmsnorm("X", rows=4, hidden=256), ["parbake", "torch", "triton", "flashinfer"])
    assert [r["backend"] for r in rows] == ["parbake", "torch"]
    assert {b for _, b, _ in made.skipped} == {"triton", "flashinfer"} and not made.failed
    for row in rows:
        assert (row["timer"], row["launch"], row["median_us"], row["roof_us"], row["share"]) == ("cupti", "graph", 5.0, 5.0, 1.0)
        assert row["cold"] and row["sets"] * row["footprint"] > 0 and row["footprint"] >= 3 * device.l2
        assert row["sets"] == -(-3 * device.l2 // (row["footprint"] // row["sets"])) and len(row["rounds_us"]) == 3
        assert row["replay_us"] == 6.0 and "call" not in row
        json.dumps(row, allow_nan=False)
    # Too little memory is told before anything is made.
    device.bytes = 1000
    assert made.measure(Rmsnorm("Y", rows=4, hidden=256), ["parbake"]) == []
    assert made.skipped[-1][:2] == ("Y", "all") and "GB of memory" in made.skipped[-1][2]


@check("torch", "tvm_ffi", "host")
def records_that_stop_fitting_are_given_up_for_the_next_mechanism():
    from parbake.bench.workloads.norm import Rmsnorm

    device = PlayedGpu()
    made = session(device)
    assert made.timer.way == "cupti"
    device.how = "lost"
    (row,) = made.measure(Rmsnorm("X", rows=4, hidden=256), ["parbake"])
    assert (row["timer"], row["median_us"]) == ("graph", 6.0), row


def bench(*words, **settings):
    import parbake

    place = os.path.dirname(os.path.dirname(parbake.__file__))
    environment = dict(os.environ, PYTHONPATH=place, **settings)
    words = [sys.executable, "-W", "ignore", "-m", "parbake.bench", *words]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600)


@check("torch", "tvm_ffi", "host")
def rows_from_the_cpu_are_whole_and_give_no_ratio():
    ran = bench("--device", "cpu", "--workload", "U1,U4", "--json", "-", "--backend", "parbake,torch", PARBAKE_NVRTC="")
    assert ran.returncode == 0, ran.stderr
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [(r["workload"], r["backend"]) for r in rows] == [(w, b) for w in ("U1", "U4") for b in ("parbake", "torch")]
    for row in rows:
        assert row["check"]["ok"] and row["check"]["elements"] and row["timer"] == "wall" and not row["cold"]
        assert row["share"] is None and row["roof_us"] is None and row["gpu"] is None
        assert 0 < row["p10_us"] <= row["median_us"] <= row["p90_us"] and row["n"] == 6
        # What the harness itself sets is not a setting.
        assert "PARBAKE_LOG_DEST" not in row["settings"] and row["settings"]["PARBAKE_NVRTC"] == ""
        if row["backend"] == "parbake":
            (artifact,) = row["artifacts"]
            assert row["target"] == "host" and artifact["uri"].startswith(row["op"].split("/")[1])
            assert len(artifact["image"]) == len(artifact["build_key"]) == 64 and artifact["tactic"]
            assert row["check"]["tolerance"] == "1 ulp"
    assert "0 wrong or failed" in ran.stderr


@check("torch", "tvm_ffi", "host")
def a_wrong_result_has_no_figure_and_fails_the_run():
    program = (
        "import sys, parbake\n"
        "from parbake.bench import workload, __main__ as main\n"
        "right = workload.Frameworks.parbake\n"
        "def off(self, name):\n"
        "    call = right(self, name)\n"
        "    def run(*a, **k):\n"
        "        result = call(*a, **k)\n"
        "        result.view(-1)[3] += 1\n"
        "        return result\n"
        "    return run\n"
        "workload.Frameworks.parbake = off\n"
        "sys.exit(main.main(['--device', 'cpu', '--workload', 'U4', '--backend', 'parbake,torch', *sys.argv[1:]]))\n"
    )
    import parbake

    environment = dict(os.environ, PYTHONPATH=os.path.dirname(os.path.dirname(parbake.__file__)))
    for words in (["--json", "-"], []):
        command = [sys.executable, "-W", "ignore", "-c", program, *words]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert ran.returncode == 1 and "1 wrong or failed" in ran.stderr, ran
        if words:
            wrong, right = map(json.loads, ran.stdout.splitlines())
            assert not wrong["check"]["ok"] and wrong["check"]["wrong"] == 1 and "median_us" not in wrong
            assert right["check"]["ok"] and right["median_us"] > 0
        else:
            assert "WRONG" in ran.stdout


@check("torch")
def wrong_words_say_what_there_is():
    for words, says in (
        (["--workload", "U99"], "no workload U99"),
        (["--op", "nothing*"], "nothing*"),
        (["--backend", "cuda"], "there are parbake, torch"),
        (["--timer", "sundial"], "invalid choice"),
    ):
        ran = bench("--device", "cpu", *words)
        assert ran.returncode != 0 and says in ran.stderr, (words, ran)
        assert not ran.stdout


@check()
def the_package_does_not_bring_the_harness():
    import parbake

    environment = dict(os.environ, PYTHONPATH=os.path.dirname(os.path.dirname(parbake.__file__)))
    program = "import sys, parbake; dir(parbake); print([m for m in sys.modules if m.startswith('parbake.bench')])"
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]", ran
