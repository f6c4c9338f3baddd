//! [`InOutSlice`]: elements that a kernel reads and replaces, in place or in other memory.

use super::memory::{cast, cast_mut, elements, elements_mut};
use super::threads::Split;
use crate::backend::InOut;
use crate::types::{Element, Result};

/// The elements of an [`InOut`].
pub(super) enum InOutSlice<'a, T> {
    /// The kernel reads and overwrites the same memory.
    InPlace(&'a mut [T]),
    /// The kernel reads the first slice and writes the second.
    Into(&'a [T], &'a mut [T]),
}

impl<'a, T: Element> InOutSlice<'a, T> {
    pub(super) fn open(in_out: InOut<'a>) -> Result<Self> {
        Ok(match in_out {
            InOut::InPlace(span) => Self::InPlace(elements_mut(span)?),
            InOut::Into { src, dst } => Self::Into(elements(src)?, elements_mut(dst)?),
        })
    }

    /// Returns the old elements.
    pub(super) fn src(&self) -> &[T] {
        match self {
            Self::InPlace(elements) => elements,
            Self::Into(src, _) => src,
        }
    }

    /// Returns the elements of the destination.
    pub(super) fn into_dst(self) -> &'a mut [T] {
        match self {
            Self::InPlace(elements) | Self::Into(_, elements) => elements,
        }
    }

    /// Returns the destination of a block, filled with the old elements.
    pub(super) fn block(&mut self, start: usize, end: usize) -> &mut [T] {
        match self {
            Self::InPlace(elements) => elements.get_mut(start..end).unwrap_or_default(),
            Self::Into(src, dst) => {
                let dst = dst.get_mut(start..end).unwrap_or_default();
                // The kernel reads and writes the block next, while it is in cache.
                dst.copy_from_slice(src.get(start..end).unwrap_or_default());
                dst
            }
        }
    }
}

impl<'a> InOutSlice<'a, u8> {
    /// Reinterprets the bytes as elements.
    pub(super) fn cast<T: Element>(self) -> Result<InOutSlice<'a, T>> {
        Ok(match self {
            Self::InPlace(bytes) => InOutSlice::InPlace(cast_mut(bytes)?),
            Self::Into(src, dst) => InOutSlice::Into(cast(src)?, cast_mut(dst)?),
        })
    }
}

impl<T: Element> Split for InOutSlice<'_, T> {
    fn len(&self) -> usize {
        self.src().len()
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        match self {
            Self::InPlace(elements) => {
                let (left, right) = elements.split_at_mut(middle);
                (Self::InPlace(left), Self::InPlace(right))
            }
            Self::Into(src, dst) => {
                let (left_src, right_src) = src.split_at(middle);
                let (left_dst, right_dst) = dst.split_at_mut(middle);
                (Self::Into(left_src, left_dst), Self::Into(right_src, right_dst))
            }
        }
    }
}
