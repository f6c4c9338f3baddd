//! The memory of a device, as the rest of the crate sees it. The only downcasts stand here.

use std::any::{Any, type_name};
use std::fmt;
use std::sync::Arc;

use super::Backend;
use crate::types::{Error, Result};

/// A block of memory on a device. Only the backend that allocated it can access it, unless it is
/// external.
pub trait Storage: Any + Send + Sync + fmt::Debug {
    /// Returns the number of bytes of the block.
    fn num_bytes(&self) -> usize;

    /// Returns the bytes of external host memory, or `None` for memory of a backend. The owner does
    /// not change them while the storage exists. See
    /// [`Tensor::from_external`](crate::Tensor::from_external).
    fn external_bytes(&self) -> Option<&[u8]> {
        None
    }

    /// Returns whether the memory, on the host or a device, belongs to another library. It is
    /// read-only, and a store keeps copies of it only.
    fn is_external(&self) -> bool {
        self.external_bytes().is_some()
    }

    /// Returns the error of every read, if the memory is unreadable.
    fn refusal(&self) -> Option<Error> {
        None
    }

    /// Returns the backend that [`Storage::set_owner`] stored last.
    fn owner(&self) -> Option<&Arc<dyn Backend>> {
        None
    }

    /// Stores the backend while a tensor uses the storage, and returns the previous one. Tensors
    /// whose storage does so are faster to clone. External storages need not.
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
