"""How long a launch takes, by the best mechanism that works here, and which one that was.

cupti   records of CUPTI over replays of a CUDA graph: each launch by itself, without what lies between launches
kineto  the same records through torch.profiler
graph   events around a replay, over the launches in it: with the gap between two nodes, about a microsecond
events  a pair of events around each launch: with the cost of launching, which is most of a short kernel
wall    the clock of the CPU, for the host target
"""

import math
import statistics

from parbake.bench.cupti import Unavailable

WAYS = ("cupti", "kineto", "graph", "events")
# Of one sample of a launch; a shorter one repeats more.
BUDGET_US = 20_000.0
MOST_REPLAYS = 20


class Figures:
    """Samples in microseconds a launch, and how they came about."""

    def __init__(self, timer, launch, span):
        self.timer, self.launch, self.span = timer, launch, span
        self.rounds, self.replay = [], []

    def add(self, samples):
        self.rounds.append(samples)

    def facts(self):
        """What a row says of them."""
        every = sorted(s for samples in self.rounds for s in samples)
        return {
            "timer": self.timer,
            "launch": self.launch,
            "span": self.span,
            "n": len(every),
            "median_us": round(statistics.median(every), 4),
            "p10_us": round(quantile(every, 0.1), 4),
            "p90_us": round(quantile(every, 0.9), 4),
            "rounds_us": [round(statistics.median(samples), 4) for samples in self.rounds],
            "replay_us": round(statistics.median(self.replay), 4) if self.replay else None,
        }


def quantile(ordered, share):
    """The value below which a share of the sorted values lies, between two of them by weight."""
    at = (len(ordered) - 1) * share
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def per_launch(records, launches, spans):
    """Microseconds of each launch, from records in order: every launch left the same kernels, one after the other.

    With `spans` from its first begin to its last end; without, the sum of its kernels: between eager kernels lies the
    CPU. Raises Unavailable if records and launches do not go together, because then nobody knows whose they are.
    """
    if not records or len(records) % launches:
        raise Unavailable(f"{len(records)} records of {launches} launches")
    each = len(records) // launches
    names = [name for _, _, name in records[:each]]
    times = []
    for first in range(0, len(records), each):
        mine = records[first : first + each]
        if [name for _, _, name in mine] != names:
            raise Unavailable(f"launch {first // each} ran {[n for _, _, n in mine]}, the first one {names}")
        if any(not 0 < begin < end for begin, end, _ in mine):
            raise Unavailable("a record without begin or end")
        busy = mine[-1][1] - mine[0][0] if spans else sum(end - begin for begin, end, _ in mine)
        times.append(busy / 1e3)
    return times


class Prepared:
    """Launches of one backend, ready to be timed again and again."""

    def __init__(self, timer, launches):
        self.timer, self.launches = timer, launches
        device = timer.device
        self.graph, self.why_eager = None, None
        # First launches compile, load and choose: none of that is captured or timed.
        with device.work():
            for launch in launches[:3]:
                launch()
        device.synchronize()
        if timer.way != "events":
            try:
                self.graph = device.capture(launches)
            except Exception as error:  # noqa: BLE001 - whatever a backend does that cannot be captured
                self.why_eager = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
                device.synchronize()
        self.way = timer.way
        if self.graph is None and self.way == "graph":
            self.way = "events"
        spans = self.graph is not None or self.way == "events"
        self.figures = Figures(self.way, "graph" if self.graph is not None else "eager", "span" if spans else "sum")
        self.replays = 1
        self._estimate()

    def _run(self):
        if self.graph is not None:
            self.timer.device.replay(self.graph)
        else:
            for launch in self.launches:
                launch()

    def _estimate(self):
        device = self.timer.device
        with device.work():
            self._run()
            begin = device.event()
            self._run()
            cost = device.between(begin, device.event())
        self.replays = max(2, min(MOST_REPLAYS, math.ceil(BUDGET_US / max(cost, 1.0))))

    def sample(self):
        """One round."""
        with self.timer.device.work():
            if self.graph is not None:
                replays = self._replays()
                self.figures.replay += replays
            if self.way in ("cupti", "kineto"):
                samples = self._records()
            elif self.way == "graph":
                samples = replays
            else:
                samples = self._events()
        self.figures.add(samples)

    def _replays(self):
        device = self.timer.device
        times = []
        for _ in range(max(self.replays, 5)):
            begin = device.event()
            device.replay(self.graph)
            times.append(device.between(begin, device.event()) / len(self.launches))
        return times

    def _records(self):
        def work():
            for _ in range(self.replays):
                self._run()

        launches = self.replays * len(self.launches)
        return per_launch(self.timer.device.records(self.way, work), launches, self.figures.span == "span")

    def _events(self):
        device = self.timer.device
        pairs = []
        for _ in range(self.replays):
            for launch in self.launches:
                begin = device.event()
                launch()
                pairs.append((begin, device.event()))
        return [device.between(begin, end) for begin, end in pairs]


class Timer:
    """A mechanism that was tried on this device."""

    def __init__(self, device, way):
        self.device, self.way = device, way

    def prepare(self, launches):
        return Prepared(self, launches)


class Wall:
    """The clock of the CPU."""

    way = "wall"

    def __init__(self, device):
        self.device = device

    def prepare(self, launches):
        return _WallPrepared(self.device, launches)


class _WallPrepared:
    why_eager = None

    def __init__(self, device, launches):
        self.device, self.launches = device, launches
        self.figures = Figures("wall", "eager", "span")

    def sample(self):
        samples = []
        for launch in self.launches:
            begin = self.device.clock()
            launch()
            samples.append(self.device.clock() - begin)
        self.figures.add(samples)


def choose(device, wanted=None, probe=None):
    """The first mechanism that works, or the one that is wanted; and why those before it do not.

    `probe` makes a launch of a known kind. What records say of it must be of the order that events say: else the records
    are not what we take them for.
    """
    if device.kind == "cpu":
        return Wall(device), {}
    refused = {}
    for way in [wanted] if wanted else WAYS:
        timer = Timer(device, way)
        try:
            if way in ("cupti", "kineto"):
                _try_records(timer, probe)
            return timer, refused
        except Unavailable as why:
            refused[way] = str(why)
    raise Unavailable(f"{wanted}: {refused[wanted]}")


def _try_records(timer, probe):
    prepared = timer.prepare([probe] * 4)
    prepared.sample()
    said = statistics.median(prepared.figures.rounds[0])
    seen = statistics.median(prepared.figures.replay) if prepared.figures.replay else None
    if seen is not None and not seen / 10 < said < seen * 1.5:
        raise Unavailable(f"records say {said:.2f} µs of what takes {seen:.2f} µs by events")
