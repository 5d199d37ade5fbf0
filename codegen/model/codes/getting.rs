//! Codes about getting bundles to where they are used.

use super::{Code, row};

pub(super) const GETTING: &[Code] = &[
    row(
        "PB-3401",
        "A file cannot be published",
        "It is neither a bundle nor a wheel, or its name has characters that some server, file system or shell takes for \
         something else.",
        "Rename it: letters, digits and `._-+,`, ending in `.pbk` or `.whl`.",
    ),
    row(
        "PB-3402",
        "A damaged bundle is not published",
        "Every byte of a bundle, also of one in a wheel, is verified before it is published.",
        "Build the bundle again; `parbake verify` says what is wrong.",
    ),
    row(
        "PB-3403",
        "Another file is published under that name",
        "What was published may have been fetched by somebody who counts on it, so it is never replaced.",
        "Give the new file another name.",
    ),
    row(
        "PB-3404",
        "A published index cannot be added to",
        "The `index.json` of the folder is damaged, or of a schema that this version does not write.",
        "Publish into another folder, or with the version that wrote this one.",
    ),
    row(
        "PB-3405",
        "A signed index would lose its signature",
        "The index in the folder is signed, and no key was given to sign the new one. Who requires signatures would \
         refuse all of it.",
        "Pass `--key FILE`.",
    ),
    row(
        "PB-3406",
        "A wheel has bundles of several versions",
        "Each version of the library has a folder of its own among what is published, so a wheel belongs to one.",
        "Pack the bundles again, with `parbake wheel`.",
    ),
    row(
        "PB-3407",
        "A published version has another launch ABI",
        "Bundles of one version of the library, but of different launch ABIs: builds of the library between two releases.",
        "Publish into a folder of its own.",
    ),
    row(
        "PB-3408",
        "A file to be published cannot be read",
        "The file system refused a read, or the file is not there.",
        "Check the path and its permissions.",
    ),
    row(
        "PB-3409",
        "A file changed while it was published",
        "It was verified, and then had other bytes. Nothing of it was published.",
        "Publish it again when nobody writes it any more.",
    ),
    row(
        "PB-3410",
        "A wheel cannot be published",
        "The file is no wheel, bundles in it are compressed or damaged, or its name has no version of the library.",
        "Pack it again; `parbake wheel` makes wheels of bundles.",
    ),
    row(
        "PB-3420",
        "There is nowhere to fetch from",
        "Neither `--from` nor PARBAKE_SOURCES names a source.",
        "Name a folder or an address that `parbake publish` filled.",
    ),
    row(
        "PB-3421",
        "Something is no source of bundles",
        "A source is a folder, or a base address with `http://`, `https://` or `file://`.",
        "Correct the address.",
    ),
    row(
        "PB-3422",
        "It is not known what to fetch for",
        "No architecture was named, and there is no GPU here.",
        "Name architectures: `--arch 80,90a`, or PARBAKE_ARCHS.",
    ),
    row(
        "PB-3423",
        "Bundles could not be fetched",
        "No source could give what was asked for. Each is listed with what was wrong: it could not be reached, its index or \
         a bundle is not what was signed or recorded, or it has nothing for these targets. Nothing that is wrong got under \
         the name of a bundle, and what came from other sources is there.",
        "Run it again if the network was at fault: what was received is gone on with. If a source serves wrong bytes, tell \
         who runs it.",
    ),
    row(
        "PB-3424",
        "Nothing may be fetched",
        "PARBAKE_OFFLINE is on, so no server was asked, not even for its name, and no folder has what is wanted. The error \
         lists what would have been asked for where.",
        "Copy the published folder to this machine and name it with `--from`, or unset PARBAKE_OFFLINE.",
    ),
    row(
        "PB-3425",
        "Bundles cannot be put into a folder",
        "The file system refused: no room, no right to write, or a file where a folder should be.",
        "Make room, or name another folder with `-o`.",
    ),
    row(
        "PB-3426",
        "No source has the bundles",
        "All sources are in order, and none has bundles of these ops for these targets.",
        "Name other sources, or build them with `parbake build`.",
    ),
    row(
        "PB-3427",
        "There is no folder for this user's bundles",
        "Neither XDG_DATA_HOME nor HOME is set, so the library looks only for bundles of the system.",
        "Name a folder with `-o`, and its bundles in PARBAKE_BUNDLES.",
    ),
];
