//! Arithmetic of arrays: each operation on a snapshot, or in place under the cell's lock.

use super::NDArray;
use crate::backend::{Check, Operand};
use crate::fallible;
use crate::tensor::Tensor;
use crate::types::{BinaryOp, Error, Reduction, Result, Scalar, UnaryOp};

impl NDArray {
    /// Returns `self op other` as a new array on the device of `self`; see [`Tensor::binary`].
    pub fn binary(&self, op: BinaryOp, other: &Self) -> Result<Self> {
        self.tensor().binary(op, &other.tensor()).map(Self::new)
    }

    /// Returns `self op number`, or `number op self` when `reversed`, as a new array; see
    /// [`Tensor::binary_scalar`].
    pub fn binary_scalar(&self, op: BinaryOp, number: Scalar, reversed: bool) -> Result<Self> {
        self.tensor().binary_scalar(op, number, reversed).map(Self::new)
    }

    /// Replaces the elements by `self op other`. `other` may be this array or a view of it.
    ///
    /// # Errors
    /// [`Error::SpecMismatch`]; [`Error::InvalidArgument`] for an integer division by zero. The
    /// array is then unchanged.
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

    /// Replaces the elements by `self op number`.
    pub fn binary_scalar_assign(&self, op: BinaryOp, number: Scalar) -> Result<()> {
        let dtype = self.dtype();
        self.mutate(|backend, in_out| {
            backend.binary(op, dtype, in_out, Operand::Scalar(number), false)
        })
    }

    /// Returns `op(self)` as a new array.
    pub fn unary(&self, op: UnaryOp) -> Result<Self> {
        self.tensor().unary(op).map(Self::new)
    }

    /// Returns every element moved into `[low, high]` as a new array; see [`Tensor::clip`].
    pub fn clip(&self, low: impl Into<Scalar>, high: impl Into<Scalar>) -> Result<Self> {
        self.tensor().clip(low.into(), high.into()).map(Self::new)
    }

    /// Returns all elements reduced to one, as a new array of shape `[1]`.
    pub fn reduce(&self, op: Reduction) -> Result<Self> {
        self.tensor().reduce(op).map(Self::new)
    }

    /// Returns the product of matrices and vectors; see [`Tensor::dot`].
    pub fn dot(&self, other: &Self) -> Result<Self> {
        self.tensor().dot(&other.tensor()).map(Self::new)
    }

    /// Returns the product of matrices or vectors. An error of `check` cancels it: see
    /// [`Tensor::dot_checked`].
    pub fn dot_checked(&self, other: &Self, check: &Check<'_>) -> Result<Self> {
        self.tensor().dot_checked(&other.tensor(), check).map(Self::new)
    }

    /// Returns the transpose of a matrix as a new array.
    pub fn transpose(&self) -> Result<Self> {
        self.tensor().transpose().map(Self::new)
    }

    /// Returns the column of the largest element of each row; see [`Tensor::argmax_channel`].
    pub fn argmax_channel(&self) -> Result<Self> {
        self.tensor().argmax_channel().map(Self::new)
    }

    /// Returns the arrays joined along `axis`; see [`Tensor::concatenate`].
    pub fn concatenate(arrays: &[Self], axis: usize) -> Result<Self> {
        let tensors: Vec<Tensor> = fallible::collect(arrays.iter().map(Self::tensor))?;
        Tensor::concatenate(&tensors, axis).map(Self::new)
    }

    /// Returns the one number of an array of one element.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when there are more or none.
    pub fn to_scalar(&self) -> Result<f64> {
        self.tensor().to_scalar()
    }
}

/// Defines the named forms of an operation: with an array, in place, with a number, in place with
/// a number. `named!(Add, add, add_assign, add_scalar, add_scalar_assign, "a + b")` expands to
/// four one-line methods.
macro_rules! named {
    ($op:ident, $new:ident, $assign:ident, $scalar:ident, $scalar_assign:ident, $text:literal) => {
        #[doc = concat!("Returns `", $text, "` as a new array.")]
        pub fn $new(&self, other: &Self) -> Result<Self> {
            self.binary(BinaryOp::$op, other)
        }

        #[doc = concat!("Replaces the elements by `", $text, "`.")]
        pub fn $assign(&self, other: &Self) -> Result<()> {
            self.binary_assign(BinaryOp::$op, other)
        }

        #[doc = concat!("Returns `", $text, "` with a number for `b`, as a new array.")]
        pub fn $scalar(&self, number: impl Into<Scalar>) -> Result<Self> {
            self.binary_scalar(BinaryOp::$op, number.into(), false)
        }

        #[doc = concat!("Replaces the elements by `", $text, "` with a number for `b`.")]
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
