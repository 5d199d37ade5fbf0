"""Activity records of CUPTI, by ctypes: when each kernel, copy and fill began and ended on the GPU.

No package is needed, only the library `libcupti.so`, which PyTorch, the CUDA toolkit and `nvidia-cuda-cupti` bring. Where
one is mapped into this process already it is that one: two of them do not go together.
"""

import ctypes
import glob
import os
import sys
from threading import Lock

# cupti_activity.h. Records of all three kinds have begin and end at the same place; the name is a kernel's only.
KERNEL, MEMCPY, MEMSET = 10, 1, 2
KINDS = (KERNEL, MEMCPY, MEMSET)
START, END, NAME = 16, 24, 104
LABELS = {MEMCPY: "memcpy", MEMSET: "memset"}

# The versions of the API whose records were looked at: CUDA 12.0 to 13.0. Records grow at their end, so some newer ones
# are taken too; what they give is compared with events before it is believed.
OLDEST, NEWEST = 18, 32

FORCED = 1
NO_MORE_RECORDS = 12
BUFFER = 8 << 20

_REQUEST = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_COMPLETE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)


class Unavailable(Exception):
    """Records cannot be had here; the message says why."""


def candidates():
    """Files to try, the best first."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            mapped = [line.split(None, 5)[5].strip() for line in maps if "/libcupti.so" in line]
    except OSError:
        mapped = []
    found = list(dict.fromkeys(mapped))
    for place in sys.path:
        found += sorted(glob.glob(os.path.join(place, "nvidia", "c*", "lib", "libcupti.so.*")), reverse=True)
    for home in filter(None, (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")):
        found += sorted(glob.glob(os.path.join(home, "extras/CUPTI/lib64/libcupti.so.*")), reverse=True)
    return [*found, "libcupti.so.13", "libcupti.so.12", "libcupti.so"]


class Cupti:
    """The library with our buffers. Records come between `start` and `stop`, one at a time."""

    def __init__(self, path=None):
        self.library, self.path = self._load([path] if path else candidates())
        version = ctypes.c_uint32()
        self._check(self.library.cuptiGetVersion(ctypes.byref(version)), "cuptiGetVersion")
        self.version = version.value
        if not OLDEST <= self.version <= NEWEST:
            raise Unavailable(f"{self.path} has API {self.version}; records of {OLDEST} to {NEWEST} are known")
        self._lock, self._lent, self._full = Lock(), {}, []
        # Kept: CUPTI calls them for as long as the process lives.
        self._callbacks = _REQUEST(self._request), _COMPLETE(self._complete)
        self._check(self.library.cuptiActivityRegisterCallbacks(*self._callbacks), "cuptiActivityRegisterCallbacks")

    @staticmethod
    def _load(paths):
        said = "not found"
        for path in paths:
            try:
                library = ctypes.CDLL(path)
                library.cuptiActivityGetNextRecord.argtypes = (
                    ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)
                )
                return library, path
            except (OSError, AttributeError) as error:
                said = str(error)
        raise Unavailable(f"libcupti cannot be loaded: {said}")

    def _check(self, status, call):
        if status == 0:
            return
        text = ctypes.c_char_p()
        self.library.cuptiGetResultString(ctypes.c_int(status), ctypes.byref(text))
        raise Unavailable(f"{call}: {(text.value or b'?').decode()} ({status})")

    def _request(self, buffer, size, most):
        memory = ctypes.create_string_buffer(BUFFER + 8)
        address = (ctypes.addressof(memory) + 7) & ~7
        with self._lock:
            self._lent[address] = memory
        buffer[0], size[0], most[0] = address, BUFFER, 0

    def _complete(self, context, stream, buffer, size, valid):
        # A thread of CUPTI may be here: records are read later.
        with self._lock:
            memory = self._lent.pop(buffer, None)
            if memory is not None and valid:
                self._full.append((memory, buffer, valid))

    def start(self):
        self._full = []
        for kind in KINDS:
            self._check(self.library.cuptiActivityEnable(ctypes.c_int(kind)), "cuptiActivityEnable")

    def stop(self):
        """The records since `start`, by their begin: (begin, end, name), in nanoseconds. The GPU is idle by now."""
        try:
            self._check(self.library.cuptiActivityFlushAll(ctypes.c_uint32(FORCED)), "cuptiActivityFlushAll")
        finally:
            for kind in KINDS:
                self.library.cuptiActivityDisable(ctypes.c_int(kind))
        with self._lock:
            full, self._full = self._full, []
        records = []
        for memory, buffer, valid in full:
            records += self._records(buffer, valid)
            del memory
        return sorted(records)

    def _records(self, buffer, valid):
        record = ctypes.c_void_p()
        while True:
            status = self.library.cuptiActivityGetNextRecord(buffer, valid, ctypes.byref(record))
            if status == NO_MORE_RECORDS:
                return
            self._check(status, "cuptiActivityGetNextRecord")
            found = read(record.value)
            if found is not None:
                yield found


def read(address):
    """One record; None for a kind that was not asked for."""
    kind = ctypes.c_uint32.from_address(address).value
    if kind not in KINDS:
        return None
    begin, end = (ctypes.c_uint64.from_address(address + offset).value for offset in (START, END))
    if kind != KERNEL:
        return begin, end, LABELS[kind]
    name = ctypes.c_char_p.from_address(address + NAME).value
    return begin, end, (name or b"?").decode(errors="replace")
