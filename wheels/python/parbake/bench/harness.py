"""The measurement: check, prepare, time in turns, and one row for each backend."""

import math
import time

from parbake.bench import buffers
from parbake.bench.cupti import Unavailable
from parbake.bench.timers import WAYS, Timer, choose
from parbake.bench.workload import Missing

ROUNDS = 3


class Roof:
    """`torch.neg(out=)` that moves as many bytes: what elementwise work can reach at this size, in this run."""

    def __init__(self, device, size, seed):
        count = -(-size // 4)
        maker = buffers.Maker(device, buffers.sets_for(size, device.l2), seed)
        maker.normal("x", (count,), "bf16")
        maker.output("out", (count,), "bf16")
        self.launches = [lambda s=s: device.torch.neg(s.x, out=s.out) for s in maker.sets()]


class Entry:
    """A backend whose result was right, and its launches."""

    def __init__(self, name, row, launches):
        self.name, self.row, self.launches = name, row, launches
        self.prepared = None


class Session:
    """What stays the same from one workload to the next."""

    def __init__(self, device, machine, frameworks, *, log=None, timer=None, rounds=ROUNDS, seed=0, say=print):
        self.device, self.machine, self.frameworks, self.log = device, machine, frameworks, log
        self.rounds, self.seed, self.say = rounds, seed, say
        probe = self._probe() if device.kind == "cuda" else None
        self.timer, self.refused = choose(device, timer, probe)
        self.skipped, self.failed = [], []
        self.run = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{seed}"

    def _probe(self):
        """Something whose time events can tell."""
        torch = self.device.torch
        a = torch.ones(64 << 20, dtype=torch.uint8, device=self.device.place)
        b = torch.empty_like(a)
        return lambda: torch.neg(a.view(torch.int8), out=b.view(torch.int8))

    def measure(self, workload, backends):
        """The rows of a workload."""
        if workload.op is None:
            self._skip(workload, "all", f"no op answers to {workload.function}")
            return []
        need, free = buffers.need(workload, self.device.l2), self.device.free()
        if need > free:
            self._skip(workload, "all", f"needs {need / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free")
            return []
        rows, entries = [], []
        maker = buffers.Maker(self.device, 1, self.seed + 1)
        workload.inputs(maker)
        fresh = maker.sets()[0]
        for backend in backends:
            row = self._check(workload, backend, fresh)
            if row is not None:
                rows.append(row)
        right = [row for row in rows if row["check"]["ok"]]
        if right:
            entries = self._entries(workload, right)
            self._time(workload, entries)
        for row in rows:
            row.pop("call")
        return rows

    def _skip(self, workload, backend, why):
        self.skipped.append((workload.name, backend, why))

    def _check(self, workload, backend, fresh):
        """A row with a verdict and without figures; None if the backend cannot do it here."""
        torch = self.device.torch
        try:
            call = getattr(workload, backend)(self.frameworks)
        except Missing as why:
            self._skip(workload, backend, str(why))
            return None
        before, after = fresh.copy(), fresh.copy()
        artifacts = None
        try:
            work = lambda: call(after)  # noqa: E731
            with torch.inference_mode():
                if backend == "parbake" and self.log is not None:
                    result, artifacts = self.log.call(work)
                else:
                    result = work()
                self.device.synchronize()
                verdict = workload.judge(torch, backend, before, after, result)
        except Exception as error:  # noqa: BLE001 - whatever a backend raises is its answer
            why = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
            self._skip(workload, backend, why)
            if backend == "parbake":
                self.failed.append((workload.name, why))
            return None
        if not verdict.ok and backend == "parbake":
            self.failed.append((workload.name, verdict.why or f"error {verdict.error:.3g} of {verdict.tolerance}"))
        return self._row(workload, backend, verdict, artifacts) | {"call": call}

    def _row(self, workload, backend, verdict, artifacts):
        row = {
            "row": 1,
            "run": self.run,
            "workload": workload.name,
            "op": workload.op,
            "function": workload.function,
            "backend": backend,
            "shape": workload.dims,
            "dtype": workload.dtype,
            "device": self.device.kind,
            "target": self.machine.target,
            "check": verdict.facts(),
            "bytes": workload.bytes(),
            "flop": workload.flop(),
            "seed": self.seed,
        } | self.machine.facts()
        if backend == "parbake":
            row |= {"artifacts": artifacts}
            if artifacts:
                row["target"] = artifacts[0]["target"]
        return row

    def _entries(self, workload, rows):
        size = buffers.size_of_set(workload)
        count = buffers.sets_for(size, self.device.l2) if self.device.kind == "cuda" else 2
        maker = buffers.Maker(self.device, count, self.seed)
        workload.inputs(maker)
        sets = maker.sets()
        entries = [Entry(r["backend"], r, [lambda s=s, call=r["call"]: call(s) for s in sets]) for r in rows]
        if self.device.kind == "cuda":
            entries.append(Entry("roof", None, Roof(self.device, workload.bytes(), self.seed).launches))
        for row in rows:
            row |= {"sets": count, "footprint": count * size, "cold": count * size >= 3 * self.device.l2 > 0}
        return entries

    def _time(self, workload, entries):
        """In turns, there and back, so that a drift of the machine falls on all alike."""
        torch = self.device.torch
        with torch.inference_mode():
            for entry in list(entries):
                try:
                    entry.prepared = self.timer.prepare(entry.launches)
                except Exception as error:  # noqa: BLE001 - as above
                    why = f"{type(error).__name__} while it was prepared: {error}"
                    self._skip(workload, entry.name, why)
                    if entry.name == "parbake":
                        self.failed.append((workload.name, why))
                    entries.remove(entry)
            for number in range(self.rounds):
                for entry in entries if number % 2 == 0 else reversed(entries):
                    self._sample(entry)
        roof = next((e.prepared.figures.facts() for e in entries if e.name == "roof"), None)
        for entry in entries:
            if entry.row is None:
                continue
            entry.row |= entry.prepared.figures.facts() | {"eager_because": entry.prepared.why_eager}
            entry.row |= self.machine.state()
            entry.row |= shares(entry.row, roof)

    def _sample(self, entry):
        """One round; if records turn out not to fit the launches, this entry is timed by the next mechanism."""
        while True:
            try:
                entry.prepared.sample()
                return
            except Unavailable as why:
                following = WAYS[WAYS.index(entry.prepared.way) + 1 :]
                if not following:
                    raise
                self.say(f"{entry.name}: {entry.prepared.way} refused ({why}); {following[0]} is used")
                entry.prepared = Timer(self.device, following[0]).prepare(entry.launches)


def shares(row, roof):
    """What part of the roof a row reaches. Not by the clock of a CPU, and only of a roof by the same mechanism."""
    seconds = row["median_us"] / 1e6
    facts = {"roof_us": None, "share": None, "tb_s": None, "tflop_s": None}
    if row["timer"] == "wall" or not seconds > 0:
        return facts
    facts |= {"tb_s": round(row["bytes"] / seconds / 1e12, 4), "tflop_s": round(row["flop"] / seconds / 1e12, 4)}
    if roof is not None and roof["timer"] == row["timer"] and math.isfinite(roof["median_us"]):
        facts |= {"roof_us": roof["median_us"], "share": round(roof["median_us"] / row["median_us"], 4)}
    return facts
