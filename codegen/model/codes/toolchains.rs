//! Codes about toolchains: finding, running and installing compilers.

use super::{Code, row};

pub(super) const TOOLCHAINS: &[Code] = &[
    row(
        "PB-1501",
        "No compiler was found",
        "Every place where NVRTC, nvFatbin or nvcc may lie was searched. The error lists each with the reason why it does not serve; one whose major version exceeds the driver's is passed over.",
        "`parbake toolchain install 12.9`, or name a library in PARBAKE_NVRTC.",
    ),
    row(
        "PB-1502",
        "A compiler's library cannot be loaded",
        "The dynamic loader refused it: it is cut, for another system, or lacks a library of its own.",
        "`parbake toolchain install 12.9` brings a complete one.",
    ),
    row(
        "PB-1503",
        "A compiler's library lacks a function",
        "It is older than CUDA 12.0, or not the library that its name says.",
        "`parbake toolchain install 12.9`, or name a newer library in PARBAKE_NVRTC.",
    ),
    row(
        "PB-1504",
        "What was found is no usable compiler",
        "The file is there and does not do what a compiler of that name does.",
        "See the reason that is named; `parbake toolchain install 12.9` brings one that works.",
    ),
    row(
        "PB-1505",
        "A compiler does not know the target",
        "The toolkit is too old for the architecture, or has dropped it.",
        "Take another toolkit: `parbake toolchain install 13.0`, and `--toolkit` for a bake.",
    ),
    row(
        "PB-1506",
        "A compilation was planned by another toolchain",
        "A compile manifest names the toolchain whose options it spells, and no other one runs it.",
        "Plan it again with the toolchain that is to run it.",
    ),
    row(
        "PB-1507",
        "A name or text cannot be given to a compiler",
        "A file name would leave the compilation's folder or look like an option, or a text holds a NUL byte.",
        "Rename the header, or correct the template.",
    ),
    row(
        "PB-1508",
        "A variable would change what the compiler does",
        "The environment variable adds options to an in-process compiler, and no key would show it.",
        "Unset the variable that is named.",
    ),
    row(
        "PB-1509",
        "The sources do not compile",
        "The compiler found errors; its log is in the error. Nothing is stored, and the next call tries again.",
        "Correct the kernel. The rendered unit lies in the workspace: `parbake show URI`.",
    ),
    row(
        "PB-1510",
        "A compiler refused its options",
        "An option is unknown to this version of the compiler.",
        "Take the toolkit that the options are for. If no setting of yours added them, please report it.",
    ),
    row(
        "PB-1511",
        "A call into a compiler's library failed",
        "The library gave a code that is neither an error in the sources nor in the options, such as an internal error or lack of memory.",
        "Try again with fewer jobs (PARBAKE_JOBS), or with another toolkit.",
    ),
    row(
        "PB-1512",
        "A compiler's output is not what was asked for",
        "It reported success, and what it left is empty, cut, for another architecture, or without the kernel. Exit status 0 is no proof, so the output is read, and nothing of it was stored.",
        "Compile it again. If it comes back, another toolkit helps, or an installation is damaged: `parbake doctor`.",
    ),
    row(
        "PB-1513",
        "A compiler's process cannot be run",
        "The program cannot be started, or not be waited for.",
        "Check that it exists and may be executed; `parbake doctor` names the compilers in use.",
    ),
    row(
        "PB-1514",
        "A compiler did not end in time",
        "It was killed with everything that it had started. What it had said by then is in the error.",
        "Try again on a machine with less load. If it hangs always, take another toolkit.",
    ),
    row(
        "PB-1515",
        "There is no C++ compiler",
        "The host target compiles with the system's C++ compiler, and none was found.",
        "Install g++ or clang++, or name one in CXX.",
    ),
    row(
        "PB-1516",
        "A compilation's files cannot be written or read",
        "The private folder of a compiler could not be made, filled or read; the cause says why.",
        "Make room in the temporary folder, or set TMPDIR to another one.",
    ),
    row(
        "PB-1517",
        "A compiler's thread cannot be started",
        "The system gives no more threads, or not the 16 MiB of stack that deep templates need.",
        "Raise the limits on threads and memory, or lower PARBAKE_JOBS.",
    ),
    row(
        "PB-1530",
        "There is no such component",
        "`parbake toolchain install` was given a name that is not in its table.",
        "Name 12.9, 13.0, 13.5 or libclang.",
    ),
    row(
        "PB-1531",
        "No wheels are pinned for this machine",
        "Compilers are installed from wheels with pinned digests, which exist for x86-64 Linux only so far.",
        "Use a compiler of your system: set CUDA_HOME or PARBAKE_NVRTC.",
    ),
    row(
        "PB-1532",
        "There is no Python",
        "Wheels are fetched through pip, and `python3` cannot be started.",
        "Install Python 3 with pip.",
    ),
    row(
        "PB-1533",
        "Python has no pip",
        "Wheels are fetched through pip.",
        "Install pip, as in `python3 -m ensurepip`.",
    ),
    row(
        "PB-1534",
        "A wheel is not the pinned one",
        "What the index sent does not have the digest that is written in the table. Nothing was installed.",
        "Use another index or mirror (PIP_INDEX_URL). Do not use what this one sends.",
    ),
    row(
        "PB-1535",
        "A wheel cannot be fetched",
        "The index cannot be reached, or does not have the pinned version.",
        "Check the network and PIP_INDEX_URL, or point PIP_FIND_LINKS at a folder of wheels.",
    ),
    row(
        "PB-1536",
        "There is no space to install a compiler",
        "The folder of toolchains or the temporary folder is full. Nothing was installed.",
        "Make room, or set PARBAKE_TOOLCHAINS or TMPDIR to another file system.",
    ),
    row(
        "PB-1537",
        "pip failed",
        "It ended with an error that is not one of the others, or not in time. Its last lines are in the error.",
        "See what pip says, and try again.",
    ),
    row(
        "PB-1538",
        "An installed compiler is incomplete",
        "Its folder lacks files, or has files of other sizes than its wheels list.",
        "Remove the folder that is named, and install it again.",
    ),
    row(
        "PB-1539",
        "The folder of toolchains cannot be used",
        "A folder or file below it cannot be made, written or renamed.",
        "Set PARBAKE_TOOLCHAINS to a folder that you may write to.",
    ),
];
