//! A forger of bundles: changes one part and makes everything else agree with it, checksums included, so that what lies
//! behind the checksums is tried. Written from the drawing in `codegen/model/bundle/mod.rs` and not with its code, which
//! would refuse to write most of what comes out here.

use parbake_model::Digest;

const HEADER: usize = 256;
const ENTRY: usize = 116;
const FRAME: usize = 48;
/// Nothing larger is inflated, so that trying is quick.
const LARGEST: u64 = 4 << 20;

/// A bundle in its parts.
struct Parts {
    header: Vec<u8>,
    entries: Vec<u8>,
    /// Rows of the frame table; places, sizes and hashes are filled in anew.
    rows: Vec<u8>,
    /// Inflated.
    details: Vec<u8>,
    /// Inflated.
    frames: Vec<Vec<u8>>,
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize)
}

fn long(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?)).ok()
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(place) = bytes.get_mut(at..at + N) {
        place.copy_from_slice(&value);
    }
}

fn inflate(bytes: &[u8]) -> Option<Vec<u8>> {
    let size = zstd::zstd_safe::get_frame_content_size(bytes).ok()??;
    (size <= LARGEST).then(|| zstd::bulk::decompress(bytes, size as usize).ok())?
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 1).expect("memory is compressed")
}

fn take_apart(bytes: &[u8]) -> Option<Parts> {
    let header = bytes.get(..HEADER)?.to_vec();
    let (entries, frames) = (number(&header, 24)?, number(&header, 28)?);
    let (index, details, size) = (long(&header, 32)?, long(&header, 80)?, long(&header, 88)?);
    let rows_at = index.checked_add(entries.checked_mul(ENTRY)?)?;
    let rows = bytes.get(rows_at..rows_at.checked_add(frames.checked_mul(FRAME)?)?)?.to_vec();
    let mut inflated = Vec::new();
    for row in rows.chunks_exact(FRAME) {
        let at = long(row, 0)?;
        inflated.push(inflate(bytes.get(at..at.checked_add(number(row, 8)?)?)?)?);
    }
    let details = inflate(bytes.get(details..details.checked_add(size)?)?)?;
    Some(Parts { header, entries: bytes.get(index..rows_at)?.to_vec(), rows, details, frames: inflated })
}

/// Puts the parts together. What is only counted or hashed is made right; what is told stays as it was forged.
fn put_together(mut parts: Parts) -> Vec<u8> {
    let details = deflate(&parts.details);
    let packed: Vec<Vec<u8>> = parts.frames.iter().map(|f| deflate(f)).collect();
    parts.entries.truncate(parts.entries.len() / ENTRY * ENTRY);
    parts.rows.resize(packed.len() * FRAME, 0);
    for entry in parts.entries.chunks_exact_mut(ENTRY) {
        let image = || {
            let (frame, at, size) = (number(entry, 104)?, number(entry, 108)?, number(entry, 112)?);
            parts.frames.get(frame)?.get(at..at.checked_add(size)?).map(Digest::of)
        };
        if let Some(digest) = image() {
            put(entry, 72, digest.0);
        }
    }
    let index_size = parts.entries.len() + parts.rows.len();
    let mut at = HEADER + index_size + details.len();
    for ((row, packed), raw) in parts.rows.chunks_exact_mut(FRAME).zip(&packed).zip(&parts.frames) {
        put(row, 0, (at as u64).to_le_bytes());
        put(row, 8, (packed.len() as u32).to_le_bytes());
        put(row, 12, (raw.len() as u32).to_le_bytes());
        put(row, 16, Digest::of(packed).0);
        at += packed.len();
    }
    let index = [parts.entries, parts.rows].concat();
    let header = &mut parts.header;
    header.resize(HEADER, 0);
    put(header, 16, (at as u64).to_le_bytes());
    put(header, 24, ((index_size - packed.len() * FRAME) as u32 / ENTRY as u32).to_le_bytes());
    put(header, 28, (packed.len() as u32).to_le_bytes());
    put(header, 32, (HEADER as u64).to_le_bytes());
    put(header, 40, (index_size as u64).to_le_bytes());
    put(header, 48, Digest::of(&index).0);
    put(header, 80, ((HEADER + index_size) as u64).to_le_bytes());
    put(header, 88, (details.len() as u64).to_le_bytes());
    put(header, 96, (parts.details.len() as u64).to_le_bytes());
    put(header, 104, Digest::of(&details).0);
    seal(header);
    [&parts.header[..], &index, &details, &packed.concat()].concat()
}

/// The header's own checksum.
fn seal(header: &mut [u8]) {
    let sum = Digest::of(&header[..224]);
    put(header, 224, sum.0);
}

/// The hashes of the tables and of the header, for bytes that stay where they are.
fn reseal(bytes: &mut [u8]) {
    let index = || bytes.get(HEADER..HEADER.checked_add(long(bytes, 40)?)?).map(Digest::of);
    if let Some(index) = index() {
        put(bytes, 48, index.0);
    }
    seal(bytes);
}

/// Changes a bundle in one place, which the seed chooses, by `change`. `None` if it is not to be forged: it is too
/// broken to be taken apart, or it is time for a change without a forged checksum.
pub fn forge(bytes: &[u8], seed: u32, mut change: impl FnMut(&mut Vec<u8>)) -> Option<Vec<u8>> {
    let (kind, place) = (seed % 16, seed as usize / 16);
    match kind {
        0 => return None,
        // Sizes, counts and places as they are forged; only the hashes agree.
        1..=3 => {
            let mut bytes = bytes.to_vec();
            let end = HEADER.checked_add(long(&bytes, 40)?)?.min(bytes.len());
            let (start, end) = if kind == 1 { (0, 224.min(end)) } else { (HEADER.min(end), end) };
            let mut part = bytes[start..end].to_vec();
            change(&mut part);
            part.resize(end - start, 0);
            bytes[start..end].copy_from_slice(&part);
            if bytes.len() >= HEADER {
                reseal(&mut bytes);
            }
            return Some(bytes);
        }
        _ => {}
    }
    let mut parts = take_apart(bytes)?;
    match kind {
        4 | 5 => change(&mut parts.header),
        6..=8 if !parts.entries.is_empty() => {
            // One entry at a time: an insertion would shift all that follow.
            let row = place % (parts.entries.len() / ENTRY) * ENTRY;
            let mut entry = parts.entries[row..row + ENTRY].to_vec();
            change(&mut entry);
            entry.resize(ENTRY, 0);
            parts.entries[row..row + ENTRY].copy_from_slice(&entry);
        }
        9 if !parts.frames.is_empty() => drop(parts.frames.remove(place % parts.frames.len())),
        10 if !parts.entries.is_empty() => {
            let row = place % (parts.entries.len() / ENTRY) * ENTRY;
            parts.entries.drain(row..row + ENTRY);
        }
        11 | 12 if !parts.frames.is_empty() => {
            let frame = place % parts.frames.len();
            change(&mut parts.frames[frame]);
        }
        _ => change(&mut parts.details),
    }
    Some(put_together(parts))
}
