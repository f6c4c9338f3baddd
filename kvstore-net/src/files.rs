//! What the files of a server share: checksums and locks.

use std::fs::{File, TryLockError};
use std::io;

use crc_fast::{CrcAlgorithm, Digest};

/// Locks a file until it is closed, so that no other server uses `what`.
///
/// # Errors
/// - An error that names `what` if another server has the lock.
pub(crate) fn lock(file: &File, what: &str) -> io::Result<()> {
    file.try_lock().map_err(|error| match error {
        TryLockError::Error(error) => error,
        TryLockError::WouldBlock => io::Error::other(format!("another server uses {what}")),
    })
}

/// A checksum of bytes that are in several pieces.
pub(crate) struct Crc(Digest);

impl Crc {
    pub(crate) fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc64Nvme))
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.finalize()
    }
}

pub(crate) fn crc(pieces: &[&[u8]]) -> u64 {
    let mut crc = Crc::new();
    for piece in pieces {
        crc.add(piece);
    }
    crc.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        // The check value of CRC-64/NVME.
        assert_eq!(crc(&[b"1234", b"56789"]), 0xae8b_1486_0a79_9888);
    }
}
