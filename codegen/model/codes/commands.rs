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
];
