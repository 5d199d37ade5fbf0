//! Signatures of bundles: minisign, in a file of its own beside the bundle, over the bundle's header and index.
//!
//! Header and index hold the hashes of everything else, so a signature over them is one over the whole file, and a
//! bundle is opened without reading all of it. What is signed is a piece of the file that any minisign understands:
//! `head -c N norm.pbk | minisign -V -m - …`, with the N that `parbake inspect` shows.

use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use serde::Serialize;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// What the name of a signature has behind that of its bundle.
pub const SUFFIX: &str = ".minisig";

/// A signature has four lines; what is longer is none.
pub const MAX_BYTES: u64 = 16 << 10;

/// The id of a key pair, which key and signatures carry. Shown as minisign shows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KeyId([u8; 8]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016X}", u64::from_le_bytes(self.0))
    }
}

impl Serialize for KeyId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl KeyId {
    /// The id in a line of minisign: two bytes of algorithm, then the id, in base64.
    fn of_line(line: &str) -> Option<Self> {
        // Sixteen characters are the first twelve bytes.
        let mut bytes = Vec::with_capacity(12);
        for four in line.as_bytes().get(..16)?.chunks(4) {
            let digit = |c: &u8| ALPHABET.iter().position(|a| a == c);
            let bits = four.iter().try_fold(0, |bits, c| Some(bits << 6 | digit(c)?))?;
            bytes.extend([(bits >> 16) as u8, (bits >> 8) as u8, bits as u8]);
        }
        bytes[2..10].try_into().ok().map(Self)
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The public keys of those whose bundles are trusted.
#[derive(Clone, Debug, Default)]
pub struct Keys(Vec<(KeyId, minisign_verify::PublicKey)>);

/// A public key that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("`{given}` is no public key: {why}")]
pub struct BadKey {
    /// What was given: a key, or a path.
    pub given: String,
    /// What is wrong with it.
    pub why: String,
}

impl BadKey {
    /// For a person.
    #[must_use]
    pub fn report(&self) -> Report {
        Report::new("PB-1360", Class::Usage, "a public key cannot be used")
            .with("expected", "a minisign public key: `RW…`, or a file that holds one")
            .with("got", &self.given)
            .caused_by(&self.why)
            .help("PARBAKE_PUBLIC_KEYS lists them; `parbake sign --generate-key` makes a pair")
    }
}

impl Keys {
    /// The keys of the settings.
    ///
    /// # Errors
    /// The first that cannot be read or is no key.
    pub fn of(config: &Config) -> Result<Self, BadKey> {
        Self::read(&config.public_keys)
    }

    /// Reads keys, each a text that starts with `RW` or the path of a file that holds one.
    ///
    /// # Errors
    /// The first that cannot be read or is no key.
    pub fn read(given: &[String]) -> Result<Self, BadKey> {
        let key = |given: &String| {
            let bad = |why: String| BadKey { given: given.clone(), why };
            let text = if given.starts_with("RW") {
                given.clone()
            } else {
                let text = bounded(Path::new(given)).map_err(|e| bad(e.to_string()))?;
                // A file of minisign has a comment first; one that holds the bare key is as good.
                text.lines().map(str::trim).find(|l| l.starts_with("RW")).unwrap_or_default().to_owned()
            };
            let key = minisign_verify::PublicKey::from_base64(&text).map_err(|e| bad(e.to_string()))?;
            let id = KeyId::of_line(&text).ok_or_else(|| bad("it is no base64".to_owned()))?;
            Ok((id, key))
        };
        given.iter().map(key).collect::<Result<_, _>>().map(Self)
    }

    /// Their ids.
    pub fn ids(&self) -> impl Iterator<Item = KeyId> {
        self.0.iter().map(|(id, _)| *id)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In words: their ids, or that there are none.
    #[must_use]
    pub fn words(&self) -> String {
        let ids: Vec<String> = self.ids().map(|id| id.to_string()).collect();
        if ids.is_empty() { "no key at all".to_owned() } else { ids.join(" or ") }
    }
}

/// A text file of bounded size.
fn bounded(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it is longer than {MAX_BYTES} bytes")));
    }
    Ok(text)
}

/// A signature that was found right.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Signed {
    /// Who signed.
    pub key: KeyId,
    /// What the signer says, signed too.
    pub comment: String,
}

/// A bundle that none of the keys vouches for.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    /// There is no signature.
    #[error("it is not signed")]
    Missing {
        /// The keys that would do.
        expected: String,
        /// Where the signature should be.
        place: PathBuf,
    },
    /// The signature cannot be read. Not a sign of forgery.
    #[error("its signature cannot be read")]
    Io {
        /// The signature.
        place: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The file beside the bundle is no whole signature.
    #[error("the file of its signature is torn, or none of minisign")]
    Torn {
        /// The signature.
        place: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Made in minisign's old way, which hashes nothing.
    #[error("its signature is of minisign's old kind, without prehashing")]
    Legacy {
        /// The signature.
        place: PathBuf,
        /// Who signed.
        key: KeyId,
    },
    /// Signed by somebody else.
    #[error("it is signed by another key")]
    OtherKey {
        /// The keys that would do.
        expected: String,
        /// Who signed.
        got: KeyId,
    },
    /// Signed by that key, but other bytes.
    #[error("its signature is wrong: the bundle, or the signature, is not what key {key} signed")]
    Wrong {
        /// Who is said to have signed.
        key: KeyId,
    },
}

impl SignatureError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "PB-1361",
            Self::Io { .. } => "PB-1362",
            Self::Torn { .. } => "PB-1363",
            Self::Legacy { .. } => "PB-1364",
            Self::OtherKey { .. } => "PB-1365",
            Self::Wrong { .. } => "PB-1366",
        }
    }

    /// On one line, keys included.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Missing { expected, place } => {
                format!("{self}: expected {} by {expected}", place.display())
            }
            Self::Io { source, .. } => format!("{self}: {source}"),
            Self::Torn { why, .. } => format!("{self}: {why}"),
            Self::OtherKey { expected, got } => format!("{self}: expected {expected}, got {got}"),
            Self::Legacy { .. } | Self::Wrong { .. } => self.to_string(),
        }
    }

    /// For a person.
    #[must_use]
    pub fn report(&self, bundle: &Path) -> Report {
        let class = if matches!(self, Self::Io { .. }) { Class::Environment } else { Class::Failed };
        let report = Report::new(self.code(), class, format!("bundle {}: {self}", bundle.display()));
        let again = "take bundle and signature together from where they come; `parbake sign` signs one of yours";
        let report = match self {
            Self::Missing { expected, place } => report
                .with("expected", format!("a signature by {expected} in {}", place.display()))
                .with("got", "no such file"),
            Self::Io { place, source } => report.with("signature", place.display()).caused_by(source),
            Self::Torn { place, why } => report.with("signature", place.display()).caused_by(why),
            Self::Legacy { place, key } => report
                .with("signature", place.display())
                .with("expected", format!("a prehashed signature by {key}"))
                .with("got", "one without, as minisign made before 0.10 or with `-l`"),
            Self::OtherKey { expected, got } => report.with("expected", expected).with("got", got),
            Self::Wrong { key } => {
                report.with("expected", format!("header and index as key {key} signed them")).with("got", "other bytes")
            }
        };
        report.help(again)
    }
}

/// Where the signature of a bundle lies.
#[must_use]
pub fn beside(bundle: &Path) -> PathBuf {
    let mut name = OsString::from(bundle);
    name.push(SUFFIX);
    name.into()
}

/// Who is said to have signed a bundle; none if there is no signature that can be read. Proves nothing.
#[must_use]
pub fn claimed(bundle: &Path) -> Option<KeyId> {
    KeyId::of_line(bounded(&beside(bundle)).ok()?.lines().nth(1)?)
}

/// Checks the signature beside a bundle against the bytes that it covers.
///
/// # Errors
/// No signature, one that cannot be read, one by another key, or one of other bytes.
pub fn check(keys: &Keys, bundle: &Path, bytes: &[u8]) -> Result<Signed, SignatureError> {
    let place = beside(bundle);
    let text = match bounded(&place) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(SignatureError::Missing { expected: keys.words(), place });
        }
        Err(e) if e.kind() == io::ErrorKind::InvalidData => {
            return Err(SignatureError::Torn { place, why: e.to_string() });
        }
        Err(source) => return Err(SignatureError::Io { place, source }),
    };
    check_text(keys, place, &text, bytes)
}

/// Checks a signature that comes from `place` against the bytes that it covers.
///
/// # Errors
/// One by another key, or one of other bytes.
pub fn check_text(keys: &Keys, place: PathBuf, text: &str, bytes: &[u8]) -> Result<Signed, SignatureError> {
    let expected = keys.words();
    let torn = |why: String| SignatureError::Torn { place: place.clone(), why };
    let signature = minisign_verify::Signature::decode(text).map_err(|e| torn(e.to_string()))?;
    let line = text.lines().nth(1).unwrap_or_default();
    let id = KeyId::of_line(line).ok_or_else(|| torn("it is no base64".to_owned()))?;
    let Some((_, key)) = keys.0.iter().find(|(known, _)| *known == id) else {
        return Err(SignatureError::OtherKey { expected, got: id });
    };
    match key.verify(bytes, &signature, false) {
        Ok(()) => Ok(Signed { key: id, comment: signature.trusted_comment().to_owned() }),
        Err(minisign_verify::Error::UnexpectedAlgorithm) => Err(SignatureError::Legacy { place, key: id }),
        Err(_) => Err(SignatureError::Wrong { key: id }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Made by another implementation of minisign (py-minisign 0.21), over these bytes.
    const BYTES: &[u8] = b"header and index";
    const KEY: &str = "RWQRGFB9Gx9WZQu4AloqNTlHXB+0V+ig+yjEmIReM4ZfIeZ2E7Ey0YUs";
    const OTHER_KEY: &str = "RWSZG/iiS/m+LC8ZqAsAZPCAwYhoTQ8k0312WSGh31QV1BIG16z+ibsW";
    const SIGNATURE: &str = "untrusted comment: a test\n\
        RUQRGFB9Gx9WZQe5N1RTXuvx1F2JnSUOXd0o5rK2vx2Zk2nq105TJyN2JBC6hw+UmaEHI+dupot6PNVqFAMJz4zGFps6HGHsGw4=\n\
        trusted comment: for a test\n\
        elFSeUxLbIYE5RATYsGIkrO+33bpaZQ7yxfRT+yG+PodjqhP662DTuK0a4LDC2pwMWmGm4/v7OAhkgqxB44qBw==\n";
    const LEGACY: &str = "untrusted comment: a test\n\
        RWQRGFB9Gx9WZUuSiHx2Jyyved//sViF1DQPwsMmkKAbXbWr8Cx5+hWbl5pcnjDAHw1YQAa3n284jfq2mgmYyDYw+ZwGAl8vzg4=\n\
        trusted comment: for a test\n\
        xZmtk8OdAqyqFK0E+cvEtovPHdS23qyWdSegeiS4odN9aDSSTvUdaZwlepMNpCZw+ON5Nlbpew3yLLWTiDgqAA==\n";

    fn keys(texts: &[&str]) -> Keys {
        Keys::read(&texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    /// Checks a text that lies beside a bundle.
    fn checked(keys: &Keys, text: &str, bytes: &[u8]) -> Result<Signed, SignatureError> {
        let folder = tempfile::tempdir().unwrap();
        let bundle = folder.path().join("a.pbk");
        std::fs::write(folder.path().join("a.pbk.minisig"), text).unwrap();
        check(keys, &bundle, bytes)
    }

    #[test]
    fn a_signature_of_another_implementation_is_understood() {
        let signed = checked(&keys(&[OTHER_KEY, KEY]), SIGNATURE, BYTES).unwrap();
        assert_eq!((signed.key.to_string().as_str(), signed.comment.as_str()), ("65561F1B7D501811", "for a test"));
        assert!(checked(&keys(&[KEY]), &SIGNATURE.replace('\n', "\r\n"), BYTES).is_ok());
    }

    #[test]
    fn every_way_to_be_wrong_has_its_own_message() {
        let ours = keys(&[KEY]);
        let code = |keys: &Keys, text: &str, bytes: &[u8]| checked(keys, text, bytes).unwrap_err().code();
        assert_eq!(code(&ours, SIGNATURE, b"header and Index"), "PB-1366");
        assert_eq!(code(&ours, &SIGNATURE.replace("for a test", "for a fest"), BYTES), "PB-1366");
        assert_eq!(code(&ours, LEGACY, BYTES), "PB-1364");
        let other = checked(&keys(&[OTHER_KEY]), SIGNATURE, BYTES).unwrap_err();
        assert_eq!(other.words(), "it is signed by another key: expected 2CBEF94BA2F81B99, got 65561F1B7D501811");
        assert!(checked(&Keys::default(), SIGNATURE, BYTES).unwrap_err().words().contains("no key at all"));
        for cut in 0..SIGNATURE.len() - 2 {
            let code = code(&ours, &SIGNATURE[..cut], BYTES);
            assert!(["PB-1363", "PB-1366"].contains(&code), "{cut}: {code}");
        }
        assert_eq!(code(&ours, &"x".repeat(100_000), BYTES), "PB-1363");
        let folder = tempfile::tempdir().unwrap();
        let missing = check(&ours, &folder.path().join("a.pbk"), BYTES).unwrap_err();
        assert!(missing.code() == "PB-1361" && missing.words().contains("65561F1B7D501811"), "{missing:?}");
        std::fs::create_dir(folder.path().join("a.pbk.minisig")).unwrap();
        let unread = check(&ours, &folder.path().join("a.pbk"), BYTES).unwrap_err();
        assert_eq!((unread.code(), unread.report(Path::new("a.pbk")).class), ("PB-1362", Class::Environment));
    }

    #[test]
    fn what_is_no_key_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pub");
        let file = path.display().to_string();
        for text in [format!("untrusted comment: minisign public key\n{KEY}\n"), KEY.to_owned()] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(keys(&[&file]).ids().next().unwrap().to_string(), "65561F1B7D501811");
        }
        std::fs::write(&path, "no key\n").unwrap();
        for bad in ["RW", &KEY[..50], &KEY.replace('f', "!"), &file, "/nonexistent/key.pub"] {
            let report = Keys::read(&[bad.to_owned()]).unwrap_err().report();
            assert_eq!((report.code, report.class), ("PB-1360", Class::Usage), "{bad}");
        }
    }

    #[test]
    fn the_claimed_key_is_read_without_any_key() {
        let folder = tempfile::tempdir().unwrap();
        let bundle = folder.path().join("a.pbk");
        assert_eq!(claimed(&bundle), None);
        std::fs::write(beside(&bundle), SIGNATURE).unwrap();
        assert_eq!(claimed(&bundle).unwrap().to_string(), "65561F1B7D501811");
        std::fs::write(beside(&bundle), "a\nb").unwrap();
        assert_eq!(claimed(&bundle), None);
    }
}
