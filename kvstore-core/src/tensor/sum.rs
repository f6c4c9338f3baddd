//! Sums of tensors, with the bits of a push.

use std::iter::once;

use super::Tensor;
use crate::backend::{InOut, Span, SumJob};
use crate::fallible;
use crate::types::{Error, Result};

impl Tensor {
    /// Writes the sum of several tensors to the elements from `first` on, on the device of `self`.
    /// The sum has the bits that a push of the tensors has: a left fold, rounded once.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if there are no tensors, or the elements are not within `self`.
    /// - [`Error::SpecMismatch`] if the dtypes differ, or the shapes of the addends.
    /// - [`Error::OutOfMemory`] if a copy to the device of `self` needs more memory than there is.
    pub fn sum_into(&mut self, first: usize, addends: &[Self]) -> Result<()> {
        let Some(one) = addends.first() else {
            return Err(Error::invalid("sum: expected at least one tensor, found none"));
        };
        let len = one.num_elements();
        if first.checked_add(len).is_none_or(|end| end > self.num_elements()) {
            let spec = self.spec();
            let text = format!("sum: {len} elements from {first} on are out of range for {spec}");
            return Err(Error::invalid(text));
        }
        let expected = one.spec().with_dtype(self.dtype());
        if let Some(other) = addends.iter().find(|addend| *addend.spec() != expected) {
            return Err(Error::operand_mismatch("sum", &expected, other.spec()));
        }
        let addends =
            fallible::try_collect(addends.iter().map(|addend| addend.to_device_of(self)))?;
        let spans: Vec<Span<'_>> = fallible::collect(addends.iter().map(|addend| addend.span()))?;
        let (device, dtype) = (self.device(), self.dtype());
        self.mutate_part(first, len, |backend, in_out| {
            let (InOut::InPlace(dst) | InOut::Into { dst, .. }) = in_out;
            backend.sum(&mut once(Ok(SumJob { device, dtype, dst, addends: &spans })))
        })
    }
}
