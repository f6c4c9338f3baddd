//! [`Reader`]: reads the records of a journal one after the other.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

use kvstore_core::{Error, Result, fallible};

use super::format::{
    CHECKSUM, FRAME, Frame, HEADER, Kind, MAGIC, MOST_INLINE, VERSION, header, u32_at, u64_at,
};
use super::heads::Head;
use crate::files::crc;

/// The bytes that are read from a file at once.
const BUFFER: usize = 256 << 10;

/// An incomplete record at the end of a journal, for example because its process was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncompleteRecord {
    /// The position of its first byte.
    pub offset: u64,
    /// The number of its bytes.
    pub num_bytes: u64,
}

/// The place between two records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) offset: u64,
    /// The checksum of the record before.
    pub(crate) checksum: u64,
    /// The number of the next record.
    pub(crate) next: u64,
}

/// A record whose checksum is right.
#[derive(Debug, Default)]
pub(crate) struct RawRecord {
    pub(crate) number: u64,
    pub(crate) offset: u64,
    pub(crate) kind: u32,
    pub(crate) head: Vec<u8>,
    /// Empty if the reader skips data.
    pub(crate) data: Vec<u8>,
}

/// Reads the records of a journal. Checks lengths, numbers and checksums.
#[derive(Debug)]
pub(crate) struct Reader<R> {
    input: R,
    len: u64,
    position: Position,
    subject: String,
    incomplete: Option<IncompleteRecord>,
    skips_data: bool,
}

impl Reader<BufReader<File>> {
    /// Reads a file.
    ///
    /// # Errors
    /// - [`Error::Io`] if the file cannot be read.
    /// - The errors of [`Reader::new`].
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let failed = |source| Error::Io {
            path: path.to_owned(),
            operation: "reading a journal".to_owned(),
            source,
        };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "not a file")));
        }
        let subject = format!("journal `{}`", path.display());
        Self::new(BufReader::with_capacity(BUFFER, file), metadata.len(), subject)
    }
}

impl<R: Read + Seek> Reader<R> {
    /// Reads the header of a journal with `len` bytes. Without a complete header, the journal has
    /// no records.
    ///
    /// # Errors
    /// - [`Error::Corrupt`] if the header is damaged, or is not that of a journal of this version.
    pub(crate) fn new(mut input: R, len: u64, subject: String) -> Result<Self> {
        let (expected, checksum) = header();
        let position = Position { offset: HEADER as u64, checksum, next: 1 };
        let corrupt = |reason: String| Err(Error::Corrupt { subject: subject.clone(), reason });
        let mut found = [0; HEADER];
        let num_bytes = usize::try_from(len).unwrap_or(HEADER).min(HEADER);
        let found_bytes = &mut found[..num_bytes];
        if let Err(error) = input.read_exact(found_bytes) {
            return corrupt(format!("the header cannot be read: {error}"));
        }
        let is_zero = found_bytes.iter().all(|byte| *byte == 0);
        let start = &expected[..num_bytes];
        let mut reader =
            Self { input, len, position, subject, incomplete: None, skips_data: false };
        if num_bytes < HEADER && (is_zero || found_bytes == start) {
            reader.position.offset = 0;
            reader.set_incomplete();
            return Ok(reader);
        }
        if found == expected {
            return Ok(reader);
        }
        let is_intact = num_bytes == HEADER
            && crc(&[&found[..HEADER - CHECKSUM]]) == u64_at(&found, HEADER - CHECKSUM);
        if is_intact && found[..MAGIC.len()] == MAGIC {
            let version = u32_at(&found, MAGIC.len());
            return reader.corrupt(format!(
                "its format has version {version}, this library reads version {VERSION}"
            ));
        }
        reader.corrupt("its header, at byte 0, is not that of a journal".to_owned())
    }

    /// Skips long data. Their checksums are then not checked.
    pub(crate) fn skipping_data(self) -> Self {
        Self { skips_data: true, ..self }
    }

    /// Continues at a place that an earlier reader of this journal has reached.
    pub(crate) fn continue_at(&mut self, position: Position) -> Result<()> {
        let moved = self.input.seek(io::SeekFrom::Start(position.offset));
        moved.map_err(|error| self.error(format!("byte {}: {error}", position.offset)))?;
        self.position = position;
        Ok(())
    }

    /// Returns the place after the last record that was read.
    pub(crate) fn position(&self) -> Position {
        self.position
    }

    /// Returns the incomplete record at the end of the journal, after the last record was read.
    pub(crate) fn incomplete(&self) -> Option<IncompleteRecord> {
        self.incomplete
    }

    fn error(&self, reason: String) -> Error {
        Error::Corrupt { subject: self.subject.clone(), reason }
    }

    fn corrupt<T>(&self, reason: String) -> Result<T> {
        Err(self.error(reason))
    }

    fn set_incomplete(&mut self) {
        let (offset, num_bytes) = (self.position.offset, self.remaining());
        self.incomplete = (num_bytes > 0).then_some(IncompleteRecord { offset, num_bytes });
    }

    /// Returns the number of bytes that follow.
    pub(crate) fn remaining(&self) -> u64 {
        self.len.saturating_sub(self.position.offset)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        let offset = self.position.offset;
        let filled = self.input.read_exact(bytes);
        filled.map_err(|error| self.error(format!("the record at byte {offset}: {error}")))
    }

    fn bytes(&mut self, num_bytes: u32) -> Result<Vec<u8>> {
        let mut bytes = fallible::zeroed(usize::try_from(num_bytes).unwrap_or(usize::MAX))?;
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// Returns the next record, or `None` after the last complete one.
    ///
    /// # Errors
    /// - [`Error::Corrupt`] if the record is damaged. The message has the offset of its first byte.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub(crate) fn next(&mut self) -> Result<Option<RawRecord>> {
        let Position { offset, checksum, next } = self.position;
        if self.remaining() < FRAME as u64 || self.incomplete.is_some() {
            self.set_incomplete();
            return Ok(None);
        }
        let mut frame = [0; FRAME];
        self.fill(&mut frame)?;
        let Some(frame) = Frame::from_bytes(frame) else {
            if frame == [0; FRAME] && self.has_only_zeros()? {
                // After a power failure, a file may have its new length, but not its new bytes.
                self.set_incomplete();
                return Ok(None);
            }
            return self.corrupt(format!("damaged at byte {offset}, in the frame of a record"));
        };
        if frame.number != next {
            let number = frame.number;
            return self.corrupt(format!(
                "at byte {offset}: expected record {next}, found record {number}"
            ));
        }
        if frame.record_bytes() > self.remaining() {
            self.set_incomplete();
            return Ok(None);
        }
        let is_skipped = self.skips_data
            && usize::try_from(frame.data).is_ok_and(|len| len >= MOST_INLINE)
            && matches!(Kind::of(frame.kind), Some(Kind::Data | Kind::Part));
        let head = self.bytes(frame.head)?;
        let data = if is_skipped {
            let skipped = self.input.seek_relative(i64::from(frame.data));
            skipped.map_err(|error| self.error(format!("the record at byte {offset}: {error}")))?;
            Vec::new()
        } else {
            self.bytes(frame.data)?
        };
        let mut found = [0; CHECKSUM];
        self.fill(&mut found)?;
        let found = u64::from_le_bytes(found);
        if !is_skipped && frame.checksum(checksum, crc(&[&head, &data])) != found {
            let end = offset + frame.record_bytes();
            return self.corrupt(format!(
                "damaged between byte {offset} and byte {end}: the checksum of record {next} is \
                 wrong"
            ));
        }
        let end = offset + frame.record_bytes();
        self.position = Position { offset: end, checksum: found, next: next + 1 };
        Ok(Some(RawRecord { number: next, offset, kind: frame.kind, head, data }))
    }

    /// Returns whether the rest of the journal consists of zeros.
    fn has_only_zeros(&mut self) -> Result<bool> {
        let mut left = self.remaining() - FRAME as u64;
        let mut bytes = [0; 4096];
        while left > 0 {
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
            self.fill(&mut bytes[..len])?;
            if bytes[..len].iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            left -= len as u64;
        }
        Ok(true)
    }

    /// Decodes the head of a record.
    ///
    /// # Errors
    /// - [`Error::Corrupt`] if it is not valid.
    pub(crate) fn head<H: Head>(&self, record: &RawRecord) -> Result<H> {
        H::decode(&*record.head).map_err(|error| {
            let RawRecord { number, offset, .. } = record;
            self.error(format!("record {number} at byte {offset}: {error}"))
        })
    }

    /// Returns the kind of a record.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if a later version of the library has written it.
    pub(crate) fn kind(&self, record: &RawRecord) -> Result<Kind> {
        Kind::of(record.kind).ok_or_else(|| {
            let RawRecord { number, offset, kind, .. } = record;
            Error::Unsupported(format!(
                "{}: record {number} at byte {offset} has the unknown kind {kind}: a later \
                 version of kvstore has written it, this one reads version {VERSION} of the format",
                self.subject
            ))
        })
    }
}
