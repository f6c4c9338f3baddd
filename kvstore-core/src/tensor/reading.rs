//! Reads a [`Tensor`] on the host: as a copy, converted, or without a copy.

use std::borrow::Cow;

use super::{Tensor, check_length, exclusive};
use crate::backend::SpanMut;
use crate::fallible;
use crate::types::{Element, Error, Result};

impl Tensor {
    /// Copies the elements to the host.
    ///
    /// # Errors
    /// - [`Error::SpecMismatch`] if `T` is not the tensor's dtype.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let mut elements = fallible::zeroed(self.num_elements())?;
        self.read_slice(&mut elements)?;
        Ok(elements)
    }

    /// Copies the elements to the host, converted to `T` by the rules of
    /// [`cast`](crate::dtype::cast).
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn read_as<T: Element>(&self) -> Result<Vec<T>> {
        self.cast(T::DTYPE)?.to_vec()
    }

    /// Copies the elements into `elements`.
    ///
    /// # Errors
    /// - [`Error::SpecMismatch`] if `T` is not the tensor's dtype.
    /// - [`Error::LengthMismatch`] if `elements` does not have as many elements as the tensor.
    pub fn read_slice<T: Element>(&self, elements: &mut [T]) -> Result<()> {
        if T::DTYPE != self.dtype() {
            let expected = self.spec.with_dtype(T::DTYPE);
            return Err(Error::operand_mismatch("read_slice", &expected, &self.spec));
        }
        check_length(&self.spec, elements.len())?;
        self.read_bytes(bytemuck::cast_slice_mut(elements))
    }

    /// Copies the bytes of the elements to the host: row-major, in the machine's byte order.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = fallible::zeroed(self.num_bytes())?;
        self.read_bytes(&mut bytes)?;
        Ok(bytes)
    }

    /// Copies the bytes of the elements into `bytes`.
    ///
    /// # Errors
    /// - [`Error::LengthMismatch`] if the length of `bytes` is not [`Tensor::num_bytes`].
    pub fn read_bytes(&self, bytes: &mut [u8]) -> Result<()> {
        if bytes.len() != self.num_bytes() {
            let what = format!("bytes of {}", self.spec);
            let expected = self.num_bytes();
            return Err(Error::LengthMismatch { what, expected, found: bytes.len() });
        }
        self.share.backend()?.read(self.span(), bytes)
    }

    /// Returns the bytes of the elements without a copy: row-major, in the machine's byte order.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if the host cannot access the device's memory.
    pub fn host_bytes(&self) -> Result<&[u8]> {
        self.share.backend()?.host_bytes(self.span())
    }

    /// Returns the bytes of the elements for writing. Copies the elements to new memory first, if
    /// their memory is shared.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if the host cannot access the device's memory.
    /// - [`Error::OutOfMemory`] if there is not enough memory for the copy.
    pub fn host_bytes_mut(&mut self) -> Result<&mut [u8]> {
        if !self.may_write() {
            *self = self.duplicate()?;
        }
        let (start, num_bytes) = (self.start, self.num_bytes());
        let backend = self.share.backend()?.clone();
        let storage = exclusive(&mut self.share.storage)?;
        backend.host_bytes_mut(SpanMut { storage, start, num_bytes })
    }

    /// Returns the elements without a copy.
    ///
    /// # Errors
    /// - [`Error::SpecMismatch`] if `T` is not the tensor's dtype.
    /// - [`Error::Unsupported`] if the host cannot access the device's memory.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        if T::DTYPE != self.dtype() {
            let expected = self.spec.with_dtype(T::DTYPE);
            return Err(Error::operand_mismatch("as_slice", &expected, &self.spec));
        }
        bytemuck::try_cast_slice(self.host_bytes()?)
            .map_err(|error| Error::Internal(format!("elements that are not aligned: {error}")))
    }

    /// Returns the bytes of the elements. Copies them only if the host cannot access the device's
    /// memory.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory for the copy.
    pub fn seen_bytes(&self) -> Result<Cow<'_, [u8]>> {
        match self.host_bytes() {
            Ok(bytes) => Ok(Cow::Borrowed(bytes)),
            Err(_) => self.to_bytes().map(Cow::Owned),
        }
    }
}
