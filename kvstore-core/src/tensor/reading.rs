//! What the host sees of a [`Tensor`]: copies, converted too, or the memory itself.

use std::borrow::Cow;

use super::{Tensor, check_length, exclusive};
use crate::backend::SpanMut;
use crate::fallible;
use crate::types::{Element, Error, Result};

impl Tensor {
    /// Copies the elements to the host.
    ///
    /// # Errors
    /// - [`Error::SpecMismatch`] when `T` is not the tensor's dtype.
    /// - [`Error::OutOfMemory`].
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let mut elements = fallible::zeroed(self.num_elements())?;
        self.read_slice(&mut elements)?;
        Ok(elements)
    }

    /// Copies the elements to the host, converted to `T` by the rules of
    /// [`cast`](crate::dtype::cast).
    pub fn read_as<T: Element>(&self) -> Result<Vec<T>> {
        self.cast(T::DTYPE)?.to_vec()
    }

    /// Copies the elements into `elements`.
    ///
    /// # Errors
    /// [`Error::SpecMismatch`] when `T` is not the tensor's dtype, [`Error::LengthMismatch`] when there
    /// is not room for exactly as many.
    pub fn read_slice<T: Element>(&self, elements: &mut [T]) -> Result<()> {
        if T::DTYPE != self.dtype() {
            let expected = self.spec.with_dtype(T::DTYPE);
            return Err(Error::operand_mismatch("read_slice", &expected, &self.spec));
        }
        check_length(&self.spec, elements.len())?;
        self.read_bytes(bytemuck::cast_slice_mut(elements))
    }

    /// Copies the elements to the host as bytes, row-major, in the machine's byte order.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = fallible::zeroed(self.num_bytes())?;
        self.read_bytes(&mut bytes)?;
        Ok(bytes)
    }

    /// Copies the elements into `bytes`.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when `bytes` has not exactly [`Tensor::num_bytes`].
    pub fn read_bytes(&self, bytes: &mut [u8]) -> Result<()> {
        if bytes.len() != self.num_bytes() {
            let what = format!("bytes of {}", self.spec);
            let expected = self.num_bytes();
            return Err(Error::LengthMismatch { what, expected, found: bytes.len() });
        }
        self.share.backend()?.read(self.span(), bytes)
    }

    /// Returns the bytes of the elements without a copy: row-major, in the machine's byte order.
    /// They never change, for a tensor is a value.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the host cannot see the device's memory.
    pub fn host_bytes(&self) -> Result<&[u8]> {
        self.share.backend()?.host_bytes(self.span())
    }

    /// Returns the bytes of the elements to be written, as any change: in other memory when somebody else still looks.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the host cannot see the device's memory, [`Error::OutOfMemory`].
    pub fn host_bytes_mut(&mut self) -> Result<&mut [u8]> {
        if !self.may_write() {
            *self = self.duplicate()?;
        }
        let (start, num_bytes) = (self.start, self.num_bytes());
        let backend = self.share.backend()?.clone();
        let storage = exclusive(&mut self.share.storage)?;
        backend.host_bytes_mut(SpanMut { storage, start, num_bytes })
    }

    /// Returns the elements without a copy, as [`Tensor::host_bytes`].
    ///
    /// # Errors
    /// [`Error::SpecMismatch`] when `T` is not the tensor's dtype, [`Error::Unsupported`] when the host
    /// cannot see the device's memory.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        if T::DTYPE != self.dtype() {
            let expected = self.spec.with_dtype(T::DTYPE);
            return Err(Error::operand_mismatch("as_slice", &expected, &self.spec));
        }
        bytemuck::try_cast_slice(self.host_bytes()?)
            .map_err(|error| Error::Internal(format!("elements that are not aligned: {error}")))
    }

    /// Returns the bytes of the elements, without a copy where the host can see them.
    pub fn seen_bytes(&self) -> Result<Cow<'_, [u8]>> {
        match self.host_bytes() {
            Ok(bytes) => Ok(Cow::Borrowed(bytes)),
            Err(_) => self.to_bytes().map(Cow::Owned),
        }
    }
}
