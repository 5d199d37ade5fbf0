//! SHA-256 digests and the keys made of them.
//!
//! A key is a digest over named fields, each length-prefixed, under a domain tag: `("ab","c")` and `("a","bc")` differ,
//! and a key of one kind never equals a key of another kind. The fields are kept, so that a miss can be explained.

use serde::{Deserialize, Serialize};
use sha2::Digest as _;
use std::fmt;
use std::str::FromStr;

/// A SHA-256 value; text form is 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// The first `digits` hex digits, for names that people read.
    #[must_use]
    pub fn short(&self, digits: usize) -> String {
        let mut text = self.to_string();
        text.truncate(digits);
        text
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not 64 hex digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected 64 lower-case hex digits, got `{0}`")]
pub struct NotADigest(pub String);

impl FromStr for Digest {
    type Err = NotADigest;
    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let bad = || NotADigest(text.chars().take(80).collect());
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(bad());
        }
        let nibble = |c: u8| match c {
            b'0'..=b'9' => Some(c - b'0'),
            b'a'..=b'f' => Some(c - b'a' + 10),
            _ => None,
        };
        let mut out = [0; 32];
        for (i, byte) in out.iter_mut().enumerate() {
            let (high, low) = (nibble(digits[2 * i]), nibble(digits[2 * i + 1]));
            *byte = high.zip(low).map(|(h, l)| h << 4 | l).ok_or_else(bad)?;
        }
        Ok(Self(out))
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The named fields a key is made of, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFields {
    domain: &'static str,
    fields: Vec<(String, String)>,
}

impl KeyFields {
    /// Starts a key of the given kind.
    #[must_use]
    pub fn new(domain: &'static str) -> Self {
        Self { domain, fields: Vec::new() }
    }

    /// Adds one field. The order of the calls is part of the key.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl fmt::Display) -> Self {
        self.fields.push((name.into(), value.to_string()));
        self
    }

    /// Hashes what was added.
    #[must_use]
    pub fn finish(self) -> Key {
        let mut hash = sha2::Sha256::new();
        let mut put = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        put(self.domain.as_bytes());
        put(&(self.fields.len() as u64).to_le_bytes());
        for (name, value) in &self.fields {
            put(name.as_bytes());
            put(value.as_bytes());
        }
        Key { digest: Digest(hash.finalize().into()), domain: self.domain, fields: self.fields }
    }
}

/// A digest together with what went into it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Key {
    /// The value of the key.
    pub digest: Digest,
    /// What kind of key it is.
    pub domain: &'static str,
    /// The fields, in the order in which they were hashed.
    pub fields: Vec<(String, String)>,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.domain, self.digest)?;
        self.fields.iter().try_for_each(|(name, value)| writeln!(f, "  {name} = {value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_cannot_run_into_each_other() {
        let key = |a: &str, b: &str| KeyFields::new("t").with(a, b).finish().digest;
        assert_ne!(key("ab", "c"), key("a", "bc"));
        assert_ne!(KeyFields::new("t").with("a", "").with("b", "").finish().digest, key("a", "b"));
        assert_ne!(KeyFields::new("u").with("a", "b").finish().digest, key("a", "b"));
    }

    #[test]
    fn text_form_is_strict() {
        let digest = Digest::of(b"abc");
        assert_eq!(digest.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert!(digest.to_string().to_uppercase().parse::<Digest>().is_err());
        assert!("é".repeat(32).parse::<Digest>().is_err());
    }
}
