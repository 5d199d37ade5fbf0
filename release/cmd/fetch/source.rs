//! Where bundles come from: a folder, or a web server.

#[cfg(feature = "network")]
use super::web::Web;
use parbake_model::report::{Class, Report};
use parbake_model::settings::Config;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

/// A place that `parbake publish` wrote, or a copy of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Source {
    Folder(PathBuf),
    /// A base address, without a slash at its end.
    Web(String),
}

/// Why a source was not of use.
pub(super) struct Refusal {
    /// There is no such file, which may be as it should.
    pub(super) absent: bool,
    pub(super) why: String,
}

impl Refusal {
    pub(super) fn of(why: impl Into<String>) -> Self {
        Self { absent: false, why: why.into() }
    }
}

/// A file of a source, from some byte on.
pub(super) struct Reply {
    /// The first byte that comes: another one than was asked for if the file is another one by now, or if the server knows
    /// no ranges.
    pub(super) start: u64,
    /// The size of the whole file, if it is said.
    pub(super) total: Option<u64>,
    /// What tells this state of the file from others.
    pub(super) etag: Option<String>,
    /// It is a page for people.
    pub(super) html: bool,
    pub(super) body: Box<dyn Read + Send>,
}

impl Source {
    /// Reads what was given: an `http://`, `https://` or `file://` address, or a path.
    pub(super) fn parse(text: &str) -> Result<Self, Report> {
        let bad = |why: &str| {
            Report::new("PB-3421", Class::Usage, format!("`{text}` is no source of bundles"))
                .with("expected", "a folder, or an address with http://, https:// or file://")
                .caused_by(why)
        };
        if let Some(path) = text.strip_prefix("file://") {
            let path = decoded(path).filter(|p| p.starts_with('/'));
            return path.map(|p| Self::Folder(p.into())).ok_or_else(|| bad("file:// is followed by an absolute path"));
        }
        if text.starts_with("http://") || text.starts_with("https://") {
            let host = text.split("//").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
            return if host.is_empty() || text.contains(['?', '#', ' ']) {
                Err(bad("a base address has a host, and neither `?` nor `#`"))
            } else {
                Ok(Self::Web(text.trim_end_matches('/').to_owned()))
            };
        }
        match text.split_once("://") {
            Some((scheme, _)) => Err(bad(&format!("nothing is fetched by {scheme}"))),
            None if text.is_empty() => Err(bad("it is empty")),
            None => Ok(Self::Folder(text.into())),
        }
    }

    /// Whether it is asked over the network.
    pub(super) fn is_web(&self) -> bool {
        matches!(self, Self::Web(_))
    }

    /// How people are told of it, without a password.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Folder(path) => path.display().to_string(),
            Self::Web(base) => match base.split_once("://") {
                Some((scheme, rest)) => match rest.split_once('/').map_or((rest, None), |(h, p)| (h, Some(p))) {
                    (host, path) if host.contains('@') => {
                        let host = host.rsplit('@').next().unwrap_or_default();
                        format!("{scheme}://…@{host}{}", path.map(|p| format!("/{p}")).unwrap_or_default())
                    }
                    _ => base.clone(),
                },
                None => base.clone(),
            },
        }
    }

    /// Gets ready to ask it. Nothing is asked yet.
    pub(super) fn open(&self, config: &Config) -> Result<Open, Refusal> {
        match self {
            Self::Folder(path) => Ok(Open::Folder(path.clone())),
            #[cfg(feature = "network")]
            Self::Web(base) => Web::new(base, config).map(Open::Web).map_err(Refusal::of),
            #[cfg(not(feature = "network"))]
            Self::Web(_) => {
                let _ = config;
                Err(Refusal::of("this program was built without the network (its feature `network`)"))
            }
        }
    }
}

/// Undoes `%20` and the like; none if what results is no text.
fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&byte, behind)) = rest.split_first() {
        let pair = (byte == b'%').then(|| behind.first_chunk::<2>()).flatten();
        let code = pair.and_then(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8(bytes).ok()
}

/// A source that can be asked.
pub(super) enum Open {
    Folder(PathBuf),
    #[cfg(feature = "network")]
    Web(Web),
}

impl Open {
    /// A file from some byte on, if it is still the one of that tag.
    pub(super) fn get(&self, path: &str, from: u64, etag: Option<&str>) -> Result<Reply, Refusal> {
        match self {
            Self::Folder(folder) => {
                // Nothing tells states of a file apart here; the hash will.
                let _ = etag;
                let path = folder.join(path);
                let refuse = |e: io::Error| {
                    let absent = e.kind() == io::ErrorKind::NotFound;
                    Refusal { absent, why: format!("cannot read {}: {e}", path.display()) }
                };
                let mut file = File::open(&path).map_err(refuse)?;
                let total = file.metadata().map_err(refuse)?.len();
                let start = if from <= total { from } else { 0 };
                file.seek(SeekFrom::Start(start)).map_err(refuse)?;
                Ok(Reply { start, total: Some(total), etag: None, html: false, body: Box::new(file) })
            }
            #[cfg(feature = "network")]
            Self::Web(web) => web.get(path, from, etag),
        }
    }

    /// All of a small file.
    pub(super) fn small(&self, path: &str, limit: u64) -> Result<Vec<u8>, Refusal> {
        let reply = self.get(path, 0, None)?;
        let long = || Refusal::of(format!("{path} is longer than the {limit} bytes that are read of it"));
        if reply.total.is_some_and(|total| total > limit) {
            return Err(long());
        }
        let mut bytes = Vec::new();
        let read = reply.body.take(limit + 1).read_to_end(&mut bytes);
        read.map_err(|e| Refusal::of(format!("{path}: {}", broken(&e, bytes.len() as u64, reply.total))))?;
        if bytes.len() as u64 > limit { Err(long()) } else { Ok(bytes) }
    }
}

/// What happened to a transfer that did not come to its end.
pub(super) fn broken(error: &io::Error, got: u64, total: Option<u64>) -> String {
    let of = total.map(|total| format!(" of {total}")).unwrap_or_default();
    if error.kind() == io::ErrorKind::TimedOut {
        format!("it stalled after {got}{of} bytes (PARBAKE_FETCH_STALL)")
    } else {
        format!("it broke off after {got}{of} bytes: {error}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_folders_and_addresses() {
        let of = |text: &str| Source::parse(text);
        let folder = |path: &str| Ok(Source::Folder(path.into()));
        assert_eq!(of("/srv/b"), folder("/srv/b"));
        assert_eq!(of("public"), folder("public"));
        assert_eq!(of("file:///srv/a%20b%"), folder("/srv/a b%"));
        assert_eq!(of("https://h.example/x/"), Ok(Source::Web("https://h.example/x".to_owned())));
        for bad in ["", "file://host/x", "ftp://h/x", "http://", "https:///x", "http://h/x?y", "http://h/ x"] {
            assert_eq!(of(bad).unwrap_err().code, "PB-3421", "{bad}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let shown = |text: &str| Source::parse(text).unwrap().shown();
        assert_eq!(shown("https://me:secret@h.example/x"), "https://…@h.example/x");
        assert_eq!(shown("https://me:secret@h.example"), "https://…@h.example");
        assert_eq!(shown("https://h.example/@x"), "https://h.example/@x");
    }
}
