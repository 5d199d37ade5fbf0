//! Codes about bundles, and about the metadata of artifacts.

use super::{Code, row};

const AGAIN: &str = "Fetch or build the bundle again; `parbake verify FILE` checks every byte of it.";
const REPORT: &str = "This is a bug in what packs the bundle: please report it, with the command.";
const ENTRY: &str = "Nothing needs to be done where kernels may be compiled: the entry is made anew. `parbake cache verify` lists all such entries.";

pub(super) const BUNDLES: &[Code] = &[
    row(
        "PB-1301",
        "A bundle cannot be read",
        "The file system refused a read, or the file is not there. This says nothing about its contents.",
        "Check the path, the permissions, and the disk or network it is on.",
    ),
    row(
        "PB-1302",
        "A file is no bundle",
        "It does not begin with the magic `PARBAKE`.",
        "Name a `.pbk` file; `parbake inspect FILE` says what a file is.",
    ),
    row(
        "PB-1303",
        "A bundle has a format that this library does not read",
        "It was written by a newer version in a format that older readers would misunderstand.",
        "Update the library, or build the bundle with the version that reads it.",
    ),
    row(
        "PB-1304",
        "A bundle has the wrong length",
        "The file is shorter or longer than its header says: a download that was cut, for instance.",
        AGAIN,
    ),
    row("PB-1305", "A part of a bundle is damaged", "Its SHA-256 is not the one that is recorded.", AGAIN),
    row(
        "PB-1306",
        "A part of a bundle is malformed",
        "An offset, a count or a field that must be zero is not what it must be.",
        AGAIN,
    ),
    row(
        "PB-1307",
        "A bundle exceeds a limit",
        "A size in it is larger than is ever read, so that a hostile file cannot exhaust memory.",
        AGAIN,
    ),
    row(
        "PB-1308",
        "An entry of a bundle's index is wrong",
        "It is out of order, or points outside of its frame.",
        AGAIN,
    ),
    row(
        "PB-1309",
        "A part of a bundle does not inflate",
        "The compressed bytes do not give the stated number of bytes.",
        AGAIN,
    ),
    row(
        "PB-1310",
        "An image of a bundle is damaged",
        "Its SHA-256 is not the one of the index. It is never run.",
        AGAIN,
    ),
    row(
        "PB-1311",
        "An image of a bundle is not what the index says",
        "It is another kernel, or for another architecture. The cause says which.",
        AGAIN,
    ),
    row("PB-1312", "The details of a bundle cannot be read", "They are no JSON of the expected form.", AGAIN),
    row(
        "PB-1313",
        "The details of a bundle do not agree with its index",
        "Details and index name different images, targets or versions.",
        AGAIN,
    ),
    row(
        "PB-1314",
        "The version in a bundle's header is malformed",
        "The field is no ASCII text that is filled up with zeros.",
        AGAIN,
    ),
    row(
        "PB-1321",
        "Two images of the same spec and target",
        "A bundle holds one image for a spec and a target.",
        REPORT,
    ),
    row(
        "PB-1322",
        "Two specs with one source key",
        "Different specs claim to be compiled from the same sources.",
        REPORT,
    ),
    row(
        "PB-1323",
        "An image has an impossible size",
        "It is empty, or larger than an image may be.",
        "Compile it again; look at what the compiler left with `parbake show URI`.",
    ),
    row(
        "PB-1324",
        "An image to be packed is not what it is said to be",
        "Its architecture, suffix, kernel or completeness differ from what was asked for. It was not packed.",
        "Compile it again. If it comes back, please report it with the toolchain that `parbake toolchain list` names.",
    ),
    row(
        "PB-1325",
        "An image to be packed is of another toolkit",
        "The toolkit that is stated for it is not the one that its target takes.",
        REPORT,
    ),
    row(
        "PB-1326",
        "A part of a bundle would be too large",
        "More images were packed together than a bundle may hold.",
        "Build several bundles: fewer ops, or fewer targets each.",
    ),
    row(
        "PB-1327",
        "A part of a bundle cannot be compressed",
        "The compressor failed, most likely for lack of memory.",
        "Build with more memory, or fewer ops at once.",
    ),
    row(
        "PB-1328",
        "An image to be packed has no toolkit",
        "A verdict on a GPU image needs the toolkit that compiled it.",
        REPORT,
    ),
    row(
        "PB-1329",
        "The library's version does not fit a bundle's header",
        "It is too long, or no printable ASCII.",
        "Shorten the version in the root Cargo.toml.",
    ),
    row("PB-1331", "Metadata are too long", "A `meta.json` is larger than is ever read.", ENTRY),
    row(
        "PB-1332",
        "Metadata cannot be read",
        "A `meta.json` is no JSON, or has fields that are unknown, missing or of the wrong type.",
        ENTRY,
    ),
    row("PB-1333", "Metadata have another schema", "A version of the library with another schema wrote them.", ENTRY),
    row(
        "PB-1334",
        "Metadata name a file that they must not name",
        "The file of an artifact has a fixed name for each target, so that no path can lead out of its entry.",
        ENTRY,
    ),
    row(
        "PB-1341",
        "A lock is too long",
        "The file is larger than a lock ever is.",
        "Name a file that `parbake lock` wrote.",
    ),
    row(
        "PB-1342",
        "A lock cannot be read",
        "The file is no JSON, or has fields that are unknown, missing or of the wrong type.",
        "Write it again: `parbake lock …`.",
    ),
    row(
        "PB-1343",
        "A lock has another schema",
        "A version of the library with another schema wrote it.",
        "Write it again with this version: `parbake lock …`.",
    ),
    row(
        "PB-1351",
        "A recording is too long",
        "The file is larger than a recording ever is.",
        "Name a file that a program wrote with PARBAKE_RECORD.",
    ),
    row(
        "PB-1352",
        "A line of a recording is no record",
        "The line was changed, or the file is no recording. What a killed process leaves, the beginning of a line at the \
         end of the file or before the line of another process, is passed over and noted.",
        "Remove the line, or record again with PARBAKE_RECORD.",
    ),
    row(
        "PB-1353",
        "A recording has another schema",
        "A version of the library with another schema wrote it.",
        "Record again with this version.",
    ),
    row(
        "PB-1360",
        "A public key cannot be used",
        "PARBAKE_PUBLIC_KEYS or `--public-key` has a text that is no minisign public key, or names a file without one.",
        "Give the key itself (`RW…`), or the absolute path of a file that holds it.",
    ),
    row(
        "PB-1361",
        "A bundle is not signed",
        "A signature by one of the configured keys is required, and there is none beside the bundle.",
        "Get the `.minisig` file too, or sign the bundle: `parbake sign FILE --key …`.",
    ),
    row(
        "PB-1362",
        "A signature cannot be read",
        "The file system refused; this says nothing about the signature.",
        "Check the path and its permissions.",
    ),
    row(
        "PB-1363",
        "A signature is torn",
        "The file beside the bundle is cut, or was not written by minisign.",
        "Get it again from who signed the bundle.",
    ),
    row(
        "PB-1364",
        "A signature is of the old kind",
        "minisign once signed without prehashing; such signatures are not taken.",
        "Sign the bundle again, with `parbake sign` or a minisign of version 0.10 or newer.",
    ),
    row(
        "PB-1365",
        "A bundle is signed by another key",
        "The signature names a key that is not among the configured ones.",
        "Add the key to PARBAKE_PUBLIC_KEYS if you trust it. If you expected another one, do not use the bundle.",
    ),
    row(
        "PB-1366",
        "A signature is wrong",
        "The bundle, its signature or the comment was changed after it was signed. Nothing of the bundle was believed.",
        "Get both files again. If they stay wrong, do not use them.",
    ),
    row(
        "PB-1390",
        "A bundle belongs to another version of the library",
        "Versions of one caret range fit each other if the launch ABI is the same; these do not.",
        "Build the bundle with this library: `parbake build …`, or install the version that it was made for.",
    ),
    row(
        "PB-1391",
        "An installed bundle cannot be used",
        "A bundle that was installed, mostly by a data wheel, is damaged, or belongs to another version or launch ABI of \
         the library; each is named with both. Nothing was looked up: compiling instead would hide it.",
        "Run the command that is given for each: install the wheel that goes with this library, or remove it.",
    ),
];
