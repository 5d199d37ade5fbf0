//! Codes of the command line itself.

use super::{Code, row};

pub(super) const CHECKOUT: &[Code] = &[
    row(
        "PB-3001",
        "A command needs a checkout",
        "`demo`, `test` and `bench` run in a checkout of Parbake, whose kernels PARBAKE_KERNELS names.",
        "Run it as `cargo parbake …` in a checkout.",
    ),
    row(
        "PB-3002",
        "The demo did not go as it should",
        "A step gave another result than it must. The steps are listed.",
        "`parbake doctor` shows what is missing; if nothing is, please report it.",
    ),
    row(
        "PB-3003",
        "Another process cannot be run",
        "A program that a command needs cannot be started, or failed.",
        "See the cause; it is the program's own message.",
    ),
    row(
        "PB-3004",
        "A test suite failed",
        "The output above says which test.",
        "Run the command that is named by itself.",
    ),
    row(
        "PB-3005",
        "An argument is not `name=value`",
        "Values of axes, tactics, shapes and scalars are written as one word with an equals sign.",
        "Write, for instance, `dtype=bf16`.",
    ),
    row(
        "PB-3006",
        "A bundle for a benchmark cannot be read",
        "The file given to `--bundle` is not there or may not be read.",
        "Name a readable `.pbk`.",
    ),
    row(
        "PB-3007",
        "A bundle that was just written does not open",
        "A benchmark wrote it and could not read it back.",
        "Check the temporary folder's file system; if it is fine, please report it.",
    ),
    row(
        "PB-3008",
        "Images cannot be extracted",
        "The folder given to `--extract` cannot be made or written.",
        "Name a folder that you may write to.",
    ),
    row(
        "PB-3009",
        "A bundle made for a benchmark is refused",
        "A benchmark made it in memory, and the reader does not take it.",
        "Please report it: this is a bug.",
    ),
];

pub(super) const COMMANDS: &[Code] = &[
    row("PB-3101", "A value is given twice", "An axis or tactic was named with two values.", "Leave one of them out."),
    row(
        "PB-3104",
        "There is no such family",
        "`--family` names none of the families of ops.",
        "`parbake ops` lists them.",
    ),
    row(
        "PB-3110",
        "A file cannot be read",
        "The file that was named is not there, is a folder, or may not be read.",
        "Check the path and its permissions.",
    ),
    row(
        "PB-3112",
        "A file is too large to be an image",
        "It is larger than any cubin or fatbin.",
        "Name a bundle, a fatbin or a cubin.",
    ),
    row(
        "PB-3113",
        "Bundles could not be verified",
        "Files that cannot be read are not verified, which says nothing of their contents.",
        "Check the paths, and run it again.",
    ),
    row(
        "PB-3120",
        "Nothing is known about a URI",
        "Neither the workspace nor a bundle has anything about it.",
        "Compile it with the command that the error prints, or name a bundle with `--bundle`.",
    ),
    row("PB-3121", "The beginning of a URI is that of several", "The candidates are listed.", "Give more of it."),
    row(
        "PB-3122",
        "Only a URI can be shown",
        "`parbake show` was given an op and values, and the op definitions cannot be read.",
        "Name a URI, or mend the definitions: `parbake doctor`.",
    ),
    row(
        "PB-3130",
        "The machine has problems",
        "`parbake doctor` found something that is there or was asked for and does not work, or that kernels can neither be built nor run here.",
        "Each finding that is marked as a problem comes with its fix.",
    ),
    row(
        "PB-3140",
        "A number is out of range",
        "An option of `parbake run` has a value beyond what makes sense.",
        "Use a value in the range that is named.",
    ),
    row(
        "PB-3141",
        "Tensors do not fit the machine",
        "The tensors and their float64 reference need more memory than is available.",
        "Name smaller sizes, as in `--shape rows=16`.",
    ),
    row(
        "PB-3145",
        "A lock or a recording cannot be read from its file",
        "The file that was named is not there or may not be read.",
        "Check the path. `parbake lock …` writes a lock, a program with PARBAKE_RECORD a recording.",
    ),
    row(
        "PB-3146",
        "A lock cannot be written",
        "The file that was named cannot be made or written.",
        "Name a file in a folder that you may write to.",
    ),
    row(
        "PB-3147",
        "No spec of a lock exists for the targets",
        "None of the lock's specs can be built for any of the architectures asked for. The reasons are listed.",
        "Name other targets with `--arch`, or write the lock again.",
    ),
    row(
        "PB-3148",
        "A measurement has no folder",
        "A temporary folder cannot be made.",
        "Set TMPDIR to a folder that you may write to.",
    ),
    row(
        "PB-3149",
        "A measurement was not of what it should be",
        "The kernel should have come from the store and did not, so no figure is given.",
        "See that the temporary folder can be written: `parbake doctor`.",
    ),
    row(
        "PB-3150",
        "There is no such error code",
        "`parbake explain` was given a code that no error has.",
        "`parbake explain` without a code lists all of them.",
    ),
    row(
        "PB-3151",
        "The store has no such entry",
        "No entry of the workspace's store has a URI, source key or build key that begins with what was given.",
        "`parbake cache list` lists the entries. `parbake show` also looks into bundles.",
    ),
    row(
        "PB-3152",
        "The store has damaged entries",
        "Contents of entries are not what their metadata say: a disk that fails, a copy that was cut, or somebody who wrote there. None of them is run.",
        "Each is made anew when it is next compiled. `parbake cache prune --damaged` removes them all.",
    ),
    row(
        "PB-3153",
        "It is not known which entries are stale",
        "The library's definitions or sources cannot be read, so nothing can be said about what they want.",
        "`parbake doctor` says what is wrong with them.",
    ),
    row(
        "PB-3154",
        "Nothing was removed",
        "`parbake cache clear` was not confirmed: the answer was no, or there is no terminal to ask on.",
        "Add `--yes`.",
    ),
    row(
        "PB-3160",
        "A damaged bundle is not packed",
        "Every byte is verified before a bundle goes into a wheel.",
        "Build the bundle again; `parbake verify` says what is wrong.",
    ),
    row(
        "PB-3161",
        "A bundle without images is not packed",
        "A wheel is named after toolkits and targets of its images, and this bundle has none.",
        "`parbake inspect` shows what it holds; build it for the targets that are wanted.",
    ),
    row(
        "PB-3162",
        "Bundles that belong into one wheel do not go together",
        "Bundles of the same toolkits and targets are packed together. These have the same file name or are of different \
         versions.",
        "Rename one, or make a wheel of each, in folders of their own.",
    ),
    row("PB-3163", "A file cannot be named in a wheel", "Names in wheels are UTF-8.", "Rename the bundle."),
    row(
        "PB-3164",
        "A version that a wheel cannot have",
        "The library version in the bundle has no counterpart among the versions of Python packages.",
        "Build the bundle with a release of the library.",
    ),
    row(
        "PB-3165",
        "A bundle that would be installed and never found",
        "What looks for installed bundles reads files whose names end in `.pbk`, and this name does not.",
        "Rename the bundle.",
    ),
    row(
        "PB-3171",
        "A damaged bundle is not merged",
        "Every byte of each bundle is verified before anything is merged. What is wrong with it is listed by code.",
        "Build or fetch it again; `parbake verify FILE` says the same of it.",
    ),
    row(
        "PB-3172",
        "A bundle that was just packed does not verify",
        "What `parbake compile` packed is read once more before it is written, and it is not what was packed.",
        "This is a bug in what packs bundles, or a fault of the machine's memory: please report it, with the unit's file.",
    ),
    row(
        "PB-3173",
        "A unit's file cannot be read",
        "The file system refused a read, or the file is not there.",
        "Check the path and its permissions.",
    ),
    row(
        "PB-3174",
        "A plan's file cannot be read",
        "The file system refused a read, or the file is not there.",
        "Name the `plan.json` of a folder that `parbake build --plan json` wrote.",
    ),
    row(
        "PB-3180",
        "A comment is not one line",
        "The comment of a signature has a line break or another control character.",
        "Give one line of text.",
    ),
    row(
        "PB-3181",
        "A damaged bundle is not signed",
        "Every byte is verified before a signature vouches for it.",
        "Build the bundle again; `parbake verify` says what is wrong.",
    ),
    row(
        "PB-3182",
        "A key does not sign",
        "The secret key cannot be used for a signature.",
        "Make a new one: `parbake sign --generate-key …`.",
    ),
    row(
        "PB-3183",
        "A key or password file cannot be read",
        "The file system refused.",
        "Check the path and its permissions.",
    ),
    row(
        "PB-3184",
        "A file is no secret key",
        "It was not written by minisign, or the password is wrong.",
        "Name the secret key, and not the public one.",
    ),
    row(
        "PB-3185",
        "A secret key has no password",
        "It is as good as signed for anybody who can read it, so it is used only if that was said.",
        "Pass `--no-password` to use it all the same.",
    ),
    row(
        "PB-3186",
        "A password cannot be asked for",
        "There is no terminal.",
        "Pass `--password-file FILE`, or `--no-password` for a key without one.",
    ),
    row("PB-3187", "The passwords differ", "A new password is asked for twice.", "Run the command again."),
    row("PB-3188", "A key is there already", "A key is never overwritten.", "Choose another name."),
    row(
        "PB-3189",
        "No key was made",
        "The system gave no random numbers, or the key could not be encrypted.",
        "See the cause.",
    ),
    row(
        "PB-3190",
        "A replay gives another result",
        "The same call does not give the recorded values, or none that the reference allows.",
        "See what differs from the recorded call: kernel, target, toolkit, driver, settings.",
    ),
    row(
        "PB-3191",
        "A replayed call fails",
        "The kernel was launched with the recorded arguments and failed.",
        "The failure is in the message; if the recorded call failed too, it is reproduced.",
    ),
    row(
        "PB-3192",
        "A number of runs is out of range",
        "A call is replayed once at least.",
        "Give a number from 1 to 1000000.",
    ),
];

pub(super) const BENCHMARKS: &[Code] = &[
    row(
        "PB-3200",
        "The program that measures ops cannot be run",
        "`parbake bench` hands over to `python -m parbake.bench`, and there is no Python here that has it and PyTorch. \
         The cause is Python's own message.",
        "Install the wheel `parbake` and PyTorch into one environment, and put its Python first in PATH.",
    ),
    row(
        "PB-3201",
        "A file of rows cannot be read",
        "The file that was named is not there, may not be read, is no text, or is too large to hold rows.",
        "Name a file that `python -m parbake.bench --json` wrote.",
    ),
    row(
        "PB-3202",
        "A line is no row of a benchmark",
        "It is no JSON, lacks a field, is of another form than this program reads, or has times that no clock gives.",
        "Measure again with this version; remove lines that were added by hand.",
    ),
    row(
        "PB-3203",
        "A figure without a passed check",
        "A row says how fast a result came, and not that it was right. The benchmark writes no such row.",
        "Measure again. Nothing is said about the speed of a result that was not checked.",
    ),
    row(
        "PB-3204",
        "There are no figures to report",
        "The files have no rows, or every result in them was wrong.",
        "Measure something first.",
    ),
];

pub(super) const FLEET: &[Code] = &[
    row(
        "PB-3301",
        "A lock names no targets",
        "A lock may leave its targets to whoever reads it. Merged with others, or asked about, it needs some.",
        "Say what the job runs on: `--arch 80,90a`.",
    ),
    row(
        "PB-3302",
        "A job would compile, or lack, kernels",
        "Of what the lock or the recordings name, something is in no bundle: it would be compiled at its first call, or the \
         call would fail. Nothing was compiled or loaded to find that out.",
        "Run the command that the error names. `--allow-jit` lets pass what can be compiled.",
    ),
    row(
        "PB-3303",
        "A bundle and a lock are not compared",
        "`parbake diff` takes two files of one kind.",
        "`parbake coverage --lock F --bundle B` says what a bundle lacks of a lock.",
    ),
];
