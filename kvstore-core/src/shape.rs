//! Shapes, and what a tensor is made of: [`TensorSpec`].

use std::fmt;
use std::sync::Arc;

use crate::dtype::DType;
use crate::error::{Error, Result};

/// The lengths of a dense, row-major tensor along its axes. No axes: a scalar of one element.
///
/// ```
/// use kvstore_core::Shape;
/// let shape = Shape::from([2, 3]);
/// assert_eq!((shape.num_elements(), shape.to_string().as_str()), (6, "[2, 3]"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape(Arc<[usize]>);

impl Shape {
    /// Returns the lengths along the axes, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of elements: the product of the lengths, saturating at `usize::MAX`.
    ///
    /// [`TensorSpec::num_bytes`] is where a size that no machine can hold becomes an error.
    pub fn num_elements(&self) -> usize {
        if self.0.contains(&0) {
            return 0;
        }
        self.0.iter().fold(1, |product, &dim| product.saturating_mul(dim))
    }

    /// Returns the length of axis 0, 1 for a scalar.
    pub fn num_rows(&self) -> usize {
        self.0.first().copied().unwrap_or(1)
    }

    /// Returns the shape of one row: all axes but the first.
    #[must_use]
    pub fn row(&self) -> Self {
        Self(self.0.get(1..).unwrap_or_default().into())
    }
}

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Self {
        Self(dims.into())
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Self {
        Self(dims.into())
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        Self(Arc::new(dims))
    }
}

impl From<&Shape> for Shape {
    fn from(shape: &Shape) -> Self {
        shape.clone()
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (axis, dim) in self.0.iter().enumerate() {
            let separator = if axis == 0 { "" } else { ", " };
            write!(f, "{separator}{dim}")?;
        }
        f.write_str("]")
    }
}

/// Shape and dtype of a tensor. Two tensors can be added when their specs are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorSpec {
    shape: Shape,
    dtype: DType,
}

impl TensorSpec {
    /// Returns the spec of this shape and dtype.
    pub fn new(shape: impl Into<Shape>, dtype: DType) -> Self {
        Self { shape: shape.into(), dtype }
    }

    /// Returns the shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the same shape with another dtype.
    #[must_use]
    pub fn with_dtype(&self, dtype: DType) -> Self {
        Self { shape: self.shape.clone(), dtype }
    }

    /// Returns the number of elements.
    pub fn num_elements(&self) -> usize {
        self.shape.num_elements()
    }

    /// Returns the number of bytes of the elements.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when no address space could hold them.
    pub fn num_bytes(&self) -> Result<usize> {
        let elements = self.shape.num_elements();
        match elements.checked_mul(self.dtype.size()) {
            Some(bytes) if isize::try_from(bytes).is_ok() => Ok(bytes),
            _ => Err(Error::invalid(format!("a tensor of {self} is larger than memory can be"))),
        }
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.shape, self.dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_beyond_memory_are_errors() {
        let spec = TensorSpec::new([usize::MAX, 3], DType::F32);
        assert!(spec.num_bytes().is_err());
        assert_eq!(TensorSpec::new([usize::MAX, 0], DType::F32).num_bytes().unwrap(), 0);
    }

    #[test]
    fn a_scalar_has_one_element() {
        assert_eq!(Shape::from([]).num_elements(), 1);
        assert_eq!(Shape::from([]).to_string(), "[]");
    }
}
