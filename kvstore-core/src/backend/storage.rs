//! Storages and ranges of device memory. All downcasts of the crate are in this file.

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

    /// Returns the bytes of external host memory, or `None` for a backend's memory. The owner does
    /// not change the bytes while the storage exists. See
    /// [`Tensor::from_external`](crate::Tensor::from_external).
    fn external_bytes(&self) -> Option<&[u8]> {
        None
    }

    /// Returns whether another library owns the memory, on the host or on a device. External memory
    /// is read-only, and a store only keeps copies of it.
    fn is_external(&self) -> bool {
        self.external_bytes().is_some()
    }

    /// Returns the error of every read if the memory is unreadable, otherwise `None`.
    fn refusal(&self) -> Option<Error> {
        None
    }

    /// Returns the backend that [`Storage::set_owner`] stored last.
    fn owner(&self) -> Option<&Arc<dyn Backend>> {
        None
    }

    /// Stores the backend while a tensor uses the storage. Returns the previous backend.
    ///
    /// A tensor is faster to clone if its storage does this. External storages need not do it.
    fn set_owner(&mut self, owner: Option<Arc<dyn Backend>>) -> Option<Arc<dyn Backend>> {
        drop(owner);
        None
    }
}

/// Downcasts the storage to the type of its backend.
///
/// # Errors
/// - [`Error::Internal`] if the storage belongs to another backend.
/// - The error of [`Storage::refusal`], if the memory is unreadable.
pub fn open<S: Storage>(storage: &dyn Storage) -> Result<&S> {
    let any: &dyn Any = storage;
    any.downcast_ref().ok_or_else(|| storage.refusal().unwrap_or_else(wrong_backend::<S>))
}

/// Downcasts the storage to the type of its backend, for writing.
///
/// # Errors
/// - [`Error::Internal`] if the storage belongs to another backend.
pub fn open_mut<S: Storage>(storage: &mut dyn Storage) -> Result<&mut S> {
    let any: &mut dyn Any = storage;
    any.downcast_mut().ok_or_else(wrong_backend::<S>)
}

fn wrong_backend<S>() -> Error {
    Error::Internal(format!("storage of another backend where {} was expected", type_name::<S>()))
}

/// A read-only range of bytes of a storage.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// The storage.
    pub storage: &'a dyn Storage,
    /// The offset of the first byte in the storage.
    pub start: usize,
    /// The number of bytes.
    pub num_bytes: usize,
}

/// A writable range of bytes of a storage.
#[derive(Debug)]
pub struct SpanMut<'a> {
    /// The storage.
    pub storage: &'a mut dyn Storage,
    /// The offset of the first byte in the storage.
    pub start: usize,
    /// The number of bytes.
    pub num_bytes: usize,
}

impl SpanMut<'_> {
    /// Returns the same range with a shorter lifetime.
    pub fn reborrow(&mut self) -> SpanMut<'_> {
        SpanMut { storage: &mut *self.storage, start: self.start, num_bytes: self.num_bytes }
    }
}

/// The operand that an operation reads and replaces: one range in place, or an old range and a new
/// one.
///
/// The second form is for shared values: the operation writes the result to new memory in the same
/// pass, and the old value stays unchanged.
#[derive(Debug)]
pub enum InOut<'a> {
    /// Reads and overwrites the range.
    InPlace(SpanMut<'a>),
    /// Reads `src` and writes `dst`. Both have the same length.
    Into {
        /// The old value.
        src: Span<'a>,
        /// The range that receives the result.
        dst: SpanMut<'a>,
    },
}

impl InOut<'_> {
    /// Returns the same ranges with a shorter lifetime.
    pub fn reborrow(&mut self) -> InOut<'_> {
        match self {
            Self::InPlace(span) => InOut::InPlace(span.reborrow()),
            Self::Into { src, dst } => InOut::Into { src: *src, dst: dst.reborrow() },
        }
    }

    /// Returns the number of bytes that are read, which equals the number written.
    pub fn num_bytes(&self) -> usize {
        match self {
            Self::InPlace(span) | Self::Into { dst: span, .. } => span.num_bytes,
        }
    }
}
