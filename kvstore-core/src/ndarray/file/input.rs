//! Reading from something of known length that may lie about everything else.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// What the input has no bytes for takes at most so many times its length, all together: the zeros of
/// sparse arrays, and what an array is made of beside its elements.
const ALLOWANCE: u64 = 1024;

/// Bytes that have not been read yet. Nothing is allocated for more than are left.
pub(super) struct Input<'a> {
    reader: &'a mut dyn Read,
    remaining: u64,
    /// How many bytes may still be taken for what the input has no bytes for.
    allowance: u64,
    path: Option<PathBuf>,
}

impl<'a> Input<'a> {
    pub(super) fn of_file(reader: &'a mut dyn Read, num_bytes: u64, path: &Path) -> Self {
        let allowance = num_bytes.saturating_mul(ALLOWANCE);
        Self { reader, remaining: num_bytes, allowance, path: Some(path.to_owned()) }
    }

    pub(super) fn of_bytes(reader: &'a mut dyn Read, num_bytes: u64) -> Self {
        let allowance = num_bytes.saturating_mul(ALLOWANCE);
        Self { reader, remaining: num_bytes, allowance, path: None }
    }

    /// Takes so many bytes off what may be made without bytes of the input.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when it is used up.
    pub(super) fn spend(&mut self, num_bytes: u64, what: &str) -> Result<()> {
        let Some(rest) = self.allowance.checked_sub(num_bytes) else {
            return Err(Error::Unsupported(format!(
                "{what} would take {num_bytes} bytes, far more than the file could fill"
            )));
        };
        self.allowance = rest;
        Ok(())
    }

    /// Returns the error of damaged content.
    pub(super) fn corrupt(&self, reason: impl Into<String>) -> Error {
        let subject = match &self.path {
            Some(path) => format!("{}", path.display()),
            None => "a serialized array".to_owned(),
        };
        Error::Corrupt { subject, reason: reason.into() }
    }

    /// Checks that so many bytes are left, and returns their number.
    pub(super) fn expect(&self, num_bytes: u64, what: &str) -> Result<usize> {
        if num_bytes > self.remaining {
            let left = self.remaining;
            return Err(self.corrupt(format!("{what}: {num_bytes} bytes expected, {left} left")));
        }
        usize::try_from(num_bytes).map_err(|_| self.corrupt(format!("{what} is too long")))
    }

    /// Reads as many bytes as the buffer has.
    pub(super) fn fill(&mut self, buffer: &mut [u8], what: &str) -> Result<()> {
        self.expect(buffer.len() as u64, what)?;
        self.remaining -= buffer.len() as u64;
        self.reader.read_exact(buffer).map_err(|source| match (&self.path, source.kind()) {
            (Some(path), kind) if kind != ErrorKind::UnexpectedEof => {
                Error::Io { path: path.clone(), operation: format!("reading {what}"), source }
            }
            _ => self.corrupt(format!("it became shorter while {what} was read")),
        })
    }

    pub(super) fn bytes(&mut self, num_bytes: u64, what: &str) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.expect(num_bytes, what)?];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn i32(&mut self, what: &str) -> Result<i32> {
        self.array(what).map(i32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64> {
        self.array(what).map(u64::from_le_bytes)
    }
}
