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
];
