"""The workloads, by family. Names are those of the tables in docs/bench.md."""

from importlib import import_module

FAMILIES = ("norm", "activation", "rope", "page", "quantization", "sampling")


def every():
    """All workloads, in the order of the tables."""
    return [w for family in FAMILIES for w in import_module(f"parbake.bench.workloads.{family}").WORKLOADS]
