"""Tensors on their way into TVM FFI, which takes them by DLPack."""

import sys

from parbake._arrays import isinstance_of
from parbake._refuse import refuse

# DLPack's code of the element types that NumPy has from ml_dtypes, and a type of NumPy's own of that size.
_CODES = {"bfloat16": (4, "uint16"), "float8_e4m3fn": (10, "uint8"), "float8_e5m2": (12, "uint8")}


class _Writable:
    """The memory of a read-only array of NumPy, for what only reads it: DLPack has no word for read-only."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = dict(array.__array_interface__, data=(array.__array_interface__["data"][0], False))


class _Coded:
    """An array of an element type that NumPy itself cannot name to DLPack."""

    def __init__(self, array, code):
        self.array = array
        self.code = code

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **_):
        import ctypes

        capsule = self.array.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        # A DLTensor: data, device, rank, and then the element type.
        ctypes.memmove(pointer(capsule, b"dltensor") + 20, bytes((self.code, 8 * self.array.itemsize, 1, 0)), 4)
        return capsule


def handed(function, place, value):
    """What TVM FFI is handed for an argument."""
    if not isinstance_of("numpy", "ndarray", [value]):
        return value
    code, plain = _CODES.get(value.dtype.name, (None, None))
    if not value.flags.writeable:
        if not function.parameters[place][1].startswith("in") or function.parameters[place][1].startswith("inout"):
            refuse(ValueError, function, place, "memory that may be written", "a read-only array of NumPy")
        if code is None and value.dtype.kind not in "fiub":
            return value
        value = sys.modules["numpy"].asarray(_Writable(value if code is None else value.view(plain)))
    elif code is not None:
        value = value.view(plain)
    return value if code is None else _Coded(value, code)


def refuse_tensors(function, arguments):
    """Names the tensor that TVM FFI could not be handed, if one is to blame."""
    from tvm_ffi import from_dlpack

    # Inputs first: an output may have been allocated after one of them.
    for i in sorted(i for i in function.tensors if i is not None):
        value = arguments[i]
        if getattr(value, "is_meta", False) is True:
            refuse(ValueError, function, i, "a tensor with memory", "one on the device meta")
        if not hasattr(value, "__dlpack__"):
            continue
        try:
            from_dlpack(handed(function, i, value))
        except Exception as error:
            got = f"{type(value).__name__} of {getattr(value, 'dtype', 'no dtype')}"
            help = f"DLPack says: {str(error).partition(chr(10))[0]}"
            expected = "a dense tensor of numbers in native byte order, with memory of its own"
            refuse(TypeError, function, i, expected, got, help)
