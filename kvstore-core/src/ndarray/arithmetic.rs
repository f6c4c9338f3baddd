//! Arithmetic of arrays. Operations work on snapshots, or in place while they hold the cell's lock.

use super::NDArray;
use crate::backend::{Check, Operand};
use crate::fallible;
use crate::tensor::Tensor;
use crate::types::{BinaryOp, DType, Element, Error, Reduction, Result, Scalar, UnaryOp};

/// The number of elements that [`NDArray::array_equal`] converts at once.
const PIECE: usize = if cfg!(miri) { 1 << 8 } else { 1 << 16 };

impl NDArray {
    /// Returns `self op other` as a new array on the device of `self`. See [`Tensor::binary`].
    pub fn binary(&self, op: BinaryOp, other: &Self) -> Result<Self> {
        self.tensor().binary(op, &other.tensor()).map(Self::new)
    }

    /// Returns `self op number`, or `number op self` if `reversed`, as a new array. See
    /// [`Tensor::binary_scalar`].
    pub fn binary_scalar(&self, op: BinaryOp, number: Scalar, reversed: bool) -> Result<Self> {
        self.tensor().binary_scalar(op, number, reversed).map(Self::new)
    }

    /// Replaces the elements with `self op other`. `other` may be this array or a view of it.
    ///
    /// # Errors
    /// - [`Error::SpecMismatch`] if shape or dtype differ.
    /// - [`Error::InvalidArgument`] for an integer division by zero. The array is then unchanged.
    pub fn binary_assign(&self, op: BinaryOp, other: &Self) -> Result<()> {
        if self.spec != other.spec {
            return Err(Error::operand_mismatch(op.name(), &self.spec, &other.spec));
        }
        let other = other.tensor().to_device_of(&self.tensor())?;
        let dtype = self.dtype();
        self.mutate(|backend, in_out| {
            backend.binary(op, dtype, in_out, Operand::Span(other.span()), false)
        })
    }

    /// Replaces the elements with `self op number`.
    pub fn binary_scalar_assign(&self, op: BinaryOp, number: Scalar) -> Result<()> {
        let dtype = self.dtype();
        self.mutate(|backend, in_out| {
            backend.binary(op, dtype, in_out, Operand::Scalar(number), false)
        })
    }

    /// Returns whether both arrays have the same shape and equal elements.
    ///
    /// Elements are compared as `f64`, or as `i64` if both arrays have this dtype. NaN is not equal
    /// to NaN. The devices may differ.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn array_equal(&self, other: &Self) -> Result<bool> {
        if self.shape() != other.shape() {
            return Ok(false);
        }
        let (left, right) = (self.tensor(), other.tensor());
        // An `f64` cannot represent every `i64`.
        let equal = match (left.dtype(), right.dtype()) {
            (DType::I64, DType::I64) => equal::<i64>,
            _ => equal::<f64>,
        };
        for first in (0..left.num_elements()).step_by(PIECE) {
            let len = PIECE.min(left.num_elements() - first);
            let piece = |tensor: &Tensor| tensor.view(first, [len].into());
            if !equal(&piece(&left)?, &piece(&right)?)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns `op(self)` as a new array.
    pub fn unary(&self, op: UnaryOp) -> Result<Self> {
        self.tensor().unary(op).map(Self::new)
    }

    /// Returns a new array with every element clamped to `[low, high]`. See [`Tensor::clip`].
    pub fn clip(&self, low: impl Into<Scalar>, high: impl Into<Scalar>) -> Result<Self> {
        self.tensor().clip(low.into(), high.into()).map(Self::new)
    }

    /// Reduces all elements to one, and returns it as a new array of shape `[1]`.
    pub fn reduce(&self, op: Reduction) -> Result<Self> {
        self.tensor().reduce(op).map(Self::new)
    }

    /// Returns the product of two matrices or vectors. See [`Tensor::dot`].
    pub fn dot(&self, other: &Self) -> Result<Self> {
        self.tensor().dot(&other.tensor()).map(Self::new)
    }

    /// Returns the product of two matrices or vectors. An error of `check` cancels the computation.
    /// See [`Tensor::dot_checked`].
    pub fn dot_checked(&self, other: &Self, check: &Check<'_>) -> Result<Self> {
        self.tensor().dot_checked(&other.tensor(), check).map(Self::new)
    }

    /// Returns the transpose of a matrix as a new array.
    pub fn transpose(&self) -> Result<Self> {
        self.tensor().transpose().map(Self::new)
    }

    /// Returns the column of the largest element of each row. See [`Tensor::argmax_channel`].
    pub fn argmax_channel(&self) -> Result<Self> {
        self.tensor().argmax_channel().map(Self::new)
    }

    /// Returns the arrays joined along `axis`. See [`Tensor::concatenate`].
    pub fn concatenate(arrays: &[Self], axis: usize) -> Result<Self> {
        let tensors: Vec<Tensor> = fallible::collect(arrays.iter().map(Self::tensor))?;
        Tensor::concatenate(&tensors, axis).map(Self::new)
    }

    /// Returns the element of an array with exactly one element.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the array does not have exactly one element.
    pub fn to_scalar(&self) -> Result<f64> {
        self.tensor().to_scalar()
    }
}

/// Defines four methods for an operation: with an array, with an array in place, with a number, and
/// with a number in place.
///
/// Usage: `named!(Add, add, add_assign, add_scalar, add_scalar_assign, "a + b")`.
macro_rules! named {
    ($op:ident, $new:ident, $assign:ident, $scalar:ident, $scalar_assign:ident, $text:literal) => {
        #[doc = concat!("Returns `", $text, "` as a new array.")]
        pub fn $new(&self, other: &Self) -> Result<Self> {
            self.binary(BinaryOp::$op, other)
        }

        #[doc = concat!("Replaces the elements with `", $text, "`.")]
        pub fn $assign(&self, other: &Self) -> Result<()> {
            self.binary_assign(BinaryOp::$op, other)
        }

        #[doc = concat!("Returns `", $text, "` with a number for `b`, as a new array.")]
        pub fn $scalar(&self, number: impl Into<Scalar>) -> Result<Self> {
            self.binary_scalar(BinaryOp::$op, number.into(), false)
        }

        #[doc = concat!("Replaces the elements with `", $text, "`, where `b` is a number.")]
        pub fn $scalar_assign(&self, number: impl Into<Scalar>) -> Result<()> {
            self.binary_scalar_assign(BinaryOp::$op, number.into())
        }
    };
}

impl NDArray {
    named!(Add, add, add_assign, add_scalar, add_scalar_assign, "a + b");
    named!(Sub, sub, sub_assign, sub_scalar, sub_scalar_assign, "a - b");
    named!(Mul, mul, mul_assign, mul_scalar, mul_scalar_assign, "a * b");
    named!(Div, div, div_assign, div_scalar, div_scalar_assign, "a / b");
}

fn equal<T: Element + PartialEq>(left: &Tensor, right: &Tensor) -> Result<bool> {
    Ok(left.read_as::<T>()? == right.read_as::<T>()?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a check fails by panicking")]
pub(super) mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::backend::registry::Backends;
    use crate::cpu::CpuBackend;
    use crate::types::{Device, Shape};

    /// Miri takes seconds to make one.
    static BACKENDS: LazyLock<Backends> =
        LazyLock::new(|| Backends::new(vec![CpuBackend::with_threads(1)]));

    pub(in crate::ndarray) fn array<T: Element>(
        elements: &[T],
        shape: impl Into<Shape>,
    ) -> NDArray {
        NDArray::new(Tensor::from_slice(&BACKENDS, Device::cpu(0), shape, elements).unwrap())
    }

    #[test]
    fn array_equal_compares_numbers() {
        let len = if cfg!(miri) { 700 } else { 70_000 };
        let long: Vec<i64> = (0..len).map(|number| i64::MAX - number).collect();
        let mut other = long.clone();
        let (one, same) = (array(&long, [long.len()]), array(&other, [long.len()]));
        *other.last_mut().unwrap() += 1;
        let other = array(&other, [long.len()]);
        assert!(one.array_equal(&same).unwrap() && !one.array_equal(&other).unwrap());
        assert!(array(&[1_i64, 2], [2]).array_equal(&array(&[1_f32, 2.0], [2])).unwrap());
        assert!(!array(&[1_f32, 2.0], [2]).array_equal(&array(&[1_f32, 2.0], [2, 1])).unwrap());
        let nan = array(&[f32::NAN], [1]);
        assert!(!nan.array_equal(&nan).unwrap());
        assert!(array(&[0.0_f64], [1]).array_equal(&array(&[-0.0_f64], [1])).unwrap());
    }
}
