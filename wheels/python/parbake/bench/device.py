"""What a timer asks of a device. Everything that touches one is here; the rest of the harness is arithmetic."""

import time
from contextlib import contextmanager

from parbake.bench.cupti import Cupti, Unavailable


class Cuda:
    """The current GPU of PyTorch."""

    kind = "cuda"

    def __init__(self):
        import torch

        self.torch = torch
        self.index = torch.cuda.current_device()
        self.properties = torch.cuda.get_device_properties(self.index)
        self.place = torch.device("cuda", self.index)
        self.stream = torch.cuda.Stream()
        self._cupti = None

    @property
    def l2(self):
        return self.properties.L2_cache_size

    def free(self):
        """Bytes that may be taken, those that PyTorch keeps for later included."""
        cached = self.torch.cuda.memory_reserved() - self.torch.cuda.memory_allocated()
        return self.torch.cuda.mem_get_info()[0] + cached

    def synchronize(self):
        self.torch.cuda.synchronize()

    @contextmanager
    def work(self):
        """Launches go to a stream of their own: the default one waits for every other."""
        self.stream.wait_stream(self.torch.cuda.current_stream())
        with self.torch.cuda.stream(self.stream):
            yield
        self.torch.cuda.current_stream().wait_stream(self.stream)

    def capture(self, launches):
        """A graph of the launches. What they give is kept: memory given back would be taken again, still warm."""
        graph, kept = self.torch.cuda.CUDAGraph(), []
        self.synchronize()
        with self.torch.cuda.graph(graph, stream=self.stream):
            kept += [launch() for launch in launches]
        graph.kept = kept
        return graph

    def replay(self, graph):
        graph.replay()

    def event(self):
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, begin, end):
        """Microseconds between two events."""
        end.synchronize()
        return begin.elapsed_time(end) * 1e3

    def cupti(self):
        if self._cupti is None:
            # A context of CUDA is there by now; CUPTI wants one for its buffers.
            self.torch.zeros(1, device=self.place)
            self._cupti = Cupti()
        return self._cupti

    def records(self, way, work):
        """What ran on the GPU during `work`: (begin, end, name) in nanoseconds, by their begin."""
        if way == "kineto":
            return self._kineto(work)
        cupti = self.cupti()
        self.synchronize()
        cupti.start()
        try:
            work()
            self.synchronize()
        finally:
            records = cupti.stop()
        return records

    def _kineto(self, work):
        profiler = self.torch.profiler
        self.synchronize()
        with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as profile:
            work()
            self.synchronize()
        try:
            events = profile.profiler.kineto_results.events()
        except AttributeError as error:
            raise Unavailable(f"torch.profiler: {error}") from error
        cuda = self.torch.autograd.DeviceType.CUDA
        found = [e for e in events if e.device_type() == cuda and not e.name().startswith("Context Sync")]
        return sorted((e.start_ns(), e.start_ns() + e.duration_ns(), e.name()) for e in found)


class Cpu:
    """The CPU: for trying the harness, never for figures that are compared."""

    kind = "cpu"
    l2 = 0

    def __init__(self):
        import torch

        self.torch = torch
        self.place = torch.device("cpu")

    def free(self):
        with open("/proc/meminfo", encoding="utf-8") as lines:
            facts = dict(line.split(":") for line in lines)
        return int(facts["MemAvailable"].split()[0]) * 1024

    def synchronize(self):
        pass

    @contextmanager
    def work(self):
        yield

    def clock(self):
        return time.perf_counter() * 1e6
