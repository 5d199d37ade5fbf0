//! What the signature of a bundle is worth here, for the commands that look at bundles.

use parbake::signature::{self, KeyId, Keys, SignatureError, Signed};
use parbake_model::report::Report;
use parbake_model::settings::{Config, SignaturePolicy};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// How far a bundle can be trusted.
#[derive(Serialize)]
#[serde(tag = "signature", rename_all = "lowercase")]
pub(crate) enum Seal {
    /// A key of ours signed it.
    Valid(Signed),
    /// Keys are configured, and none of them vouches for it.
    Invalid { code: &'static str, why: String },
    /// There are no keys to check it with.
    Unchecked {
        /// Who is said to have signed.
        key: KeyId,
    },
    /// It has none, and none is asked for.
    None,
}

/// The keys to check with, and what a bundle is that they do not vouch for.
pub(crate) struct Trust {
    keys: Keys,
    policy: SignaturePolicy,
}

impl Trust {
    /// Of the settings.
    pub(crate) fn of(config: &Config) -> Result<Self, Report> {
        let keys = Keys::of(config).map_err(|e| e.report())?;
        Ok(Self { keys, policy: config.signature })
    }

    /// Of keys named on the command line, which are required then.
    pub(crate) fn named(keys: &[String]) -> Result<Self, Report> {
        let keys = Keys::read(keys).map_err(|e| e.report())?;
        Ok(Self { keys, policy: SignaturePolicy::Required })
    }

    /// Judges the bytes that a signature covers.
    ///
    /// # Errors
    /// A signature that is required and not right.
    pub(crate) fn judge(&self, bundle: &Path, bytes: &[u8]) -> Result<Seal, SignatureError> {
        if self.policy == SignaturePolicy::Off {
            return Ok(signature::claimed(bundle).map_or(Seal::None, |key| Seal::Unchecked { key }));
        }
        self.decide(signature::check(&self.keys, bundle, bytes))
    }

    /// Whether signatures are looked at.
    pub(crate) fn looks(&self) -> bool {
        self.policy != SignaturePolicy::Off
    }

    /// Judges bytes by a signature that was read already, if there is one; both come from `place`.
    ///
    /// # Errors
    /// A signature that is required and not right.
    pub(crate) fn judge_text(&self, place: &str, text: Option<&str>, bytes: &[u8]) -> Result<Seal, SignatureError> {
        let place = PathBuf::from(place);
        match text {
            _ if !self.looks() => Ok(Seal::None),
            Some(text) => self.decide(signature::check_text(&self.keys, place, text, bytes)),
            None => self.decide(Err(SignatureError::Missing { expected: self.keys.words(), place })),
        }
    }

    fn decide(&self, found: Result<Signed, SignatureError>) -> Result<Seal, SignatureError> {
        match found {
            Ok(signed) => Ok(Seal::Valid(signed)),
            Err(e) if self.policy == SignaturePolicy::Warn => Ok(Seal::Invalid { code: e.code(), why: e.words() }),
            Err(e) => Err(e),
        }
    }
}

impl Seal {
    /// On one line.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Valid(signed) => format!("valid, by {} ({})", signed.key, signed.comment.replace('\t', ", ")),
            Self::Invalid { code, why } => format!("NOT VALID: {code}: {why}"),
            Self::Unchecked { key } => format!("by {key}, not checked: no keys are set (PARBAKE_PUBLIC_KEYS)"),
            Self::None => "none".to_owned(),
        }
    }
}
