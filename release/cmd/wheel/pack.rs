//! Writes a wheel: a zip file with a record of everything in it. Nothing in it depends on when or where it was made.

use crate::cmd::build;
use parbake_model::report::Report;
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

/// That of the kernels.
const LICENSE: &str = include_str!("../../../LICENSE");

/// What pip is told.
pub(super) struct Metadata {
    /// The folder of the bundles, below site-packages, and what it is called in there.
    pub(super) folder: &'static str,
    pub(super) label: String,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) summary: String,
    /// A requirement, as in `parbake>=0.1,<0.2`.
    pub(super) requires: String,
    /// The last part of the tag.
    pub(super) platform: String,
}

/// A file that is packed.
pub(super) struct File {
    /// Below site-packages.
    pub(super) place: String,
    pub(super) path: PathBuf,
}

pub(super) fn tag(platform: &str) -> String {
    format!("py3-none-{platform}")
}

impl Metadata {
    /// Name and version, as file names have them.
    fn stem(&self) -> String {
        format!("{}-{}", self.name.replace('-', "_"), self.version)
    }

    pub(super) fn file_name(&self) -> String {
        format!("{}-{}.whl", self.stem(), tag(&self.platform))
    }

    fn metadata(&self) -> String {
        let Self { name, version, summary, requires, .. } = self;
        format!(
            "Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nSummary: {summary}\nLicense-Expression: {}\n\
             License-File: LICENSE\nRequires-Python: >=3.10\nRequires-Dist: {requires}\n",
            env!("CARGO_PKG_LICENSE")
        )
    }

    fn wheel(&self) -> String {
        let tag = tag(&self.platform);
        format!(
            "Wheel-Version: 1.0\nGenerator: parbake {}\nRoot-Is-Purelib: true\nTag: {tag}\n",
            parbake_model::VERSION
        )
    }
}

/// Writes the wheel whole or not at all; its size.
pub(super) fn write(wheel: &Path, metadata: &Metadata, mut files: Vec<File>) -> Result<u64, Report> {
    files.sort_by(|a, b| a.place.cmp(&b.place));
    let mut size = 0;
    build::write_with(wheel, |target| {
        let mut zip = ZipWriter::new(target);
        let mut record = String::new();
        for file in &files {
            let mut source = std::fs::File::open(&file.path)?;
            let length = source.metadata()?.len();
            zip.start_file(&file.place, options(length))?;
            record += &row(&file.place, &mut source, &mut zip)?;
        }
        // pip removes a folder with the last file that lies directly in it, so there is one.
        let note = format!("{}/{}.txt", metadata.folder, metadata.label);
        let folder = format!("{}.dist-info", metadata.stem());
        for (place, text) in [
            (note, format!("{}, version {}\n", metadata.summary, metadata.version)),
            (format!("{folder}/METADATA"), metadata.metadata()),
            (format!("{folder}/WHEEL"), metadata.wheel()),
            (format!("{folder}/licenses/LICENSE"), LICENSE.to_owned()),
        ] {
            zip.start_file(&place, options(0))?;
            record += &row(&place, &mut text.as_bytes(), &mut zip)?;
        }
        let place = format!("{folder}/RECORD");
        record += &format!("{},,\n", field(&place));
        zip.start_file(&place, options(0))?;
        zip.write_all(record.as_bytes())?;
        size = zip.finish()?.metadata()?.len();
        Ok(())
    })?;
    Ok(size)
}

/// Stored as it is: a bundle is compressed already. The time is the first that a zip file can state.
fn options(length: u64) -> SimpleFileOptions {
    SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .last_modified_time(DateTime::default())
        .unix_permissions(0o644)
        .large_file(length >= u64::from(u32::MAX))
}

/// Copies a file and gives its row of the record.
fn row(place: &str, source: &mut dyn Read, target: &mut dyn Write) -> std::io::Result<String> {
    let (mut digest, mut length, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 20]);
    loop {
        let read = source.read(&mut buffer)?;
        if read == 0 {
            return Ok(format!("{},sha256={},{length}\n", field(place), base64(&digest.finalize())));
        }
        digest.update(&buffer[..read]);
        target.write_all(&buffer[..read])?;
        length += read;
    }
}

/// A field of the record, which is CSV.
fn field(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\"")).into()
    } else {
        text.into()
    }
}

/// Base64 for URLs, without padding, as records have it.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let number = group.iter().fold(0, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - group.len()));
        text.extend((0..=group.len()).map(|i| char::from(DIGITS[(number >> (18 - 6 * i)) as usize & 63])));
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn rows_of_a_record_are_csv() {
        let row = |name| super::row(name, &mut &b"f"[..], &mut Vec::new()).unwrap();
        assert!(row("a/80.pbk").starts_with("a/80.pbk,sha256="), "{}", row("a/80.pbk"));
        assert!(row("a/80,86.pbk").starts_with("\"a/80,86.pbk\",sha256="), "{}", row("a/80,86.pbk"));
        assert_eq!(super::field("a\"b"), "\"a\"\"b\"");
    }

    #[test]
    fn digests_are_spelled_as_pip_spells_them() {
        for (bytes, text) in [(&b""[..], ""), (b"f", "Zg"), (b"fo", "Zm8"), (b"foo", "Zm9v"), (&[0xfb, 0xff], "-_8")] {
            assert_eq!(super::base64(bytes), text);
        }
    }
}
