"""Sets of tensors that launches take in turn, so that none finds its data in the cache.

Enough sets are made for three times L2. All sets of one argument lie in one piece of memory: thousands of small sets are
views then, and no allocations.
"""

import math

from parbake.bench.check import NAMES

# As many launches are in one graph at the most.
MOST_SETS = 8192
LEAST_SETS = 3
ALIGN = 256

# A byte that makes NaN of every floating-point type: what is not written shows.
POISON = 0xFF

TYPES = {short: name.removeprefix("torch.") for name, short in NAMES.items()}


class Set:
    """The tensors of one launch, by name."""

    def __init__(self, **tensors):
        self.__dict__.update(tensors)

    def __contains__(self, name):
        return name in self.__dict__

    def copy(self):
        """Tensors of their own with the same values."""
        return Set(**{k: v.clone() if hasattr(v, "clone") else v for k, v in self.__dict__.items()})


class Maker:
    """Makes the tensors of `count` sets. The same seed gives the same values."""

    def __init__(self, device, count, seed):
        self.device, self.count = device, count
        self.torch = device.torch
        self.random = self.torch.Generator(device=device.place).manual_seed(seed)
        self.bytes = 0
        self.tensors = {}

    def _space(self, name, shape, dtype):
        """Memory for one tensor in each set, and the views."""
        kind = getattr(self.torch, TYPES[dtype])
        size = math.prod(shape) * kind.itemsize
        pitch = -(-size // ALIGN) * ALIGN
        memory = self.torch.empty((self.count, pitch), dtype=self.torch.uint8, device=self.device.place)
        self.bytes += size
        self.tensors[name] = [memory[i, :size].view(kind).view(shape) for i in range(self.count)]
        return memory

    def normal(self, name, shape, dtype, scale=1.0):
        """Normally distributed values, rounded to the type."""
        memory = self._space(name, shape, dtype)
        kind = getattr(self.torch, TYPES[dtype])
        for row in memory if memory.numel() > 1 << 28 else [memory]:
            values = row.view(kind) if kind.itemsize > 1 else None
            if values is not None:
                values.normal_(0.0, scale, generator=self.random)
            else:
                drawn = self.torch.empty(row.shape, dtype=self.torch.float32, device=row.device)
                row.view(kind).copy_(drawn.normal_(0.0, scale, generator=self.random))

    def probabilities(self, name, rows, columns, sharpness=2.0):
        """Rows of float32 probabilities: the softmax of normal logits."""
        self.normal(name, (rows, columns), "f32", sharpness)
        for tensor in self.tensors[name]:
            tensor.copy_(self.torch.softmax(tensor, dim=-1))

    def output(self, name, shape, dtype):
        """Memory to be written, poisoned."""
        self._space(name, shape, dtype).fill_(POISON)

    def zeros(self, name, shape, dtype):
        self._space(name, shape, dtype).zero_()

    def given(self, name, dtype, value):
        """`value(i)` gives the tensor of set i; all have one shape."""
        values = [value(i) for i in range(self.count)]
        self._space(name, tuple(values[0].shape), dtype)
        for tensor, drawn in zip(self.tensors[name], values):
            tensor.copy_(drawn)

    def permutation(self, n):
        return self.torch.randperm(n, generator=self.random, device=self.device.place)

    def sets(self):
        return [Set(**{name: views[i] for name, views in self.tensors.items()}) for i in range(self.count)]


class Sizes:
    """Finds what one set takes, without memory: the same calls as Maker's, counted only."""

    def __init__(self):
        self.bytes = 0

    def _count(self, shape, dtype):
        sizes = {"f32": 4, "i32": 4, "i64": 8, "f16": 2, "bf16": 2}
        self.bytes += math.prod(shape) * sizes.get(dtype, 1)

    def normal(self, name, shape, dtype, scale=1.0):
        self._count(shape, dtype)

    def probabilities(self, name, rows, columns, sharpness=2.0):
        self._count((rows, columns), "f32")

    def output(self, name, shape, dtype):
        self._count(shape, dtype)

    zeros = output

    def given(self, name, dtype, value):
        """Indices: they are small beside what they point into."""


def size_of_set(workload):
    """Bytes of the large tensors of one set."""
    sizes = Sizes()
    workload.inputs(sizes)
    return sizes.bytes


def sets_for(size, l2):
    """How many sets of this size hold three times L2."""
    return min(MOST_SETS, max(LEAST_SETS, -(-3 * l2 // max(size, 1))))


def need(workload, l2):
    """The memory in bytes that measuring a workload takes: the sets, twice for results that backends allocate, the
    memory of the roof, and the float64 copies of the check."""
    size = size_of_set(workload)
    sets = sets_for(size, l2)
    roof = max(workload.bytes(), 1) * sets_for(workload.bytes(), l2)
    return 2 * sets * size + roof + 6 * size * 4
