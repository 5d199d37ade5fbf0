"""What a row says of the machine: GPU, driver, clocks, versions, settings."""

import ctypes
import importlib
import importlib.metadata
import os
import platform

CLOCK_SM = 1


class Nvml:
    """A few figures of NVML, by ctypes. Where it is not there every answer is None."""

    def __init__(self, uuid=None):
        self.device = None
        try:
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            self.library = None
            return
        device = ctypes.c_void_p()
        if self.library.nvmlInit_v2() != 0:
            self.library = None
        elif uuid and self.library.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode(), ctypes.byref(device)) == 0:
            self.device = device

    def driver(self):
        text = ctypes.create_string_buffer(80)
        if self.library is None or self.library.nvmlSystemGetDriverVersion(text, 80) != 0:
            return None
        return text.value.decode()

    def clock_mhz(self):
        return self._number("nvmlDeviceGetClockInfo", ctypes.c_int(CLOCK_SM))

    def power_w(self):
        milliwatts = self._number("nvmlDeviceGetPowerUsage")
        return None if milliwatts is None else milliwatts / 1e3

    def _number(self, call, *arguments):
        if self.library is None or self.device is None:
            return None
        value = ctypes.c_uint()
        status = getattr(self.library, call)(self.device, *arguments, ctypes.byref(value))
        return value.value if status == 0 else None


class Machine:
    """The facts, gathered once."""

    def __init__(self, device, ours=()):
        torch = device.torch
        self.cpu = platform.processor() or platform.machine()
        self.gpu = self.target = None
        uuid = None
        if device.kind == "cuda":
            self.gpu = device.properties.name
            self.target = "sm_{}{}".format(*torch.cuda.get_device_capability(device.index))
            uuid = str(getattr(device.properties, "uuid", "")) or None
        self.nvml = Nvml(uuid)
        self.ours = frozenset(ours)
        self.versions = versions()

    def facts(self):
        """The part that is the same for all rows of a run."""
        return {
            "gpu": self.gpu,
            "cpu": self.cpu,
            "driver": self.nvml.driver(),
            "versions": self.versions,
            "settings": settings(self.ours),
        }

    def state(self):
        """The part that changes from one figure to the next."""
        return {"clock_mhz": self.nvml.clock_mhz(), "power_w": self.nvml.power_w()}


def settings(ours=()):
    """Every PARBAKE_ variable that is set, except those that the harness itself set."""
    return {k: v for k, v in sorted(os.environ.items()) if k.startswith("PARBAKE_") and k not in ours}


# Distribution names, where they are not those of the module.
PACKAGES = {"torch": "torch", "triton": "triton", "flashinfer": "flashinfer-python", "tvm_ffi": "apache-tvm-ffi"}


def versions():
    """Versions of what takes part. Nothing is imported for them."""
    import parbake

    found = {"python": platform.python_version(), "parbake": parbake.__version__}
    for name, package in PACKAGES.items():
        try:
            found[name] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    try:
        import torch

        found |= {"torch": str(torch.__version__)} | ({"cuda": torch.version.cuda} if torch.version.cuda else {})
    except ImportError:
        pass
    return found
