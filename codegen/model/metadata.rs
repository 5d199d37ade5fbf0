//! `meta.json` of a store entry: everything that is needed to judge an artifact and to reproduce it.
//!
//! Canonical: one order of fields, two spaces, one newline at the end; the same value is the same bytes. Read strictly:
//! an unknown field or another schema is an error, because an entry that is not understood must be built again.

use crate::cubin::Resources;
use crate::digest::Digest;
use crate::identity::{Profile, Spec, build_key_by};
use crate::target::{Target, Toolkit};
use crate::verdict::Image;
use serde::{Deserialize, Serialize};

/// The schema that is written, and the only one that is read.
pub const SCHEMA: u32 = 1;

/// No longer text is read. Compiler logs are the only part that can grow.
pub const MAX_BYTES: usize = 4 << 20;

/// Name of the artifact of a GPU target in its entry.
pub const CUBIN_FILE: &str = "kernel.cubin";

/// Name of the artifact of a PTX target in its entry.
pub const PTX_FILE: &str = "kernel.ptx";

/// Name of the artifact of the host target in its entry.
pub const HOST_FILE: &str = "kernel.so";

/// What an artifact is and how it was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The op.
    pub op: String,
    /// Readable name of the spec.
    pub uri: String,
    /// The spec.
    pub spec: Spec,
    /// The kernel's name.
    pub entry: String,
    /// What it was compiled for.
    pub target: Target,
    /// The identity of what was compiled.
    pub source_key: Digest,
    /// The identity of the artifact.
    pub build_key: Digest,
    /// The launch ABI that it follows.
    pub launch_abi: u32,
    /// The version of the library that made it.
    pub library: String,
    /// The id of the toolchain.
    pub toolchain: String,
    /// The toolkit, unless it is for the host.
    pub toolkit: Option<Toolkit>,
    /// The options as the toolchain spells them, in order.
    pub options: Vec<String>,
    /// Which kind of build.
    pub profile: Profile,
    /// The digest of the artifact.
    pub image: Digest,
    /// Its size.
    pub size: u64,
    /// Its file's name: [`CUBIN_FILE`] or [`HOST_FILE`].
    pub file: String,
    /// What the kernel uses, if that is known.
    pub resources: Option<Resources>,
    /// How long the compilation took.
    pub compile_ms: u64,
    /// What the compiler said.
    pub log: String,
}

/// A text that is no metadata of this schema.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// Too long.
    #[error("the metadata is {size} bytes long; at most {MAX_BYTES} are read")]
    TooLong {
        /// Its size.
        size: usize,
    },
    /// Not JSON, or a field that is missing, unknown or of the wrong type.
    #[error("the metadata cannot be read")]
    Malformed(#[source] serde_json::Error),
    /// Written by a version with another schema.
    #[error("the metadata has schema {got}; this library reads schema {SCHEMA}")]
    Schema {
        /// The schema that it states.
        got: u64,
    },
    /// The artifact has another name than its target demands.
    #[error("the metadata names the file `{got}`; for {target} it is `{expected}`")]
    File {
        /// The target.
        target: Target,
        /// The name for that target.
        expected: &'static str,
        /// The name that it states.
        got: String,
    },
}

impl MetadataError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLong { .. } => "PB-1331",
            Self::Malformed(_) => "PB-1332",
            Self::Schema { .. } => "PB-1333",
            Self::File { .. } => "PB-1334",
        }
    }
}

impl Metadata {
    /// The build key that follows from the other fields.
    #[must_use]
    pub fn build(&self) -> Digest {
        let Self { source_key, target, toolchain, options, profile, library, .. } = self;
        build_key_by(*source_key, *target, toolchain, options, *profile, library).digest
    }

    /// The name of the artifact's file for a target.
    #[must_use]
    pub fn file_for(target: Target) -> &'static str {
        match target {
            Target::Host => HOST_FILE,
            Target::Sm(..) => CUBIN_FILE,
            Target::Compute(..) => PTX_FILE,
        }
    }

    /// What a verdict needs to know.
    #[must_use]
    pub fn judged(&self) -> Image {
        self.toolkit
            .map_or(Image { target: self.target, ..Image::HOST }, |toolkit| Image { target: self.target, toolkit })
    }

    /// The canonical text.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("bug: metadata is plain data");
        text.push('\n');
        text
    }

    /// Reads a text.
    ///
    /// # Errors
    /// A text that is too long, of another schema, or malformed in any way.
    pub fn from_json(text: &[u8]) -> Result<Self, MetadataError> {
        #[derive(Deserialize)]
        struct OnlySchema {
            schema: u64,
        }
        if text.len() > MAX_BYTES {
            return Err(MetadataError::TooLong { size: text.len() });
        }
        let OnlySchema { schema } = serde_json::from_slice(text).map_err(MetadataError::Malformed)?;
        if schema != u64::from(SCHEMA) {
            return Err(MetadataError::Schema { got: schema });
        }
        let metadata: Self = serde_json::from_slice(text).map_err(MetadataError::Malformed)?;
        let expected = Self::file_for(metadata.target);
        if metadata.file != expected {
            // A path here would be followed out of the entry.
            return Err(MetadataError::File { target: metadata.target, expected, got: metadata.file });
        }
        Ok(metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Metadata {
        Metadata {
            schema: SCHEMA,
            op: "rmsnorm".into(),
            uri: "rmsnorm-bf16-b1024-0123456789ab".into(),
            spec: Spec {
                op: "rmsnorm".into(),
                axes: vec![("dtype".into(), "bf16".into())],
                tactic: vec![("block".into(), 1024)],
                snippet: None,
                spec_id: Digest::of(b"spec"),
                uri: "rmsnorm-bf16-b1024-0123456789ab".into(),
            },
            entry: "rmsnorm_bf16_b1024_0123456789ab".into(),
            target: "sm_90a".parse().unwrap(),
            source_key: Digest::of(b"source"),
            build_key: Digest::of(b"build"),
            launch_abi: 1,
            library: "0.1.0".into(),
            toolchain: "nvrtc 13.0.88".into(),
            toolkit: Some(Toolkit { major: 13, minor: 0 }),
            options: vec!["--std=c++17".into()],
            profile: Profile::Release,
            image: Digest::of(b"image"),
            size: 5,
            file: CUBIN_FILE.into(),
            resources: Some(Resources { registers: 32, ..Resources::default() }),
            compile_ms: 130,
            log: "a \"log\"\nof two lines".into(),
        }
    }

    #[test]
    fn a_round_trip_is_exact_and_canonical() {
        let text = example().to_json();
        let read = Metadata::from_json(text.as_bytes()).unwrap();
        assert_eq!(read, example());
        assert_eq!(read.to_json(), text);
        assert!(text.ends_with("}\n"));
    }

    #[test]
    fn reading_is_strict() {
        let text = example().to_json();
        let error = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            Metadata::from_json(text.replacen(from, to, 1).as_bytes()).unwrap_err()
        };
        assert_eq!(
            error("\"schema\": 1", "\"schema\": 2").to_string(),
            "the metadata has schema 2; this library reads schema 1"
        );
        // Another schema is named even if its fields are others.
        assert_eq!(Metadata::from_json(b"{\"schema\": 7, \"kernel\": 1}").unwrap_err().code(), "PB-1333");
        assert_eq!(error("\"op\"", "\"opus\"").code(), "PB-1332");
        assert_eq!(error("kernel.cubin", "../../x").code(), "PB-1334");
        assert_eq!(error("kernel.cubin", "kernel.so").code(), "PB-1334");
        assert_eq!(error("sm_90a", "sm_91").code(), "PB-1332");
        assert_eq!(Metadata::from_json(b"").unwrap_err().code(), "PB-1332");
        assert_eq!(Metadata::from_json(&vec![b' '; MAX_BYTES + 1]).unwrap_err().code(), "PB-1331");
        for len in 0..text.trim_end().len() {
            assert!(Metadata::from_json(&text.as_bytes()[..len]).is_err());
        }
    }
}
