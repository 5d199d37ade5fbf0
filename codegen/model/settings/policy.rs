//! Which bundles the settings let pass: without a signature, and between two versions.

/// What a bundle is that has no valid signature by one of the public keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignaturePolicy {
    /// Refused.
    Required,
    /// Used, with a warning.
    Warn,
    /// Used: signatures are not looked at.
    Off,
}

impl SignaturePolicy {
    /// The word in the setting.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Warn => "warn",
            Self::Off => "off",
        }
    }
}

/// The one pair of versions between which version and sources of a bundle need not agree with the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionBypass {
    /// The version that the bundle was made for.
    pub bundle: String,
    /// The version of this library.
    pub library: String,
}

impl std::fmt::Display for VersionBypass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.bundle, self.library)
    }
}

impl VersionBypass {
    /// Reads a pair whose second half is the version of this library; an error says what was expected.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let version = |v: &str| {
            let good = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
            v.starts_with(|c: char| c.is_ascii_digit()) && v.chars().all(good)
        };
        let pair = text.split_once(':').filter(|(bundle, library)| version(bundle) && version(library));
        match pair {
            Some((bundle, library)) if library == crate::VERSION => {
                Ok(Self { bundle: bundle.to_owned(), library: library.to_owned() })
            }
            Some((bundle, _)) => {
                Err(format!("`{bundle}:{0}`: this library is {0}, and the bypass names another", crate::VERSION))
            }
            None => Err(format!("`<bundle version>:<library version>`, as in `0.0.7:{}`", crate::VERSION)),
        }
    }
}
