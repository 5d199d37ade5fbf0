//! Reads wheels: the bundles in one, and which version of the library it belongs to.

use parbake_model::bundle::Bundle;
use parbake_model::report::{Class, Report};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use zip::{CompressionMethod, ZipArchive};

/// A larger bundle is not read from a wheel.
const LARGEST: u64 = 4 << 30;

fn bad(path: &Path, why: impl std::fmt::Display) -> Report {
    Report::new("PB-3410", Class::Failed, format!("`{}` is no wheel that can be published", path.display()))
        .caused_by(why)
        .help("`parbake wheel` packs bundles into wheels; docs/packaging.md says how the wheel `parbake` is built")
}

/// The bundles in a wheel, with their places in it. They are opened, and not yet verified.
pub(in crate::cmd) fn bundles(path: &Path) -> Result<Vec<(String, Bundle)>, Report> {
    let file = File::open(path).map_err(|e| bad(path, e))?;
    let mut zip = ZipArchive::new(file).map_err(|e| bad(path, e))?;
    let (mut found, mut record) = (Vec::new(), false);
    for at in 0..zip.len() {
        // As it lies there: other files may be compressed, and are none of our business.
        let mut entry = zip.by_index_raw(at).map_err(|e| bad(path, e))?;
        let name = entry.name().map_err(|e| bad(path, e))?.into_owned();
        record |= name.ends_with(".dist-info/RECORD");
        if !name.ends_with(".pbk") {
            continue;
        }
        if entry.compression() != CompressionMethod::Stored || entry.size() > LARGEST {
            return Err(bad(path, format!("{name} in it is compressed, or larger than {LARGEST} bytes")));
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).map_err(|e| bad(path, format!("{name}: {e}")))?;
        let bundle = Bundle::open(bytes).map_err(|e| bad(path, format!("{name}: {}: {e}", e.code())))?;
        found.push((name, bundle));
    }
    if record { Ok(found) } else { Err(bad(path, "it has no list of its files (RECORD)")) }
}

/// The version of the library that a wheel without bundles belongs to, from its name: `parbake-0.2.0rc1-py3-…`.
pub(in crate::cmd) fn library(path: &Path, name: &str) -> Result<String, Report> {
    let version = name.split('-').nth(1).unwrap_or_default();
    let unknown = || bad(path, format!("`{version}` in its name is no version such as 0.1.0 or 0.2.0rc1"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let release = |text: &str| text.split('.').count() == 3 && text.split('.').all(digits);
    if release(version) {
        return Ok(version.to_owned());
    }
    for (short, long) in [("rc", "rc"), ("a", "alpha"), ("b", "beta")] {
        if let Some((base, number)) = version.split_once(short)
            && release(base)
            && digits(number)
        {
            return Ok(format!("{base}-{long}.{number}"));
        }
    }
    Err(unknown())
}

#[cfg(test)]
mod tests {
    use super::library;
    use std::path::Path;

    #[test]
    fn a_version_is_read_from_the_name() {
        let of = |name: &str| library(Path::new(name), name);
        for (name, version) in [
            ("parbake-0.1.0-py3-none-manylinux_2_34_x86_64.whl", "0.1.0"),
            ("parbake-0.2.0rc1-py3-none-any.whl", "0.2.0-rc.1"),
            ("parbake-1.2.3b0-py3-none-any.whl", "1.2.3-beta.0"),
        ] {
            assert_eq!(of(name).unwrap(), version);
        }
        for name in ["parbake.whl", "parbake-0.1-py3-none-any.whl", "parbake-0.1.0.dev1-py3-none-any.whl"] {
            assert_eq!(of(name).unwrap_err().code, "PB-3410", "{name}");
        }
    }
}
