//! Codes about cubins and fatbins: what our own readers find wrong in an image.

use super::{Code, row};

const DAMAGED: &str =
    "Compile it again. In a bundle: fetch or build the bundle again; `parbake verify` checks all of it.";
const TOOLKIT: &str = "Build with a toolkit that this version knows: 12.9, 13.0 or 13.5.";

pub(super) const IMAGES: &[Code] = &[
    row("PB-1401", "A file is no cubin", "It does not begin as an ELF file for NVIDIA's architectures.", DAMAGED),
    row(
        "PB-1402",
        "A cubin is cut",
        "A part that its headers name ends behind the end of the file. The driver would take it.",
        DAMAGED,
    ),
    row("PB-1403", "Bytes follow a cubin", "The file is longer than its headers say.", DAMAGED),
    row(
        "PB-1404",
        "A cubin has an unknown ABI version",
        "A newer toolkit wrote it than this version can judge.",
        TOOLKIT,
    ),
    row(
        "PB-1405",
        "A cubin is malformed",
        "A table or string in it lies outside of its bounds, or has an impossible size.",
        DAMAGED,
    ),
    row(
        "PB-1406",
        "A cubin contradicts itself",
        "Two places in it that state the same thing, such as the architecture, do not agree.",
        DAMAGED,
    ),
    row("PB-1411", "A file is no fatbin", "It does not begin with a fatbin's magic number.", DAMAGED),
    row(
        "PB-1412",
        "A fatbin has an unknown field",
        "A header of it has a value that is not known, so nothing that follows can be trusted.",
        TOOLKIT,
    ),
    row("PB-1413", "A fatbin has the wrong length", "The length in its header is not that of the file.", DAMAGED),
    row("PB-1414", "A fatbin is cut", "An image in it ends behind the end of the file.", DAMAGED),
    row(
        "PB-1415",
        "A fatbin does not hold one image",
        "An image of a bundle is a fatbin with exactly one cubin, so that the choice between several is made here and not by the driver.",
        "Build the bundle with `parbake build`.",
    ),
    row(
        "PB-1416",
        "A fatbin is labelled for another target",
        "Its header names another architecture than the place where it stands.",
        DAMAGED,
    ),
    row(
        "PB-1417",
        "An image is compressed inside its fatbin",
        "Images are stored plain, because frames of a bundle are compressed as a whole and contents must be checked.",
        "Build the bundle with `parbake build`.",
    ),
    row("PB-1418", "The cubin inside a fatbin is damaged", "The cause says what is wrong with it.", DAMAGED),
    row(
        "PB-1419",
        "An image is not what its label says",
        "The code inside was compiled for another architecture than the label. The packer of the toolkit accepts this, and the driver as well.",
        DAMAGED,
    ),
    row("PB-1420", "An image lacks its kernel", "The function that would be launched is not in it.", DAMAGED),
    row(
        "PB-1421",
        "PTX states a version that its toolkit does not write",
        "The text and the toolkit it is said to be from do not belong together.",
        DAMAGED,
    ),
];
