"""What a workload is: an op at one size, how its inputs are made, what it moves, and who else computes it."""

import importlib

from parbake.bench import check, sources

BACKENDS = ("parbake", "torch", "compile", "triton", "flashinfer")


class Missing(Exception):
    """A backend cannot compute a workload here; the message says what is not there."""


class Frameworks:
    """What workloads import, and how Parbake is called on this device."""

    def __init__(self, device, allowed=None):
        self.device = device
        self.torch = device.torch
        # Modules of FlashInfer that may be compiled; None: whatever is importable.
        self.allowed = allowed
        self.target = {"target": "host"} if device.kind == "cpu" else {}

    def parbake(self, name):
        """A public function of ours, with the target filled in."""
        function = self._function("parbake", name)
        if not self.target:
            return function
        return lambda *arguments, **named: function(*arguments, **named, **self.target)

    def flashinfer(self, module, name):
        """A function of FlashInfer, unless its module is not to be compiled."""
        if self.device.kind != "cuda":
            raise Missing("flashinfer needs a GPU")
        if self.allowed is not None and module not in self.allowed:
            raise Missing(f"flashinfer.{module} is not among the modules that are asked for")
        return self._function(f"flashinfer.{module}", name)

    def triton(self):
        """Our Triton kernels."""
        try:
            from parbake.bench import triton_kernels
        except ImportError as error:
            raise Missing(f"triton: {error}") from error
        if self.device.kind != "cuda" and not triton_kernels.INTERPRETED:
            raise Missing("triton needs a GPU")
        return triton_kernels

    def compiled(self, function):
        if self.device.kind != "cuda":
            raise Missing("torch.compile is timed on a GPU")
        return self.torch.compile(function, fullgraph=True, dynamic=False)

    @staticmethod
    def _function(module, name):
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise Missing(f"{module}.{name} is not importable") from error
        except Exception as error:  # noqa: BLE001 - a package that breaks while it is imported
            raise Missing(f"{module}: {type(error).__name__}: {error}") from error


class Workload:
    """One row of the tables. A subclass says:

    `function`, the public one that is timed: the op behind it has the reference and the tolerance; `inputs`, `bytes` and
    `flop`, `expected`, and a method for each backend that returns what is called with a set.
    """

    function = ""
    # What a CPU can do in a moment, for trying the harness.
    small = {}
    # Bounds for others than us, where the usual ones are not those of their tests.
    peers = {}

    def __init__(self, name, dtype="bf16", note="", **dims):
        self.name, self.dtype, self.note = name, dtype, note
        self.dims = dims
        self.__dict__.update(dims)

    @property
    def op(self):
        """`family/op`, or None if there is no such op yet."""
        return sources.op_of(self.function)

    def reduced(self):
        """The same at a size for the CPU."""
        dims = {k: min(v, self.small.get(k, v)) for k, v in self.dims.items()}
        return type(self)(self.name, self.dtype, self.note, **dims)

    def inputs(self, make):
        """Makes the tensors of the sets."""
        raise NotImplementedError

    def bytes(self):
        """What must be moved at the least: each input read once, each output written once."""
        raise NotImplementedError

    def flop(self):
        return 0

    def expected(self, run, given):
        """What the reference makes of a set, by the names of `results`."""
        raise NotImplementedError

    def results(self, given, result):
        """What a backend made: the tensors to compare, from a set after the call and what the call gave."""
        return {"out": result}

    def judge(self, torch, backend, before, after, result):
        """Compares one call with the reference. Sampling and other results with several right answers do it otherwise."""
        tolerances = sources.definition(self.op)["tolerance"]
        expected = self.expected(sources.reference(self.op), before)
        got = self.results(after, result)
        verdict = check.Verdict("")
        for name, reference in expected.items():
            if name not in got:
                verdict.refuse(f"no result {name}")
                continue
            ours = backend == "parbake"
            bound = check.bound_of(tolerances if ours else check.PEERS | self.peers, reference.dtype)
            verdict.join(check.compare(got[name], reference, bound), name)
        return verdict

    # Backends. What is not overridden does not exist.

    def parbake(self, fw):
        raise Missing("not written")

    def torch(self, fw):
        raise Missing("PyTorch has no such function")

    def compile(self, fw):
        """What PyTorch's compiler makes of the eager form."""
        return fw.compiled(self.torch(fw))

    def triton(self, fw):
        raise Missing("no Triton kernel that is simple and fair")

    def flashinfer(self, fw):
        raise Missing("flashinfer has no such function for this GPU")

