//! Opening a bundle and taking images out of it.

use super::error::{BundleError, Part};
use super::{
    Details, ENTRY_BYTES, Entry, FORMAT, FRAME_BYTES, FRAME_RAW, Frame, HEADER_BYTES, Header, Item, MAGIC, MAX_DETAILS,
    MAX_IMAGE, MAX_INDEX, OLDEST_FORMAT, RESERVED, SpecDetails,
};
use crate::digest::Digest;
use crate::target::Target;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Something that can be read at any place, by several threads at once.
#[allow(clippy::len_without_is_empty)]
pub trait ReadAt {
    /// Fills the buffer from the bytes at `offset`.
    ///
    /// # Errors
    /// If they cannot be read, or are not all there.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// The number of bytes.
    ///
    /// # Errors
    /// If it cannot be found out.
    fn len(&self) -> io::Result<u64>;
}

impl ReadAt for std::fs::File {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, buf, offset)
    }
    fn len(&self) -> io::Result<u64> {
        self.metadata().map(|m| m.len())
    }
}

impl ReadAt for &[u8] {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).ok();
        let found = start.and_then(|start| self.get(start..start.checked_add(buf.len())?));
        buf.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        Ok((**self).len() as u64)
    }
}

impl ReadAt for Vec<u8> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.as_slice().read_exact_at(buf, offset)
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.as_slice().len() as u64)
    }
}

/// How many bytes the first read takes: the header and the index of some 500 images.
const FIRST_READ: u64 = 64 << 10;

/// How many inflated frames are kept, for loads of several kernels of one op. Frames above [`FRAME_RAW`] are not.
const KEPT_FRAMES: usize = 4;

type KeptFrames = VecDeque<(u32, Arc<[u8]>)>;

/// An open bundle. Shared between threads.
pub struct Bundle {
    source: Box<dyn ReadAt + Send + Sync>,
    pub(super) header: Header,
    header_digest: Digest,
    pub(super) entries: Vec<Entry>,
    pub(super) frames: Vec<Frame>,
    details: OnceLock<Details>,
    kept: Mutex<KeptFrames>,
}

impl std::fmt::Debug for Bundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bundle").field("index", &self.header.index).field("entries", &self.entries.len()).finish()
    }
}

fn checked(part: Part, expected: Digest, bytes: &[u8]) -> Result<(), BundleError> {
    let got = Digest::of(bytes);
    if got == expected { Ok(()) } else { Err(BundleError::Checksum { part, expected, got }) }
}

fn layout(part: Part, what: &'static str, expected: u64, got: u64) -> Result<(), BundleError> {
    if expected == got { Ok(()) } else { Err(BundleError::Layout { part, what, expected, got }) }
}

fn limit(part: Part, what: &'static str, limit: usize, got: u64) -> Result<(), BundleError> {
    if got <= limit as u64 { Ok(()) } else { Err(BundleError::Limit { part, what, limit: limit as u64, got }) }
}

/// What a file that is no bundle looks like.
fn describe(start: &[u8]) -> String {
    let known: [(&[u8], &str); 6] = [
        (b"\x7fELF", "an ELF file"),
        (b"PK\x03\x04", "a zip file"),
        (b"\x50\xed\x55\xba", "a fatbin"),
        (b"\x28\xb5\x2f\xfd", "a zstd file"),
        (b"\x1f\x8b", "a gzip file"),
        (b"version https://git-lfs", "a pointer of Git LFS: the file itself was not fetched"),
    ];
    if start.is_empty() {
        return "an empty file".to_owned();
    }
    let found = known.into_iter().find(|(magic, _)| start.starts_with(magic));
    found.map_or_else(
        || format!("the bytes {}", start.iter().take(8).map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ")),
        |(_, name)| name.to_owned(),
    )
}

/// Judges the header alone.
fn header(start: &[u8], file_size: u64) -> Result<Header, BundleError> {
    if !start.starts_with(&MAGIC) {
        return Err(BundleError::Foreign { got: describe(start) });
    }
    let Some(bytes) = start.first_chunk::<HEADER_BYTES>() else {
        return Err(BundleError::Length { expected: HEADER_BYTES as u64, got: file_size });
    };
    let header = Header::decode(bytes);
    // Before the checksum: a later format may have it elsewhere.
    let (format, oldest_reader) = (header.format, header.oldest_reader);
    if oldest_reader > FORMAT || format < OLDEST_FORMAT {
        return Err(BundleError::Format { format, oldest_reader });
    }
    checked(Part::Header, super::digest(bytes, RESERVED.end), &bytes[..RESERVED.end])?;
    // A later format that we may read gives these bytes a meaning that we need not know.
    if format == FORMAT
        && let Some(at) = bytes[RESERVED].iter().position(|&b| b != 0)
    {
        layout(Part::Header, "reserved byte", 0, u64::from(bytes[RESERVED.start + at]))?;
    }
    if super::library_text(&header.library).is_none() {
        return Err(BundleError::Library);
    }
    if header.file_size != file_size {
        return Err(BundleError::Length { expected: header.file_size, got: file_size });
    }
    limit(Part::Index, "its size", MAX_INDEX, header.index_size)?;
    limit(Part::Details, "its size", MAX_DETAILS, header.details_size)?;
    limit(Part::Details, "its inflated size", MAX_DETAILS, header.details_raw)?;
    let tables = u64::from(header.entries) * ENTRY_BYTES as u64 + u64::from(header.frames) * FRAME_BYTES as u64;
    layout(Part::Header, "index place", HEADER_BYTES as u64, header.index_offset)?;
    layout(Part::Header, "index size", tables, header.index_size)?;
    layout(Part::Header, "details place", HEADER_BYTES as u64 + header.index_size, header.details_offset)?;
    let frames = header.details_offset + header.details_size;
    if frames > file_size {
        return Err(BundleError::Length { expected: frames, got: file_size });
    }
    Ok(header)
}

/// Reads the frame table: the frames follow the details and each other up to the end of the file.
fn frame_table(header: &Header, rows: &[u8]) -> Result<Vec<Frame>, BundleError> {
    let mut end = header.details_offset + header.details_size;
    let (rows, _) = rows.as_chunks::<FRAME_BYTES>();
    let frames: Vec<Frame> = rows.iter().map(Frame::decode).collect();
    for (number, frame) in frames.iter().enumerate() {
        let part = Part::Frame(number as u32);
        limit(part, "its inflated size", MAX_IMAGE, u64::from(frame.raw))?;
        // No compressor makes it larger, so more is a trap for who allocates it.
        limit(part, "its size", zstd::zstd_safe::compress_bound(frame.raw as usize), u64::from(frame.size))?;
        layout(part, "its place", end, frame.offset)?;
        end += u64::from(frame.size);
        if end > header.file_size {
            return Err(BundleError::Length { expected: end, got: header.file_size });
        }
    }
    layout(Part::Index, "end of the last frame", header.file_size, end)?;
    Ok(frames)
}

fn entry_table(rows: &[u8], frames: &[Frame]) -> Result<Vec<Entry>, BundleError> {
    let (rows, _) = rows.as_chunks::<ENTRY_BYTES>();
    let mut entries: Vec<Entry> = Vec::with_capacity(rows.len());
    for (index, row) in rows.iter().enumerate() {
        let bad = |what: String| BundleError::Entry { index, what };
        let entry = Entry::decode(row).map_err(|what| bad(what.to_owned()))?;
        if entries.last().is_some_and(|last| last.key() >= entry.key()) {
            return Err(bad(format!("({}, {}) is not in ascending order", entry.source_key, entry.target)));
        }
        let Some(frame) = frames.get(entry.frame as usize) else {
            return Err(bad(format!("it lies in frame {}; there are {}", entry.frame, frames.len())));
        };
        if entry.size == 0 || entry.end() > u64::from(frame.raw) {
            let (offset, size) = (entry.offset, entry.size);
            return Err(bad(format!("{size} bytes at {offset} of frame {}, which has {}", entry.frame, frame.raw)));
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// Inflates bytes whose hash was checked. The size is stated outside and inside; both must be the real one.
pub(super) fn inflate(part: Part, bytes: &[u8], expected: u64) -> Result<Vec<u8>, BundleError> {
    let bad = |why: String| BundleError::Inflate { part, expected, why };
    let zstd_error = |code| zstd::zstd_safe::get_error_name(code).to_owned();
    let frame = zstd::zstd_safe::find_frame_compressed_size(bytes).map_err(|code| bad(zstd_error(code)))?;
    if frame != bytes.len() {
        return Err(bad(format!("the zstd frame has {frame} bytes of {}", bytes.len())));
    }
    match zstd::zstd_safe::get_frame_content_size(bytes) {
        Ok(Some(stated)) if stated == expected => {}
        Ok(Some(stated)) => return Err(bad(format!("the zstd frame states {stated}"))),
        Ok(None) | Err(_) => return Err(bad("the zstd frame states no size".to_owned())),
    }
    let raw = zstd::bulk::decompress(bytes, expected as usize).map_err(|e| bad(e.to_string()))?;
    if raw.len() as u64 == expected { Ok(raw) } else { Err(bad(format!("it inflates to {}", raw.len()))) }
}

/// A bundle of which the first bytes were read and nothing was believed yet. A signature is checked in this state: what
/// is parsed afterwards is the very bytes that it covers.
pub struct Opening {
    source: Box<dyn ReadAt + Send + Sync>,
    file_size: u64,
    start: Vec<u8>,
}

impl std::fmt::Debug for Opening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opening").field("file_size", &self.file_size).finish()
    }
}

impl Opening {
    /// Reads the first bytes of a bundle.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn read(source: impl ReadAt + Send + Sync + 'static) -> Result<Self, BundleError> {
        let io = |source| BundleError::Io { part: Part::Header, source };
        let file_size = source.len().map_err(io)?;
        let mut start = vec![0; file_size.min(FIRST_READ) as usize];
        source.read_exact_at(&mut start, 0).map_err(io)?;
        Ok(Self { source: Box::new(source), file_size, start })
    }

    /// The bytes that a signature covers: header and index. Of the header only the size of the index is looked at, and
    /// it is bounded by what is read at all; where the file is no bundle these are some of its first bytes.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn signed(&mut self) -> Result<&[u8], BundleError> {
        let size = self.start.first_chunk::<HEADER_BYTES>().map_or(self.start.len(), |header| {
            let index = super::long(header, 40).min(MAX_INDEX as u64).min(self.file_size - HEADER_BYTES as u64);
            HEADER_BYTES + index as usize
        });
        self.read_up_to(size)?;
        Ok(&self.start[..size])
    }

    fn read_up_to(&mut self, end: usize) -> Result<(), BundleError> {
        let have = self.start.len();
        if have >= end {
            return Ok(());
        }
        self.start.resize(end, 0);
        let read = self.source.read_exact_at(&mut self.start[have..], have as u64);
        read.map_err(|source| BundleError::Io { part: Part::Index, source })
    }

    /// Checks header and index.
    ///
    /// # Errors
    /// A file that is no bundle of a known format, or whose header or index is damaged.
    pub fn open(mut self) -> Result<Bundle, BundleError> {
        let header = header(&self.start, self.file_size)?;
        let end = HEADER_BYTES + header.index_size as usize;
        self.read_up_to(end)?;
        let index = &self.start[HEADER_BYTES..end];
        checked(Part::Index, header.index, index)?;
        let (entries, frames) = index.split_at(header.entries as usize * ENTRY_BYTES);
        let frames = frame_table(&header, frames)?;
        let entries = entry_table(entries, &frames)?;
        let header_digest = Digest::of(&self.start[..HEADER_BYTES]);
        let (source, details, kept) = (self.source, OnceLock::new(), Mutex::default());
        Ok(Bundle { source, header, header_digest, entries, frames, details, kept })
    }
}

impl Bundle {
    /// Opens a bundle: reads and checks header and index, nothing else.
    ///
    /// # Errors
    /// A file that is no bundle of a known format, or whose header or index is damaged.
    pub fn open(source: impl ReadAt + Send + Sync + 'static) -> Result<Self, BundleError> {
        Opening::read(source)?.open()
    }

    /// All entries, ascending by source key and target.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry for a source key and a target.
    #[must_use]
    pub fn find(&self, source_key: Digest, target: Target) -> Option<&Entry> {
        let found = self.entries.binary_search_by_key(&(source_key, target), Entry::key);
        found.ok().map(|i| &self.entries[i])
    }

    /// The entries for a source key, ascending by target.
    pub fn targets_of(&self, source_key: Digest) -> impl Iterator<Item = &Entry> {
        let start = self.entries.partition_point(|e| e.source_key < source_key);
        self.entries[start..].iter().take_while(move |e| e.source_key == source_key)
    }

    /// The digest that names the contents: index and, through it, every image. Details are not in it.
    #[must_use]
    pub fn index_digest(&self) -> Digest {
        self.header.index
    }

    /// The format in which it is written.
    #[must_use]
    pub fn format(&self) -> u32 {
        self.header.format
    }

    /// The version of the library that it was made for. From the header: no details are read.
    #[must_use]
    pub fn library(&self) -> &str {
        super::library_text(&self.header.library).expect("bug: checked when it was opened")
    }

    /// The launch ABI that its images follow. From the header: no details are read.
    #[must_use]
    pub fn launch_abi(&self) -> u32 {
        self.header.launch_abi
    }

    /// Its size.
    #[must_use]
    pub fn file_size(&self) -> u64 {
        self.header.file_size
    }

    /// How many bytes from the start of the file a signature covers.
    #[must_use]
    pub fn signed_size(&self) -> u64 {
        HEADER_BYTES as u64 + self.header.index_size
    }

    /// The bytes that a signature covers: header and index.
    ///
    /// # Errors
    /// If they cannot be read, or have changed since the bundle was opened.
    pub fn signed_bytes(&self) -> Result<Vec<u8>, BundleError> {
        let bytes = self.bytes(Part::Header, 0, self.signed_size() as usize)?;
        checked(Part::Header, self.header_digest, &bytes[..HEADER_BYTES])?;
        checked(Part::Index, self.header.index, &bytes[HEADER_BYTES..])?;
        Ok(bytes)
    }

    fn bytes(&self, part: Part, offset: u64, size: usize) -> Result<Vec<u8>, BundleError> {
        let mut bytes = vec![0; size];
        let read = self.source.read_exact_at(&mut bytes, offset);
        read.map_err(|source| BundleError::Io { part, source }).map(|()| bytes)
    }

    pub(super) fn source_size(&self) -> Result<u64, BundleError> {
        self.source.len().map_err(|source| BundleError::Io { part: Part::Header, source })
    }

    pub(super) fn frame_sizes(&self) -> impl ExactSizeIterator<Item = u32> {
        self.frames.iter().map(|f| f.raw)
    }

    /// The details; read on the first call.
    ///
    /// # Errors
    /// If they cannot be read or are damaged.
    pub fn details(&self) -> Result<&Details, BundleError> {
        if let Some(details) = self.details.get() {
            return Ok(details);
        }
        let details = serde_json::from_slice(&self.details_json()?).map_err(BundleError::Details)?;
        Ok(self.details.get_or_init(|| details))
    }

    pub(super) fn details_json(&self) -> Result<Vec<u8>, BundleError> {
        let header = &self.header;
        let bytes = self.bytes(Part::Details, header.details_offset, header.details_size as usize)?;
        checked(Part::Details, header.details, &bytes)?;
        inflate(Part::Details, &bytes, header.details_raw)
    }

    /// Reads, checks and inflates a frame.
    pub(super) fn read_frame(&self, number: u32) -> Result<Vec<u8>, BundleError> {
        let (frame, part) = (&self.frames[number as usize], Part::Frame(number));
        let bytes = self.bytes(part, frame.offset, frame.size as usize)?;
        checked(part, frame.digest, &bytes)?;
        inflate(part, &bytes, u64::from(frame.raw))
    }

    fn frame(&self, number: u32) -> Result<Arc<[u8]>, BundleError> {
        // A thread that panicked has left the list whole: it only ever pushes and pops.
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, frame)) = kept().iter().find(|(n, _)| *n == number) {
            return Ok(Arc::clone(frame));
        }
        let frame: Arc<[u8]> = self.read_frame(number)?.into();
        if frame.len() <= FRAME_RAW {
            let mut kept = kept();
            kept.retain(|(n, _)| *n != number);
            kept.push_front((number, Arc::clone(&frame)));
            kept.truncate(KEPT_FRAMES);
        }
        Ok(frame)
    }

    /// The bytes of an image: reads and inflates its frame, unless it was among the last ones.
    ///
    /// # Errors
    /// If it cannot be read or is damaged.
    ///
    /// # Panics
    /// If the entry is not one of this bundle.
    pub fn image(&self, entry: &Entry) -> Result<Vec<u8>, BundleError> {
        let frame = self.frame(entry.frame)?;
        let bytes = &frame[entry.offset as usize..entry.end() as usize];
        check_image(entry, bytes)?;
        Ok(bytes.to_vec())
    }

    /// Everything in it, as it was put in: for merging and splitting. Frame by frame, so each is inflated once.
    ///
    /// # Errors
    /// Details that cannot be read or that lack an entry, or a damaged image, as an item of the iterator.
    pub fn items(&self) -> Result<impl Iterator<Item = Result<Item, BundleError>>, BundleError> {
        let mut told = BTreeMap::new();
        for spec in &self.details()?.specs {
            told.extend(spec.images.iter().map(|image| ((spec.source_key, image.target), (spec, image))));
        }
        let mut order: Vec<&Entry> = self.entries.iter().collect();
        order.sort_by_key(|e| (e.frame, e.offset));
        Ok(order.into_iter().map(move |entry| {
            let lacking = || format!("{} for {} is not in the details", entry.source_key, entry.target);
            let found = told.get(&entry.key()).ok_or_else(|| BundleError::Disagreement { what: lacking() })?;
            let spec = SpecDetails { images: Vec::new(), ..found.0.clone() };
            Ok(Item { spec, image: found.1.clone(), bytes: self.image(entry)? })
        }))
    }
}

pub(super) fn check_image(entry: &Entry, bytes: &[u8]) -> Result<(), BundleError> {
    let (source_key, target, expected, got) = (entry.source_key, entry.target, entry.image, Digest::of(bytes));
    if got == expected { Ok(()) } else { Err(BundleError::Image { source_key, target, expected, got }) }
}
