//! Reads a shared object far enough to say whether all of it is there and which functions it exports: a compiler that
//! reports success may have left half of one, or another one.

/// The names that a 64-bit little-endian shared object defines for others.
///
/// # Errors
/// What shows that it is no such file, or not all of it.
pub fn exports(bytes: &[u8]) -> Result<Vec<&str>, String> {
    const SHARED: u64 = 3;
    const DYNAMIC_SYMBOLS: u64 = 11;
    const NO_BITS: u64 = 8;
    if !bytes.starts_with(b"\x7fELF\x02\x01") || number(bytes, 16, 2) != Some(SHARED) {
        return Err("it is no 64-bit shared object".to_owned());
    }
    let cut = || format!("it is cut: {} bytes are there", bytes.len());
    let field = |at, size| number(bytes, at, size).ok_or_else(cut);
    let (table, size, count) = (field(40, 8)?, field(58, 2)?, field(60, 2)?);
    if size != 64 || count == 0 {
        return Err("it has no section headers".to_owned());
    }
    let table = table_of(bytes, table, size * count).ok_or_else(cut)?;
    let header = |i: u64, at, size| number(table, i as usize * 64 + at, size).unwrap_or(0);
    let section = |i: u64| table_of(bytes, header(i, 24, 8), header(i, 32, 8)).ok_or_else(cut);
    let mut names = Vec::new();
    for i in 0..count {
        let kind = header(i, 4, 4);
        let content = if kind == NO_BITS { &[] } else { section(i)? };
        if kind != DYNAMIC_SYMBOLS {
            continue;
        }
        let texts = header(i, 40, 4);
        let texts = if texts < count { section(texts)? } else { return Err("its symbols have no names".to_owned()) };
        for symbol in content.chunks_exact(24) {
            // Section 0 is where symbols of others are.
            let (name, defined) = (number(symbol, 0, 4).unwrap_or(0) as usize, number(symbol, 6, 2) != Some(0));
            let text = texts.get(name..).and_then(|t| t.split(|b| *b == 0).next());
            let text = text.and_then(|t| std::str::from_utf8(t).ok()).filter(|t| defined && !t.is_empty());
            names.extend(text);
        }
    }
    Ok(names)
}

fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(size)?)?;
    Some(field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn table_of(bytes: &[u8], start: u64, size: u64) -> Option<&[u8]> {
    let start = usize::try_from(start).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(size).ok()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The C library that this test runs on is one.
    fn sample() -> Vec<u8> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path = maps.lines().find_map(|line| line.find("/").map(|at| &line[at..]).filter(|p| p.contains("libc.so")));
        std::fs::read(path.unwrap()).unwrap()
    }

    #[test]
    fn exported_names_are_found() {
        let bytes = sample();
        assert!(exports(&bytes).unwrap().contains(&"malloc"));
    }

    #[test]
    fn a_cut_or_foreign_file_is_found_and_nothing_panics() {
        let bytes = sample();
        for length in (0..bytes.len()).step_by(bytes.len() / 97) {
            assert!(exports(&bytes[..length]).is_err(), "{length}");
        }
        assert!(exports(&bytes[..bytes.len() - 1]).is_err());
        assert!(exports(include_bytes!("testdata/13.0-90a.cubin")).is_err());
        let mut altered = bytes;
        for at in 0..64 {
            altered[at] ^= 0xff;
            let _ = exports(&altered);
            altered[at] ^= 0xff;
        }
    }
}
