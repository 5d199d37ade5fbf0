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
];

pub(super) const DRIVER: &[Code] = &[
    row(
        "PB-2101",
        "There is no GPU to run on",
        "The driver library is not there, does not work, or shows no device of that number or architecture.",
        "`parbake doctor` says what is missing; `--target host` runs on the CPU.",
    ),
    row(
        "PB-2102",
        "A driver call failed",
        "The CUDA driver gave an error; its name and the call are in the message. After an illegal address the context is lost, and the process must be started again.",
        "See the driver's error. For an illegal access, run the program under compute-sanitizer.",
    ),
    row(
        "PB-2103",
        "The driver did not load an image",
        "The image had passed every check before it was handed to the driver.",
        "Please report it, with `parbake doctor --json`.",
    ),
    row(
        "PB-2104",
        "A kernel failed on the host target",
        "The host target checks accesses and barriers while it runs a kernel, and a rule was broken.",
        "Correct the kernel; the message names thread and access.",
    ),
];
