"""The pool of a rank, as the library makes it. Needs no framework."""

import ctypes

from parbake import _load
from parbake._ask import check

HANDLE_BYTES = 160
MAX_RANKS = 8

# As the launchers lay pools out: words for blocks and ranks, and two halves with a region for each block.
_BLOCKS, _THREADS, _UNIT = 128, 512, 16
_HEAD = _BLOCKS * MAX_RANKS * 8 + _BLOCKS * 4


def pool_bytes(rows, row_bytes, ranks):
    """Bytes of a pool that is enough for every collective of so many rows."""
    total = rows * row_bytes
    region = max(
        # A row is not shared out among blocks.
        -(-rows // _BLOCKS) * row_bytes,
        # Few units go to as many blocks as give each of their threads one.
        min(total, ranks * _THREADS * _UNIT),
        -(-total // _BLOCKS) + ranks * _UNIT,
    )
    return _HEAD + 2 * _BLOCKS * -(-region // _UNIT) * _UNIT


class Pool:
    """Zeroed memory of this process; freed with the object, which also closes what it has opened."""

    def __init__(self, device, size):
        self._library, self._pool = _load.library(), ctypes.c_void_p()
        memory, error = ctypes.c_void_p(), ctypes.c_void_p()
        status = self._library.parbake_pool_new(
            ctypes.c_int32(device), ctypes.c_size_t(size), ctypes.byref(memory), ctypes.byref(self._pool), ctypes.byref(error)
        )
        check(self._library, status, error)
        self.address, self.size = memory.value, size

    def handle(self):
        """What other ranks open it by."""
        text, error = ctypes.create_string_buffer(HANDLE_BYTES), ctypes.c_void_p()
        check(self._library, self._library.parbake_pool_handle(self._pool, text, ctypes.byref(error)), error)
        return text.raw

    def open(self, rank, handles):
        """The addresses of the pools of all ranks, as this one sees them."""
        addresses, error = (ctypes.c_int64 * len(handles))(), ctypes.c_void_p()
        status = self._library.parbake_pool_open(
            self._pool, ctypes.c_int32(rank), ctypes.c_int32(len(handles)), b"".join(handles), addresses, ctypes.byref(error)
        )
        check(self._library, status, error)
        return list(addresses)

    def free(self):
        pool, self._pool = self._pool, ctypes.c_void_p()
        self._library.parbake_pool_free(pool)

    def __del__(self):
        # An object whose making failed has no pool.
        if getattr(self, "_pool", None):
            self.free()
