#!/usr/bin/env python3
"""Makes the compiled samples in this folder. See README.md.

    make.py TOOLKIT LIBNVRTC LIBNVRTC_BUILTINS LIBNVFATBIN

TOOLKIT is the version that the libraries must have, such as 13.0. Writes `<toolkit>-<arch>.cubin`, and fatbins made of
them, beside this script.
"""

import ctypes
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = b"""
extern "C" __constant__ float scale[4];
extern "C" __global__ void sample(float* out, const float* in, int n) {
  __shared__ float tile[128];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x] = i < n ? in[i] : 0.0f;
  __syncthreads();
  if (i < n) out[i] = tile[threadIdx.x ^ 1] * scale[i & 3];
}
#ifdef STACKED
extern "C" __global__ void stacked(int* out, int n) {
  volatile int local[16];
  for (int i = 0; i < 16; ++i) local[i] = n * i;
  *out = local[n & 15];
}
#endif
"""
ARCHS = {
    "12.9": ["75", "80", "90", "90a", "100", "100a", "100f", "120f"],
    "13.0": ["80", "90", "90a", "100", "100a", "100f", "120f"],
    "13.5": ["80", "90", "90a", "100", "100f"],
}


def main(toolkit, nvrtc_path, builtins_path, nvfatbin_path):
    ctypes.CDLL(builtins_path, mode=ctypes.RTLD_GLOBAL)
    nvrtc, nvfatbin = ctypes.CDLL(nvrtc_path), ctypes.CDLL(nvfatbin_path)
    major, minor = ctypes.c_int(), ctypes.c_int()
    check("nvrtcVersion", nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    if f"{major.value}.{minor.value}" != toolkit:
        sys.exit(f"{nvrtc_path}: expected version {toolkit}, got {major.value}.{minor.value}")
    made = {}
    for arch in ARCHS[toolkit]:
        made[arch] = compile_cubin(nvrtc, arch)
        write(f"{toolkit}-{arch}.cubin", made[arch])
    # The two sizes of entry headers: 90a has no options in its header, 100f has.
    for arch in ["90a", "100f"]:
        write(f"{toolkit}-{arch}.fatbin", fatbin(nvfatbin, [("cubin", arch, made[arch])]))
    if toolkit == "13.0":
        ptx = compile_ptx(nvrtc, "80")
        mixed = [("cubin", "80", made["80"]), ("cubin", "90", made["90"]), ("ptx", "80", ptx)]
        write(f"{toolkit}-mixed.fatbin", fatbin(nvfatbin, mixed))
        write(f"{toolkit}-ptx.fatbin", fatbin(nvfatbin, [("ptx", "80", ptx)]))
        write(f"{toolkit}-compressed.fatbin", fatbin(nvfatbin, [("cubin", "90a", made["90a"])], [b"-compress-all"]))
        # The vendor's packer checks little: these two it takes without a word.
        write(f"{toolkit}-90a-as-90.fatbin", fatbin(nvfatbin, [("cubin", "90", made["90a"])]))
        half = made["90a"][: len(made["90a"]) // 2]
        write(f"{toolkit}-half.fatbin", fatbin(nvfatbin, [("cubin", "90a", half)]))


def write(name, data):
    (HERE / name).write_bytes(data)
    print(f"{name} {len(data)}")


def check(what, status):
    if status != 0:
        sys.exit(f"{what}: status {status}")


def compile_cubin(nvrtc, arch):
    return program(nvrtc, f"--gpu-architecture=sm_{arch}", "nvrtcGetCUBINSize", "nvrtcGetCUBIN")


def compile_ptx(nvrtc, arch):
    return program(nvrtc, f"--gpu-architecture=compute_{arch}", "nvrtcGetPTXSize", "nvrtcGetPTX")


def program(nvrtc, option, size_call, get_call):
    handle = ctypes.c_void_p()
    check("create", nvrtc.nvrtcCreateProgram(ctypes.byref(handle), SOURCE, b"sample.cu", 0, None, None))
    # Only the samples for 80 hold the second kernel, to keep the others small.
    words = [option.encode(), b"--std=c++17"] + ([b"-DSTACKED"] if option.endswith("80") else [])
    options = (ctypes.c_char_p * len(words))(*words)
    check(f"compile {option}", nvrtc.nvrtcCompileProgram(handle, len(words), options))
    size = ctypes.c_size_t()
    check(size_call, getattr(nvrtc, size_call)(handle, ctypes.byref(size)))
    data = ctypes.create_string_buffer(size.value)
    check(get_call, getattr(nvrtc, get_call)(handle, data))
    nvrtc.nvrtcDestroyProgram(ctypes.byref(handle))
    return data.raw


def fatbin(nvfatbin, images, extra=()):
    handle, size = ctypes.c_void_p(), ctypes.c_size_t()
    words = [b"-64", b"-cuda", b"-host=linux", *(extra or [b"-compress=false"])]
    options = (ctypes.c_char_p * len(words))(*words)
    check("nvFatbinCreate", nvfatbin.nvFatbinCreate(ctypes.byref(handle), options, ctypes.c_size_t(len(words))))
    for kind, arch, data in images:
        length = ctypes.c_size_t(len(data))
        if kind == "cubin":
            check(f"add {arch}", nvfatbin.nvFatbinAddCubin(handle, data, length, arch.encode(), b""))
        else:
            check(f"add ptx {arch}", nvfatbin.nvFatbinAddPTX(handle, data, length, arch.encode(), b"", b""))
    check("size", nvfatbin.nvFatbinSize(handle, ctypes.byref(size)))
    out = ctypes.create_string_buffer(size.value)
    check("get", nvfatbin.nvFatbinGet(handle, out))
    nvfatbin.nvFatbinDestroy(ctypes.byref(handle))
    return out.raw


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
