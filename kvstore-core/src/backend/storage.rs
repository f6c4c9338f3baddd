//! The memory of a device, as the rest of the crate sees it. The only downcasts stand here.

use std::any::{Any, type_name};
use std::fmt;
use std::sync::Arc;

use super::Backend;
use crate::types::{Error, Result};

/// A block of memory on some device. Only the backend that made it can look inside,
/// unless it is lent.
pub trait Storage: Any + Send + Sync + fmt::Debug {
    /// Returns how many bytes the block holds.
    fn num_bytes(&self) -> usize;

    /// Returns the bytes of memory of the host that no backend has made: they are lent by somebody who does not change
    /// them while the storage is there. See [`Tensor::lent`](crate::Tensor::lent).
    fn lent(&self) -> Option<&[u8]> {
        None
    }

    /// Returns whether somebody lends the memory, the host's or that of a device: it is not to be written to, and what is
    /// kept of it is a copy.
    fn is_lent(&self) -> bool {
        self.lent().is_some()
    }

    /// Returns the error of every read, if the memory is unreadable.
    fn refusal(&self) -> Option<Error> {
        None
    }

    /// Returns the backend that was noted last.
    fn owner(&self) -> Option<&Arc<dyn Backend>> {
        None
    }

    /// Notes the backend for as long as a tensor has the storage, and returns what was noted. It is faster to copy tensors
    /// whose storage does so; one that is lent need not.
    fn set_owner(&mut self, owner: Option<Arc<dyn Backend>>) -> Option<Arc<dyn Backend>> {
        drop(owner);
        None
    }
}

/// Returns the storage as the type its backend knows.
///
/// # Errors
/// [`Error::Internal`] when it belongs to another backend.
pub fn open<S: Storage>(storage: &dyn Storage) -> Result<&S> {
    let any: &dyn Any = storage;
    any.downcast_ref().ok_or_else(|| storage.refusal().unwrap_or_else(wrong_backend::<S>))
}

/// Returns the storage as the type its backend knows, for writing.
///
/// # Errors
/// [`Error::Internal`] when it belongs to another backend.
pub fn open_mut<S: Storage>(storage: &mut dyn Storage) -> Result<&mut S> {
    let any: &mut dyn Any = storage;
    any.downcast_mut().ok_or_else(wrong_backend::<S>)
}

fn wrong_backend<S>() -> Error {
    Error::Internal(format!("storage of another backend where {} was expected", type_name::<S>()))
}

/// A range of bytes of a storage, for reading.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// The memory.
    pub storage: &'a dyn Storage,
    /// The first byte of the range.
    pub start: usize,
    /// How many bytes it has.
    pub num_bytes: usize,
}

/// A range of bytes of a storage, for writing.
#[derive(Debug)]
pub struct SpanMut<'a> {
    /// The memory.
    pub storage: &'a mut dyn Storage,
    /// The first byte of the range.
    pub start: usize,
    /// How many bytes it has.
    pub num_bytes: usize,
}

impl SpanMut<'_> {
    /// Returns the same range for a shorter time.
    pub fn reborrow(&mut self) -> SpanMut<'_> {
        SpanMut { storage: &mut *self.storage, start: self.start, num_bytes: self.num_bytes }
    }
}

/// What an operation reads and replaces: one range in place, or an old range and a new one.
///
/// The second form serves values that somebody else still holds: the result goes into other
/// memory within the same pass, and the old value stays as it is.
#[derive(Debug)]
pub enum InOut<'a> {
    /// Read and overwritten.
    InPlace(SpanMut<'a>),
    /// Read from `src`, written to `dst`; both have the same length.
    Into {
        /// The old value.
        src: Span<'a>,
        /// Where the result goes.
        dst: SpanMut<'a>,
    },
}

impl InOut<'_> {
    /// Returns the same ranges for a shorter time.
    pub fn reborrow(&mut self) -> InOut<'_> {
        match self {
            Self::InPlace(span) => InOut::InPlace(span.reborrow()),
            Self::Into { src, dst } => InOut::Into { src: *src, dst: dst.reborrow() },
        }
    }

    /// Returns how many bytes are written, and as many read.
    pub fn num_bytes(&self) -> usize {
        match self {
            Self::InPlace(span) | Self::Into { dst: span, .. } => span.num_bytes,
        }
    }
}
