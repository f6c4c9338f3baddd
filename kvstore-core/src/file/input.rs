//! [`Input`]: untrusted input of known length.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use crc32fast::Hasher;

use crate::fallible;
use crate::types::{Error, Result};

/// The limit for allocations that the input has no bytes for, as a multiple of its length. Such
/// allocations are the zeros of sparse arrays and the metadata of arrays.
const ALLOWANCE: u64 = 1024;

/// The rest of an untrusted input. No read allocates more bytes than the input has left.
pub(crate) struct Input<'a> {
    reader: &'a mut dyn Read,
    remaining: u64,
    /// The number of bytes that may still be allocated without bytes of the input.
    allowance: u64,
    source: Source,
    /// The checksum of the bytes read so far, if requested.
    checksum: Option<Hasher>,
}

/// The source of an input. Errors name it.
enum Source {
    File(PathBuf),
    Bytes(&'static str),
}

impl<'a> Input<'a> {
    pub(crate) fn of_file(reader: &'a mut dyn Read, num_bytes: u64, path: &Path) -> Self {
        let allowance = num_bytes.saturating_mul(ALLOWANCE);
        let source = Source::File(path.to_owned());
        Self { reader, remaining: num_bytes, allowance, source, checksum: None }
    }

    /// Returns an input of bytes. Errors name it `subject`.
    pub(crate) fn of_bytes(
        reader: &'a mut dyn Read,
        num_bytes: u64,
        subject: &'static str,
    ) -> Self {
        let allowance = num_bytes.saturating_mul(ALLOWANCE);
        let source = Source::Bytes(subject);
        Self { reader, remaining: num_bytes, allowance, source, checksum: None }
    }

    /// Starts a checksum of the bytes that are read.
    pub(crate) fn with_checksum(self) -> Self {
        Self { checksum: Some(Hasher::new()), ..self }
    }

    /// Returns the CRC-32 of the bytes read so far.
    pub(crate) fn checksum(&self) -> u32 {
        self.checksum.clone().unwrap_or_default().finalize()
    }

    /// Returns the number of bytes left.
    pub(crate) fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Subtracts `num_bytes` from the limit for allocations without bytes of the input. `what` is
    /// for the error.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if the limit is exceeded.
    pub(crate) fn spend(&mut self, num_bytes: u64, what: &str) -> Result<()> {
        let Some(rest) = self.allowance.checked_sub(num_bytes) else {
            return Err(Error::Unsupported(format!(
                "{what} would take {num_bytes} bytes, far more than the file contains"
            )));
        };
        self.allowance = rest;
        Ok(())
    }

    /// Returns an [`Error::Corrupt`] that names the input.
    pub(crate) fn corrupt(&self, reason: impl Into<String>) -> Error {
        let subject = match &self.source {
            Source::File(path) => path.display().to_string(),
            Source::Bytes(subject) => (*subject).to_owned(),
        };
        Error::Corrupt { subject, reason: reason.into() }
    }

    /// Checks that `num_bytes` are left, and returns them as a `usize`.
    ///
    /// # Errors
    /// - [`Error::Corrupt`] if fewer bytes are left.
    pub(crate) fn expect(&self, num_bytes: u64, what: &str) -> Result<usize> {
        if num_bytes > self.remaining {
            let left = self.remaining;
            return Err(self.corrupt(format!("{what}: expected {num_bytes} bytes, found {left}")));
        }
        usize::try_from(num_bytes).map_err(|_| self.corrupt(format!("{what} is too long")))
    }

    /// Fills the buffer. `what` names the contents in errors.
    ///
    /// # Errors
    /// - [`Error::Corrupt`] if fewer bytes are left, or if another process has truncated the file.
    /// - [`Error::Io`] if the file cannot be read.
    pub(crate) fn fill(&mut self, buffer: &mut [u8], what: &str) -> Result<()> {
        self.expect(buffer.len() as u64, what)?;
        self.remaining -= buffer.len() as u64;
        self.reader.read_exact(buffer).map_err(|source| match (&self.source, source.kind()) {
            (Source::File(path), kind) if kind != ErrorKind::UnexpectedEof => {
                Error::Io { path: path.clone(), operation: format!("reading {what}"), source }
            }
            _ => self.corrupt(format!("it became shorter while {what} was read")),
        })?;
        if let Some(checksum) = &mut self.checksum {
            checksum.update(buffer);
        }
        Ok(())
    }

    pub(crate) fn bytes(&mut self, num_bytes: u64, what: &str) -> Result<Vec<u8>> {
        let mut bytes = fallible::zeroed(self.expect(num_bytes, what)?)?;
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(crate) fn i32(&mut self, what: &str) -> Result<i32> {
        self.array(what).map(i32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, what: &str) -> Result<u64> {
        self.array(what).map(u64::from_le_bytes)
    }
}
