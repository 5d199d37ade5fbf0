//! Codes of tactics: what is blocked, what was tuned, what is forced.

use super::{Code, row};

pub(super) const TACTICS: &[Code] = &[
    row(
        "PB-2200",
        "A file of tactics cannot be read",
        "PARBAKE_BLOCKLIST or PARBAKE_TUNED names a file that is not there, or that the file system refuses. Nothing is launched without what it may say.",
        "Name a file that can be read, or unset the setting.",
    ),
    row(
        "PB-2201",
        "A file is no blocklist",
        "It is not JSON, lacks its schema or its entries, has something else beside them, or is of another schema. Nothing is launched with it.",
        "Write it again with `parbake tune --probe`, or correct it; docs/tune.md has the format.",
    ),
    row(
        "PB-2202",
        "An entry of a blocklist cannot be understood",
        "It lacks its op, what the kernel does or the reason, has a field that is not known, or a range that no version lies in. No entry is passed over, so the whole file is refused.",
        "Correct the entry whose number the error says.",
    ),
    row(
        "PB-2203",
        "An entry of a blocklist names what does not exist",
        "The library has no such op, axis, tactic or value. The entry may be misspelled, and then what it means to bar would be launched.",
        "Correct it; or, if it is about another version of the library, give it a range: \"library\": {\"below\": …}.",
    ),
    row(
        "PB-2204",
        "A kernel is blocked",
        "A blocklist bars everything that could serve the call on this device, driver, toolkit and library. Nothing was launched.",
        "The entry says why. Another element type or shape may be served by another tactic.",
    ),
    row(
        "PB-2211",
        "A file holds no tuned results",
        "It is not JSON, lacks a field, has one that is not known, or is of another schema.",
        "Write it again with `parbake tune`, or unset PARBAKE_TUNED.",
    ),
    row(
        "PB-2220",
        "A forced tactic is not legal for a call",
        "PARBAKE_TACTICS, or a measurement, names a tactic that the launcher does not offer for these arguments: their alignment, strides or sizes do not fit it. Nothing was launched.",
        "Unset PARBAKE_TACTICS, which is for diagnosis, or name one of those that are listed.",
    ),
    row(
        "PB-2221",
        "A timer does not measure there",
        "The device's clock is asked for where there is no such device, or it gave times that cannot be.",
        "Let `parbake tune` choose the timer, or name the other one.",
    ),
    row(
        "PB-2230",
        "A tactic does not end",
        "A kernel that is measured in this process ran past the limit. It cannot be ended by itself, so the process ended; nothing was kept.",
        "Find all that hang with `parbake tune --probe`, each in a process of its own, and set PARBAKE_BLOCKLIST to the file that it writes.",
    ),
    row(
        "PB-2231",
        "No tactic could be measured",
        "Every tactic of a point was wrong, blocked, not covered or could not be compiled; or the call has nothing to do.",
        "The table says why, for each tactic.",
    ),
    row(
        "PB-2232",
        "A tactic could not be tried",
        "Its process ended before the kernel ran, or for a reason that is not the kernel's: no compiler, no memory, no device. Nothing is said about it in the blocklist.",
        "Remove the reason that is told and probe again; what was found is kept.",
    ),
    row(
        "PB-2233",
        "There are no results to list",
        "PARBAKE_TUNED names no file.",
        "Set it to the files that `parbake tune` wrote.",
    ),
];
