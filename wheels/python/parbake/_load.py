"""The shared library: where it is, what it is told before it opens, and its functions."""

import ctypes
import os
import sys
from threading import Lock

from parbake._error import Error, NotCoveredError
from parbake._ops import VERSION

_LOCK = Lock()
_library = None
_module = None


def path():
    """The file of the library: `PARBAKE_LIBRARY`, that of an editable install, or the one beside this file."""
    named = os.environ.get("PARBAKE_LIBRARY")
    if named:
        return named
    try:
        from parbake._paths import LIBRARY
    except ImportError:
        return os.path.join(os.path.dirname(os.path.abspath(__file__)), "libparbake.so")
    return LIBRARY


def library():
    """The library for ctypes. It is not opened by this: that is done by what needs it first."""
    global _library
    with _LOCK:
        if _library is None:
            _library = _load()
    return _library


def module():
    """The library for TVM FFI."""
    global _module
    loaded = library()
    with _LOCK:
        if _module is None:
            _module = _load_module(loaded._name)
    return _module


def _load():
    file = path()
    try:
        loaded = ctypes.CDLL(file)
    except OSError as error:
        raise Error(
            f"cannot load the library of parbake\n  expected: {file}\n  got: {error}\n"
            "  help: install the wheel `parbake` again, or let PARBAKE_LIBRARY name a build of it"
        ) from error
    loaded.parbake_version.restype = ctypes.c_char_p
    version = loaded.parbake_version().decode()
    if version != VERSION:
        raise Error(
            f"the library and the Python package are of different versions\n  expected: {VERSION}, as of the package\n"
            f"  got: {version}, as of {file}\n  help: install the wheel `parbake` again, or build the library again"
        )
    try:
        from parbake._paths import KERNELS
    except ImportError:
        KERNELS = None
    late = []
    if KERNELS and "PARBAKE_KERNELS" not in os.environ and loaded.parbake_set_default(b"PARBAKE_KERNELS", os.fsencode(KERNELS)) != 0:
        late.append(KERNELS)
    installed = bundles()
    if installed and loaded.parbake_use_bundles(os.fsencode(":".join(installed))) != 0:
        late += installed
    if late:
        import warnings

        warnings.warn(
            f"the library of parbake was opened before by something else in this process\n  not used: {', '.join(late)}\n"
            "  help: call into parbake from Python first, or set PARBAKE_KERNELS and PARBAKE_BUNDLES before",
            RuntimeWarning,
            stacklevel=2,
        )
    return loaded


def bundles():
    """Folders of installed bundles, in the order of `sys.path`."""
    folders = (os.path.join(os.path.abspath(place), "parbake_bundles") for place in sys.path)
    return [folder for folder in dict.fromkeys(folders) if ":" not in folder and os.path.isdir(folder)]


def _load_module(file):
    try:
        import tvm_ffi
    except ImportError as error:
        raise Error(
            "calls go through TVM FFI, and it cannot be imported\n  expected: apache-tvm-ffi, 0.1.9 or newer\n"
            f"  got: {error}\n  help: pip install 'apache-tvm-ffi>=0.1.9,<0.2'"
        ) from error
    # The names are those that the library gives to its errors.
    for name, cls in (
        ("parbake.Error", Error),
        ("parbake.NotCoveredError", NotCoveredError),
        ("NotImplementedError", NotImplementedError),
    ):
        tvm_ffi.error.register_error(name, cls)
    return tvm_ffi.load_module(file)
