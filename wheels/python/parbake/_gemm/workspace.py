"""Room for products that are cut along k: a product of few rows has too few tiles to keep a device busy otherwise."""

from __future__ import annotations

import functools
import threading

import torch

from parbake._attention.planned import processors

# Of each multiprocessor: elements of pieces, and tiles that may be cut. By the launcher's model of costs hardly any
# product is faster with more.
_ELEMENTS, _TILES = 2 * 128 * 128, 4
# The smallest tile, which there are most of.
_ROWS, _COLUMNS = 16, 64
# Tickets of a device, 16 MB.
_TICKETS = 1 << 22


def room(a: torch.Tensor, batch: int, m: int, n: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """`partial` and `tickets` of parbake.bmm for a product on the device of `a`.

    Both are None for one that is too large to gain from them. Pieces lie in memory of this call's own; tickets are zeros
    that the kernel leaves as zeros, so that nothing has to be cleared between calls.
    """
    count = processors(a.device)
    if 2 * batch * m * n > count * _ELEMENTS:
        return None, None
    partial = a.new_empty(count * _ELEMENTS, dtype=torch.float32)
    tiles = batch * -(-m // _ROWS) * -(-n // _COLUMNS)
    return partial, _tickets(a, min(tiles, count * _TILES))


def _tickets(a: torch.Tensor, words: int) -> torch.Tensor:
    device = a.device
    # A graph that PyTorch compiles must not hold what calls outside of it use.
    if device.type != "cuda" or torch.compiler.is_compiling():
        return a.new_zeros(words, dtype=torch.int32)
    if not torch.cuda.is_current_stream_capturing():
        return _zeros(device).of_stream(torch.cuda.current_stream(device).cuda_stream)[:words]
    # Graphs may run at the same time on streams that nobody knows yet: each captured launch has tickets of its own. What
    # was not called before, and a device's last tickets, cost the graph a node that clears new ones.
    known = _KNOWN.get(device)
    taken = known and known.take(words)
    return a.new_zeros(words, dtype=torch.int32) if taken is None else taken


class _Zeros:
    """Tickets of a device: a part for each stream, and parts for launches in graphs, which are never given back."""

    def __init__(self, device: torch.device) -> None:
        self._all = torch.zeros(_TICKETS, dtype=torch.int32, device=device)
        # Other streams will take parts of it.
        torch.cuda.current_stream(device).synchronize()
        self._most = processors(device) * _TILES
        self._taken, self._lock = 0, threading.Lock()
        self._streams: dict[int, torch.Tensor] = {}

    def take(self, words: int) -> torch.Tensor | None:
        with self._lock:
            begin, end = self._taken, self._taken + words
            if end > _TICKETS:
                return None
            self._taken = end
        return self._all[begin:end]

    def of_stream(self, stream: int) -> torch.Tensor:
        found = self._streams.get(stream)
        if found is None:
            found = self.take(self._most)
            if found is None:
                found = torch.zeros(self._most, dtype=torch.int32, device=self._all.device)
            found = self._streams.setdefault(stream, found)
        return found


_KNOWN: dict[torch.device, _Zeros] = {}


@functools.cache
def _zeros(device: torch.device) -> _Zeros:
    return _KNOWN.setdefault(device, _Zeros(device))
