//! Codes of the library at run time: the store, calls, the driver.

use super::{Code, row};

pub(super) const STORE: &[Code] = &[
    row(
        "PB-1601",
        "The store cannot be read or written",
        "The file system refused: no permission, no space, a network file system that went away. An entry that cannot be read may be fine, and is left alone. Compiled kernels stay in memory.",
        "Check the workspace with `parbake doctor`, or set PARBAKE_WORKSPACE to another folder.",
    ),
    row(
        "PB-1602",
        "An entry of the store is damaged",
        "Its contents are not what its metadata and its place say. It is never run. Where kernels may be compiled it is put aside and made anew; with JIT off it is left as it is.",
        "`parbake cache verify` lists damaged entries; allow compiling once, or remove them with `parbake cache prune --damaged`.",
    ),
    row(
        "PB-1603",
        "A folder is not private",
        "The workspace, a part of it or the folder of toolchains belongs to somebody else, or others may write into it. What is found there would be run, so it is left alone.",
        "Take the permission away (chmod go-w), or set PARBAKE_WORKSPACE to a folder of yours. PARBAKE_WORKSPACE_SHARED=on trusts the folder's group.",
    ),
    row(
        "PB-1604",
        "There is no room for an entry of the store",
        "The disk or a quota is full. The kernel was compiled and stays in memory; nothing half-written is left.",
        "Make room, as with `parbake cache prune --max-size 1G`, or set PARBAKE_STORE to a folder with more.",
    ),
    row(
        "PB-1605",
        "The store is on a file system that can only be read",
        "Kernels that are compiled stay in memory, and are compiled again by the next process.",
        "Set PARBAKE_WORKSPACE to a folder that can be written, or ship bundles.",
    ),
    row(
        "PB-1606",
        "The store lies on two file systems",
        "An entry becomes visible by a rename, which does not work across file systems.",
        "Let PARBAKE_STORE be one file system: nothing mounted below it.",
    ),
    row(
        "PB-1620",
        "An entry of the store is of another version",
        "It is whole, but the library that made it does not fit this one. It is left alone, because both may share a workspace.",
        "Nothing needs to be done. `parbake cache prune --stale` removes entries that the library here does not use.",
    ),
];

pub(super) const CALLS: &[Code] = &[
    row(
        "PB-2001",
        "The arguments of a call do not fit the op",
        "Number, type, rank, sizes, strides, alignment, aliasing or ranges are not what the signature says. All violations are listed; nothing was launched or written.",
        "Pass what the error expects; `parbake ops OP` shows the signature.",
    ),
    row(
        "PB-2002",
        "A kernel is not covered",
        "No bundle and no entry of the store has it for this target, and it may not or cannot be compiled. Everything that was searched is listed with the reason.",
        "Run the `parbake build` command that the error prints and load that bundle, or allow compiling with PARBAKE_JIT=on.",
    ),
    row(
        "PB-2003",
        "A result does not match its reference",
        "`parbake run` compares with a float64 reference, and an element lies outside of the op's tolerance.",
        "If the kernel was edited, it is wrong. If not, please report it with the output of `parbake doctor --json`.",
    ),
    row(
        "PB-2004",
        "Kernels of a job are not covered",
        "Some of what was asked for, all at once, is in no bundle and no store, and may not or cannot be compiled. All gaps are listed.",
        "Run the one `parbake build` command that the error prints, or allow compiling with PARBAKE_JIT=on.",
    ),
    row(
        "PB-2005",
        "Several kernels failed",
        "Each has its own error, which is listed as a cause.",
        "See the causes; `parbake explain` says more about each code.",
    ),
    row(
        "PB-2006",
        "A lock names what does not exist",
        "The library has no such op or spec any more, or the combination is excluded now.",
        "Write the lock again: `parbake lock …`.",
    ),
    row(
        "PB-2007",
        "A kernel was compiled and not kept",
        "What is prepared must be there for the next process, and the store is switched off or cannot be written.",
        "See that PARBAKE_CACHE is on and the store can be written: `parbake doctor`.",
    ),
    row(
        "PB-2040",
        "A snippet cannot be used",
        "A caller's own source for an axis of an op has a name, a parameter or a function that the op cannot take, or reaches beyond itself: directives and what depends on the time of the build are barred. Everything that is wrong is listed.",
        "Change it as the error says; docs/attention.md says what a snippet is.",
    ),
];

pub(super) const DRIVER: &[Code] = &[
    row(
        "PB-2101",
        "The driver shows no GPU",
        "The driver works and lists no device.",
        "See CUDA_VISIBLE_DEVICES, and whether the container was given a GPU; `--target host` runs on the CPU.",
    ),
    row(
        "PB-2102",
        "A driver call failed",
        "The CUDA driver gave an error that has no code of its own here; its name and the call are in the message.",
        "See the driver's error; `parbake doctor` says what it finds of driver and devices.",
    ),
    row(
        "PB-2103",
        "The driver refuses an image that every check passed",
        "Our verdict, the checksum and a reading of the image said that it fits. This is a bug, ours or the driver's.",
        "Please report it, with the whole text and `parbake doctor --json`.",
    ),
    row(
        "PB-2104",
        "A kernel failed on the host target",
        "The host target checks accesses and barriers while it runs a kernel, and a rule was broken.",
        "Correct the kernel; the message names thread and access.",
    ),
    row(
        "PB-2110",
        "There is no CUDA driver library",
        "None of the names by which the system knows it can be opened; each attempt is listed.",
        "Install the NVIDIA driver, or give the container a GPU; `--target host` runs on the CPU.",
    ),
    row(
        "PB-2111",
        "The driver is too old for this library",
        "It lacks a function that exists since CUDA 12.0.",
        "Install a driver of version 525 or newer.",
    ),
    row(
        "PB-2112",
        "A stub stands in for the driver",
        "A toolkit has a library of the driver's name to link against; it does nothing.",
        "Remove the toolkit's folder `stubs` from LD_LIBRARY_PATH.",
    ),
    row(
        "PB-2113",
        "Driver library and kernel module differ",
        "They are of different versions, as after an update without a restart.",
        "Restart the machine, or install one of the two anew.",
    ),
    row(
        "PB-2114",
        "The compatibility package does not support this GPU",
        "CUDA's forward compatibility library was found first, and it is for data centre GPUs only.",
        "Remove it from LD_LIBRARY_PATH, or install a newer driver.",
    ),
    row(
        "PB-2115",
        "The driver does not start",
        "Its initialisation failed; the driver's own error is in the message.",
        "See what `nvidia-smi` and the kernel's log say.",
    ),
    row(
        "PB-2116",
        "There is no device of that number",
        "Devices are counted from 0 among those that CUDA_VISIBLE_DEVICES shows.",
        "`parbake doctor` lists the devices.",
    ),
    row(
        "PB-2117",
        "A device does not answer",
        "The driver lists it, and asking it failed. Others may work.",
        "See what `nvidia-smi` says of it, and leave it out with CUDA_VISIBLE_DEVICES.",
    ),
    row(
        "PB-2118",
        "A forked process uses the driver",
        "The process was forked from one that had initialised the driver, which does not survive that.",
        "Start workers by spawning; in Python: the method `spawn` of multiprocessing.",
    ),
    row(
        "PB-2119",
        "An image is not what it is taken for",
        "It was read once more at the load, and is not one complete image of its target with its kernel. Nothing of it was run.",
        "Make the bundle again, or remove the entry from the store: `parbake cache prune --damaged`.",
    ),
    row(
        "PB-2120",
        "A call would break a graph capture",
        "A stream is being captured, and the call is not allowed meanwhile. It was not made.",
        "Do it before the capture begins. Loads and launches are allowed; preparing a spec loads it ahead.",
    ),
    row(
        "PB-2121",
        "The device is out of memory",
        "A load or a launch needs memory of the device, and there is none.",
        "Free some: other processes (`nvidia-smi`), or the caches of a framework.",
    ),
    row(
        "PB-2122",
        "A context is unusable",
        "A kernel failed, maybe not one of ours: an illegal access, a time-out, an assertion. The driver refuses every call afterwards.",
        "End the process. CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer finds the kernel.",
    ),
    row(
        "PB-2123",
        "No device here is of that architecture",
        "A target was named to run on, and none of the devices is one.",
        "Leave out `--target` to run on the first device, or use `--target host`.",
    ),
    row(
        "PB-2124",
        "An image of the host target cannot be loaded",
        "The dynamic loader refused the shared object.",
        "See whether the system allows code in memory (memfd), and whether a compiler of another machine made it.",
    ),
    row(
        "PB-2130",
        "A dump cannot be read",
        "A file of it is not there, or the file system refused.",
        "Name the folder that holds `call.json`; it belongs to whoever made the call.",
    ),
    row(
        "PB-2131",
        "A dump is not whole, or not one",
        "A file of it is not what this library writes: cut, changed, or of another format. Nothing of it was used.",
        "Copy the folder again, or make the dump again with PARBAKE_LOG=10.",
    ),
    row(
        "PB-2132",
        "A dump holds no values",
        "The call was made while its stream was being captured, when nothing can be read.",
        "Make the call without a CUDA graph and with PARBAKE_LOG=10.",
    ),
    row(
        "PB-2133",
        "A dump is of another signature",
        "The op has other tensors or scalars now than when the call was made.",
        "Replay it with the library that made it; `call.json` names the version.",
    ),
    row(
        "PB-2134",
        "A dump does not fit into memory",
        "Its tensors, with the gaps between their rows, and the float64 reference are larger than what is free.",
        "Replay it on a machine with more memory.",
    ),
    row(
        "PB-2135",
        "A dump is of a call of several ranks",
        "A collective alone would wait for the other ranks, and the addresses of their memory mean nothing any more. Nothing was run.",
        "Its inputs are in the dump: run all ranks on them again.",
    ),
    row(
        "PB-2150",
        "An argument of a C function cannot be used",
        "A function of parbake.h was given a null pointer where one is not allowed, or a text that it cannot read. Nothing was done.",
        "Pass what the error expects; the comments in parbake.h say what each function takes.",
    ),
    row(
        "PB-2151",
        "Parbake panicked",
        "A rule of its own does not hold. The panic was caught where the host called in; the process goes on.",
        "Please report it, with the whole text and `parbake doctor --json`.",
    ),
    row(
        "PB-2160",
        "The pools of a group do not go together",
        "Handles are none or not in the order of ranks, or pools differ in size. None was opened.",
        "Every rank makes a pool of the same size, and opens the handles of all ranks in the order of ranks.",
    ),
    row(
        "PB-2161",
        "A rank of a group is out of reach",
        "Its pool is on another host, or in memory that only its process has.",
        "Use NCCL for such groups: torch.distributed, for one.",
    ),
    row(
        "PB-2162",
        "A GPU cannot reach the memory of another",
        "The driver says that there is no peer access between two GPUs of a group.",
        "See `nvidia-smi topo -p2p r`, and whether a virtual machine or an IOMMU is between; NCCL works without.",
    ),
    row(
        "PB-2163",
        "A pool cannot be shared with another process",
        "The driver gave no handle of the memory, or did not open it in another process.",
        "Containers need one IPC namespace (`--ipc=host`), and each rank needs to see all GPUs.",
    ),
];
