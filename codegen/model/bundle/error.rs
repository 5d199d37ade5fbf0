//! What can be wrong with a bundle, and with what is put into one.

use super::{FORMAT, OLDEST_FORMAT};
use crate::digest::Digest;
use crate::fatbin::FatbinError;
use crate::target::{Target, Toolkit};
use std::fmt;
use std::io;

/// A part of a bundle that has its own hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// The header.
    Header,
    /// Entries and frame table.
    Index,
    /// The details.
    Details,
    /// The frame of that number.
    Frame(u32),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("header"),
            Self::Index => f.write_str("index"),
            Self::Details => f.write_str("details"),
            Self::Frame(number) => write!(f, "frame {number}"),
        }
    }
}

/// A bundle that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// It cannot be read. Not a sign of damage.
    #[error("cannot read the {part} of the bundle")]
    Io {
        /// What was to be read.
        part: Part,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Another kind of file.
    #[error("not a bundle: expected the magic `PARBAKE`, got {got}")]
    Foreign {
        /// What it looks like.
        got: String,
    },
    /// A format that this library does not know, or no longer.
    #[error(
        "the bundle has format {format} and needs a reader of format {oldest_reader} or newer; this library reads \
         formats {OLDEST_FORMAT} to {FORMAT}"
    )]
    Format {
        /// Its format.
        format: u32,
        /// The oldest format whose readers can read it.
        oldest_reader: u32,
    },
    /// It was cut, or something was appended.
    #[error("the bundle is {got} bytes long; expected {expected}")]
    Length {
        /// The size that it states.
        expected: u64,
        /// Its size.
        got: u64,
    },
    /// Altered bytes.
    #[error("the {part} of the bundle is damaged: expected SHA-256 {expected}, got {got}")]
    Checksum {
        /// Which part.
        part: Part,
        /// The hash that is stated.
        expected: Digest,
        /// The hash of what is there.
        got: Digest,
    },
    /// Parts that do not follow each other, or reserved bytes that are not zero.
    #[error("the {part} of the bundle is malformed: {what}: expected {expected}, got {got}")]
    Layout {
        /// Which part.
        part: Part,
        /// Which field.
        what: &'static str,
        /// What it must be.
        expected: u64,
        /// What it is.
        got: u64,
    },
    /// A version that is no text.
    #[error("the header of the bundle is malformed: the library's version is no zero-padded ASCII text")]
    Library,
    /// Larger than is allowed, whatever its hash says.
    #[error("the {part} of the bundle exceeds a limit: {what} is {got}, at most {limit} is read")]
    Limit {
        /// Which part.
        part: Part,
        /// What is too large.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// The size.
        got: u64,
    },
    /// A bad index entry.
    #[error("entry {index} of the bundle: {what}")]
    Entry {
        /// Its number.
        index: usize,
        /// What is wrong.
        what: String,
    },
    /// Bytes whose hash is right, but that do not inflate to what was stated.
    #[error("the {part} of the bundle does not inflate to {expected} bytes: {why}")]
    Inflate {
        /// Which part.
        part: Part,
        /// The size that is stated.
        expected: u64,
        /// What went wrong.
        why: String,
    },
    /// An image whose bytes are not those that were put in.
    #[error("the image of {source_key} for {target} is damaged: expected SHA-256 {expected}, got {got}")]
    Image {
        /// Its source key.
        source_key: Digest,
        /// Its target.
        target: Target,
        /// The hash that is stated.
        expected: Digest,
        /// The hash of what is there.
        got: Digest,
    },
    /// An image that is not what the index says.
    #[error("the image of {uri} for {target} is not what the index says")]
    Contents {
        /// The spec.
        uri: String,
        /// The target.
        target: Target,
        /// In which way.
        #[source]
        source: FatbinError,
    },
    /// Details that cannot be read.
    #[error("the details of the bundle cannot be read")]
    Details(#[source] serde_json::Error),
    /// Details that tell something else than the index.
    #[error("the details of the bundle do not agree with it: {what}")]
    Disagreement {
        /// In which way.
        what: String,
    },
}

impl BundleError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "PB-1301",
            Self::Foreign { .. } => "PB-1302",
            Self::Format { .. } => "PB-1303",
            Self::Length { .. } => "PB-1304",
            Self::Checksum { .. } => "PB-1305",
            Self::Layout { .. } => "PB-1306",
            Self::Limit { .. } => "PB-1307",
            Self::Entry { .. } => "PB-1308",
            Self::Inflate { .. } => "PB-1309",
            Self::Image { .. } => "PB-1310",
            Self::Contents { .. } => "PB-1311",
            Self::Details(_) => "PB-1312",
            Self::Disagreement { .. } => "PB-1313",
            Self::Library => "PB-1314",
        }
    }
}

/// Something that cannot be put into a bundle.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// Two images for the same source key and target.
    #[error("two images of {uri} for {target}: a bundle holds one")]
    Duplicate {
        /// The spec.
        uri: String,
        /// The target.
        target: Target,
    },
    /// The same source key with different details.
    #[error("{uri} and {other} have the same source key {source_key} but differ in their details")]
    Conflict {
        /// One spec.
        uri: String,
        /// The other.
        other: String,
        /// Their key.
        source_key: Digest,
    },
    /// An empty or a huge image.
    #[error("the image of {uri} for {target} has {size} bytes; expected 1 to {}", super::MAX_IMAGE)]
    Size {
        /// The spec.
        uri: String,
        /// The target.
        target: Target,
        /// Its size.
        size: usize,
    },
    /// An image that is not what it is said to be.
    #[error("the image of {uri} for {target} is not what it is said to be")]
    Contents {
        /// The spec.
        uri: String,
        /// The target.
        target: Target,
        /// In which way.
        #[source]
        source: FatbinError,
    },
    /// An image compiled by another toolkit than was said, or one said for the host.
    #[error("the image of {uri} for {target}: expected toolkit {}, got {}", or_none(.expected), or_none(.got))]
    Toolkit {
        /// The spec.
        uri: String,
        /// The target.
        target: Target,
        /// What the image says; none for the host.
        expected: Option<Toolkit>,
        /// What was said.
        got: Option<Toolkit>,
    },
    /// An image for a GPU without its toolkit, so that no verdict on it is possible.
    #[error("the image of {uri} for {target}: expected the toolkit that compiled it, got none")]
    NoToolkit {
        /// The spec.
        uri: String,
        /// The target.
        target: Target,
    },
    /// A library version that the header cannot hold.
    #[error(
        "the library version `{version}` does not fit: at most {} printable ASCII characters",
        super::LIBRARY_BYTES
    )]
    Library {
        /// What was given.
        version: String,
    },
    /// More than the format can hold.
    #[error("the {part} would have {got} bytes; at most {limit} are allowed")]
    TooLarge {
        /// Which part.
        part: Part,
        /// The limit.
        limit: u64,
        /// Its size.
        got: u64,
    },
    /// The compressor failed.
    #[error("cannot compress the {part}")]
    Compress {
        /// Which part.
        part: Part,
        /// Why.
        #[source]
        source: io::Error,
    },
}

fn or_none(toolkit: &Option<Toolkit>) -> String {
    toolkit.map_or_else(|| "none".to_owned(), |t| t.to_string())
}

impl PackError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Duplicate { .. } => "PB-1321",
            Self::Conflict { .. } => "PB-1322",
            Self::Size { .. } => "PB-1323",
            Self::Contents { .. } => "PB-1324",
            Self::Toolkit { .. } => "PB-1325",
            Self::TooLarge { .. } => "PB-1326",
            Self::Compress { .. } => "PB-1327",
            Self::NoToolkit { .. } => "PB-1328",
            Self::Library { .. } => "PB-1329",
        }
    }
}
