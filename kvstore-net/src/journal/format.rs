//! The format of a journal: a header, then records. All numbers are little-endian.
//!
//! ```text
//! header: 8 magic | 4 version | 4 zero | 8 checksum
//! record: 24 frame | head | data | 8 checksum
//! frame:  4 length of the head | 4 length of the data | 8 number | 4 kind | 4 CRC-32 of the 20
//!         bytes before
//! ```
//!
//! The head is a message of Protocol Buffers (`heads.rs`), the data are as in the protocol. The
//! checksum of the header is the CRC-64/NVME of its 16 bytes before. The checksum of a record is
//! the CRC-64/NVME of: the checksum before it, the frame, and the CRC-64/NVME of head and data.
//!
//! - The frame has a checksum of its own, so a damaged length does not look like a record that was
//!   not written to its end.
//! - The checksums are a chain, so a record that is removed, repeated, moved or from another
//!   journal is found. The CRC of head and data is computed without a lock.
//! - The library detects accidents. Who can write the file can also write the checksums.

use crate::files::crc;

/// The version that this library writes. It reads no other version.
pub(crate) const VERSION: u32 = 1;

pub(super) const MAGIC: [u8; 8] = *b"KVJOURNL";
pub(super) const HEADER: usize = 24;
pub(super) const FRAME: usize = 24;
pub(super) const CHECKSUM: usize = 8;

/// The most bytes of the data of a record. Larger data are in several records, so that other calls
/// wait only for a part of them, and so that a reader needs little memory.
pub(super) const MOST_DATA: usize = 1 << 20;

/// The most bytes of data that are in the record of their call.
pub(super) const MOST_INLINE: usize = 64 << 10;

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// A run of the server begins, with an empty store.
    Start = 1,
    /// Elements of a call that follows.
    Data = 2,
    /// A call takes effect.
    Call = 3,
    /// A call has not taken effect, although it has a record.
    Failed = 4,
    /// The contents of the store are as in a checkpoint.
    Mark = 5,
    /// The checksums of these contents.
    Digests = 6,
    /// A server begins to add up the pushes of a round.
    Attempt = 7,
    /// Elements of one of these pushes.
    Part = 8,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Start,
        Self::Data,
        Self::Call,
        Self::Failed,
        Self::Mark,
        Self::Digests,
        Self::Attempt,
        Self::Part,
    ];

    /// Returns the kind with this number, or `None` if it belongs to a later version.
    pub(crate) fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// Returns the header, and the checksum with which the chain begins.
pub(super) fn header() -> ([u8; HEADER], u64) {
    let mut bytes = [0; HEADER];
    put(&mut bytes, 0, &MAGIC);
    put(&mut bytes, 8, &VERSION.to_le_bytes());
    let checksum = crc(&[&bytes[..HEADER - CHECKSUM]]);
    put(&mut bytes, HEADER - CHECKSUM, &checksum.to_le_bytes());
    (bytes, checksum)
}

/// The first bytes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) head: u32,
    pub(super) data: u32,
    pub(super) number: u64,
    pub(super) kind: u32,
}

impl Frame {
    pub(super) fn to_bytes(self) -> [u8; FRAME] {
        let mut bytes = [0; FRAME];
        put(&mut bytes, 0, &self.head.to_le_bytes());
        put(&mut bytes, 4, &self.data.to_le_bytes());
        put(&mut bytes, 8, &self.number.to_le_bytes());
        put(&mut bytes, 16, &self.kind.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..20]);
        put(&mut bytes, 20, &checksum.to_le_bytes());
        bytes
    }

    /// Returns `None` if the checksum is wrong.
    pub(super) fn from_bytes(bytes: [u8; FRAME]) -> Option<Self> {
        let frame = Self {
            head: u32_at(&bytes, 0),
            data: u32_at(&bytes, 4),
            number: u64_at(&bytes, 8),
            kind: u32_at(&bytes, 16),
        };
        (frame.to_bytes() == bytes).then_some(frame)
    }

    /// Returns the bytes of the record, with its frame and checksum.
    pub(super) fn record_bytes(self) -> u64 {
        (FRAME + CHECKSUM) as u64 + u64::from(self.head) + u64::from(self.data)
    }

    /// Returns the checksum of the record. `contents` is that of head and data.
    pub(super) fn checksum(self, before: u64, contents: u64) -> u64 {
        crc(&[&before.to_le_bytes(), &self.to_bytes(), &contents.to_le_bytes()])
    }
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + field.len()) {
        place.copy_from_slice(field);
    }
}

/// Returns the number at this position of a header or a frame.
pub(super) fn u32_at(bytes: &[u8; FRAME], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

pub(super) fn u64_at(bytes: &[u8; FRAME], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn each_changed_bit_of_a_frame_is_found() {
        let frame = Frame { head: 7, data: 1 << 20, number: 3, kind: 2 };
        let bytes = frame.to_bytes();
        assert_eq!(Frame::from_bytes(bytes), Some(frame));
        for bit in 0..8 * FRAME {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Frame::from_bytes(changed), None, "bit {bit}");
        }
    }

    #[test]
    fn kinds_keep_their_numbers() {
        let numbers: [u32; 8] = Kind::ALL.map(|kind| kind as u32);
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(Kind::ALL.into_iter().all(|kind| Kind::of(kind as u32) == Some(kind)));
        assert_eq!((Kind::of(0), Kind::of(9)), (None, None));
    }
}
