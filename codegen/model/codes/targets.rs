//! Codes about targets, and about images that do not run where they are wanted.

use super::{Code, row};

const REBUILD: &str = "Build the bundle again with that architecture in its list: `parbake build --arch …`. `parbake why` prints the command.";

pub(super) const TARGETS: &[Code] = &[
    row(
        "PB-1200",
        "A text names no target",
        "The architecture is not known, has a suffix that it does not have, or is misspelled. Known are numbers with an optional suffix (`80`, `90a`, `100f`), `sm_…`, `compute_…` and `host`.",
        "Use one of the names that the error lists.",
    ),
    row(
        "PB-1201",
        "An image is for another major architecture",
        "Machine code runs on devices of its own major compute capability only.",
        REBUILD,
    ),
    row(
        "PB-1202",
        "An image is for a newer minor architecture",
        "Machine code runs on its own minor version and on later ones of the same major version; this device has an earlier one.",
        REBUILD,
    ),
    row(
        "PB-1203",
        "An image is for exactly one other architecture",
        "Code for a target with the suffix `a` runs on that compute capability and on no other, newer ones included.",
        REBUILD,
    ),
    row(
        "PB-1204",
        "An image is for another family",
        "Code for a target with the suffix `f` runs within its family of architectures only.",
        REBUILD,
    ),
    row(
        "PB-1205",
        "A device is older than the PTX that is there",
        "PTX runs on its compute capability and on newer ones.",
        "Build for this device's architecture, or an older one.",
    ),
    row(
        "PB-1206",
        "An image is not promised to run on an integrated chip",
        "Binary compatibility between minor versions does not extend from discrete to integrated chips, or back.",
        REBUILD,
    ),
    row(
        "PB-1207",
        "PTX is newer than the driver",
        "The driver reads PTX up to the version of its own toolkit. Such PTX seems to load, and has no kernels then.",
        "Update the driver, or build with an older toolkit.",
    ),
    row(
        "PB-1208",
        "An image is of a newer major toolkit than the driver",
        "Machine code of a CUDA major version needs a driver for that major version or a newer one.",
        "Update the driver, or build with an older toolkit: `parbake build --toolkit 12.9 …`.",
    ),
    row(
        "PB-1209",
        "The driver is too old for the device's architecture",
        "The compute capability needs a newer driver than the one that was found or stated.",
        "Update the driver.",
    ),
    row(
        "PB-1210",
        "PTX would have to be compiled by the driver",
        "Only PTX is there, and translating it at load time was not asked for: it costs time in every process and is compiled by whatever driver is there.",
        REBUILD,
    ),
    row(
        "PB-1211",
        "An image is for the host, and a GPU is in use",
        "Shared objects of the host target do not run on a device.",
        REBUILD,
    ),
    row(
        "PB-1212",
        "An image is for a GPU, and the host is in use",
        "Nothing but an image of the host target runs on the CPU.",
        "Build with `host` in the list of targets, or use the GPU: `--target auto`.",
    ),
    row(
        "PB-1213",
        "An image runs on fewer devices than the target stands for",
        "A question about a target is answered for every device that it stands for; this image runs on some of them only.",
        "Build for the target itself, or ask about the device's own architecture.",
    ),
];
