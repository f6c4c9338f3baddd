//! Reading from something of known length that may lie about everything else.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use crc32fast::Hasher;

use crate::fallible;
use crate::types::{Error, Result};

/// What the input has no bytes for takes at most so many times its length, all together: the zeros of
/// sparse arrays, and what an array is made of beside its elements.
const ALLOWANCE: u64 = 1024;

/// Bytes that have not been read yet. Nothing is allocated for more than are left.
pub(crate) struct Input<'a> {
    reader: &'a mut dyn Read,
    remaining: u64,
    /// How many bytes may still be taken for what the input has no bytes for.
    allowance: u64,
    source: Source,
    checksum: Option<Hasher>,
}

/// What is read.
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

    /// Returns the input of bytes that errors call `subject`.
    pub(crate) fn of_bytes(
        reader: &'a mut dyn Read,
        num_bytes: u64,
        subject: &'static str,
    ) -> Self {
        let allowance = num_bytes.saturating_mul(ALLOWANCE);
        let source = Source::Bytes(subject);
        Self { reader, remaining: num_bytes, allowance, source, checksum: None }
    }

    /// Returns the input, which keeps the checksum of what is read from it.
    pub(crate) fn with_checksum(self) -> Self {
        Self { checksum: Some(Hasher::new()), ..self }
    }

    /// Returns the CRC-32 of what has been read.
    pub(crate) fn checksum(&self) -> u32 {
        self.checksum.clone().unwrap_or_default().finalize()
    }

    /// Returns how many bytes are left.
    pub(crate) fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Takes so many bytes off what may be made without bytes of the input.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when it is used up.
    pub(crate) fn spend(&mut self, num_bytes: u64, what: &str) -> Result<()> {
        let Some(rest) = self.allowance.checked_sub(num_bytes) else {
            return Err(Error::Unsupported(format!(
                "{what} would take {num_bytes} bytes, far more than the file could fill"
            )));
        };
        self.allowance = rest;
        Ok(())
    }

    /// Returns the error of damaged content.
    pub(crate) fn corrupt(&self, reason: impl Into<String>) -> Error {
        let subject = match &self.source {
            Source::File(path) => path.display().to_string(),
            Source::Bytes(subject) => (*subject).to_owned(),
        };
        Error::Corrupt { subject, reason: reason.into() }
    }

    /// Checks that so many bytes are left, and returns their number.
    pub(crate) fn expect(&self, num_bytes: u64, what: &str) -> Result<usize> {
        if num_bytes > self.remaining {
            let left = self.remaining;
            return Err(self.corrupt(format!("{what}: {num_bytes} bytes expected, {left} left")));
        }
        usize::try_from(num_bytes).map_err(|_| self.corrupt(format!("{what} is too long")))
    }

    /// Reads as many bytes as the buffer has.
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
