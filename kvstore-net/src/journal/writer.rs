//! [`Writer`]: appends records to a journal.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::path::Path;

use kvstore_core::{Error, Result, fallible};

use super::format::{CHECKSUM, FRAME, Frame, MOST_INLINE, header};
use super::heads::{Failed, Head};
use super::reader::{Position, Reader};
use crate::files::{crc, lock};

/// The bytes of the file that are written at once, for records without long data.
const SHORT: usize = MOST_INLINE + (8 << 10);

/// Appends records to a file. Another process must not write it meanwhile, so the file is locked.
#[derive(Debug)]
pub(super) struct Writer {
    file: File,
    end: Position,
    /// Calls that have failed, although their record could be written. Their own records are
    /// written before the next one.
    failed: Vec<Failed>,
    /// Whether the first error is also the last: a journal without one of its calls has no use.
    stops: bool,
    /// Whether no record can be written any more.
    is_broken: bool,
    /// Memory for short records.
    buffer: Vec<u8>,
}

impl Writer {
    /// Opens or creates a journal. Cuts off an incomplete record at its end, and returns its
    /// number of bytes. If it `stops`, no record is written after an error.
    ///
    /// # Errors
    /// - [`Error::Io`] if the file cannot be written, or another server writes it.
    /// - [`Error::Corrupt`] if the file is not a journal, or is damaged.
    pub(super) fn open(path: &Path, stops: bool) -> Result<(Self, u64)> {
        let failed = |operation: &str| {
            let operation = format!("{operation} a journal");
            move |source| Error::Io { path: path.to_owned(), operation, source }
        };
        let opened = OpenOptions::new().read(true).append(true).create(true).open(path);
        let file = opened.map_err(failed("opening"))?;
        lock(&file, "this file").map_err(failed("opening"))?;
        let mut reader = Reader::open(path)?.skipping_data();
        while reader.next()?.is_some() {}
        let (mut end, incomplete) = (reader.position(), reader.incomplete());
        let cut = incomplete.map_or(0, |incomplete| incomplete.num_bytes);
        if let Some(incomplete) = incomplete {
            file.set_len(incomplete.offset).map_err(failed("cutting the end of"))?;
        }
        if file.metadata().map_err(failed("opening"))?.len() == 0 {
            let (bytes, checksum) = header();
            (&file).write_all(&bytes).map_err(failed("creating"))?;
            end = Position { offset: bytes.len() as u64, checksum, next: 1 };
        }
        let (failed, buffer) = (Vec::new(), Vec::new());
        Ok((Self { file, end, failed, stops, is_broken: false, buffer }, cut))
    }

    /// Returns the length of the file.
    pub(super) fn num_bytes(&self) -> u64 {
        self.end.offset
    }

    /// Appends a record, and returns its number. `contents` is the CRC of head and data. The bytes
    /// are in the file when this returns, so the end of the process does not lose them; that of
    /// the machine may.
    ///
    /// # Errors
    /// - The error of the file. The record is then not in the journal.
    pub(super) fn append<H: Head>(
        &mut self,
        (head, data): (&[u8], &[&[u8]]),
        contents: u64,
    ) -> io::Result<u64> {
        while let Some(failed) = self.failed.pop() {
            let head = prost::Message::encode_to_vec(&failed);
            if let Err(error) = self.append_one::<Failed>((&head, &[]), crc(&[&head])) {
                self.failed.push(failed);
                return Err(error);
            }
        }
        self.append_one::<H>((head, data), contents)
    }

    /// Records that a call has failed. If that cannot be written now, it is written before the next
    /// record.
    pub(super) fn append_failed(&mut self, failed: Failed) -> io::Result<()> {
        let head = prost::Message::encode_to_vec(&failed);
        let appended = self.append::<Failed>((&head, &[]), crc(&[&head]));
        appended.map(drop).inspect_err(|_| self.failed.push(failed))
    }

    fn append_one<H: Head>(
        &mut self,
        (head, data): (&[u8], &[&[u8]]),
        contents: u64,
    ) -> io::Result<u64> {
        if self.is_broken {
            return Err(io::Error::other("it has stopped after an earlier error"));
        }
        let too_long = |_| io::Error::new(io::ErrorKind::InvalidInput, "a record of 4 GiB");
        let Position { offset, checksum, next } = self.end;
        let num_bytes = data.iter().map(|piece| piece.len()).sum::<usize>();
        let frame = Frame {
            head: u32::try_from(head.len()).map_err(too_long)?,
            data: u32::try_from(num_bytes).map_err(too_long)?,
            number: next,
            kind: H::KIND as u32,
        };
        let checksum = frame.checksum(checksum, contents);
        let (first, last) = (frame.to_bytes(), checksum.to_le_bytes());
        let pieces = [&first, head].into_iter().chain(data.iter().copied()).chain([&last[..]]);
        let written = if FRAME + head.len() + num_bytes + CHECKSUM <= SHORT {
            self.buffer.clear();
            let mut pieces = pieces;
            let joined = pieces.try_for_each(|piece| fallible::extend(&mut self.buffer, piece));
            joined.map_err(|_| io::ErrorKind::OutOfMemory)?;
            self.file.write_all(&self.buffer)
        } else {
            let mut pieces: Vec<IoSlice<'_>> = pieces.map(IoSlice::new).collect();
            write_all(&self.file, &mut pieces)
        };
        if let Err(error) = written {
            // The file must not end with a part of the record, because others may follow.
            self.is_broken = self.file.set_len(offset).is_err() || self.stops;
            return Err(error);
        }
        self.end = Position { offset: offset + frame.record_bytes(), checksum, next: next + 1 };
        Ok(next)
    }

    /// Lets another server write the file.
    pub(super) fn release(&mut self) {
        self.is_broken = true;
        if let Err(error) = self.file.unlock() {
            tracing::warn!(%error, "the journal stays locked until its server is dropped");
        }
    }

    /// Waits until the records are on the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Writes all bytes of these pieces.
fn write_all(mut file: &File, mut pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut pieces, 0);
    while !pieces.is_empty() {
        match file.write_vectored(pieces) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(num_bytes) => IoSlice::advance_slices(&mut pieces, num_bytes),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
