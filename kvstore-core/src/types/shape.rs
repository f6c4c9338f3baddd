//! [`Shape`] and [`TensorSpec`], the shape and dtype of a tensor.

use std::fmt;
use std::sync::Arc;

use super::dtypes::DType;
use super::error::{Error, Result};

/// The lengths of a dense, row-major tensor along its axes. A shape without axes is a scalar.
///
/// ```
/// use kvstore_core::Shape;
/// let shape = Shape::from([2, 3]);
/// assert_eq!((shape.num_elements(), shape.to_string().as_str()), (6, "[2, 3]"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The product of the lengths, cached because it is needed very often.
    num_elements: usize,
    dims: Dims,
}

/// The size of the user address space on 64-bit processors with 4-level paging.
const ADDRESS_SPACE: u64 = 1 << 47;

/// The maximum number of axes for which a clone copies the lengths: cheaper than reference
/// counting.
const FEW: usize = 4;

/// Shapes with up to [`FEW`] axes are always `Few`, with zeros in the unused places, so that equal
/// shapes compare equal.
///
/// `rank` is a `usize` because copying complete words is faster than copying bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Dims {
    Few {
        rank: usize,
        dims: [usize; FEW],
    },
    /// A shared vector, because a shared slice cannot be allocated fallibly.
    Many(Arc<Vec<usize>>),
}

impl Shape {
    /// Returns the lengths along the axes, outermost first.
    pub fn dims(&self) -> &[usize] {
        match &self.dims {
            Dims::Few { rank, dims } => dims.get(..*rank).unwrap_or_default(),
            Dims::Many(dims) => dims,
        }
    }

    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        self.dims().len()
    }

    /// Returns the number of elements: the product of the lengths, saturating at `usize::MAX`.
    ///
    /// [`TensorSpec::num_bytes`] reports a size that is too large for any machine.
    pub fn num_elements(&self) -> usize {
        self.num_elements
    }

    /// Returns the length of axis 0, or 1 for a scalar.
    pub fn num_rows(&self) -> usize {
        self.dims().first().copied().unwrap_or(1)
    }

    /// Returns the shape with another length of axis 0. A scalar stays a scalar.
    #[must_use]
    pub(crate) fn with_num_rows(&self, num_rows: usize) -> Self {
        let mut dims = Vec::from(self.dims());
        if let Some(first) = dims.first_mut() {
            *first = num_rows;
        }
        Self::from(&*dims)
    }

    /// Returns the shape of one row: all axes except the first.
    #[must_use]
    pub fn row(&self) -> Self {
        Self::from(self.dims().get(1..).unwrap_or_default())
    }
}

impl Default for Shape {
    fn default() -> Self {
        Self::from([])
    }
}

impl From<&[usize]> for Shape {
    fn from(lengths: &[usize]) -> Self {
        let mut dims = [0; FEW];
        let dims = match dims.get_mut(..lengths.len()) {
            Some(few) => {
                few.copy_from_slice(lengths);
                Dims::Few { rank: lengths.len(), dims }
            }
            None => return Self::from(Vec::from(lengths)),
        };
        Self { num_elements: product(lengths), dims }
    }
}

/// Returns the product of the lengths, saturating at `usize::MAX`.
fn product(lengths: &[usize]) -> usize {
    if lengths.contains(&0) {
        return 0;
    }
    lengths.iter().fold(1, |product, &dim| product.saturating_mul(dim))
}

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Self {
        if dims.len() <= FEW {
            return Self::from(&*dims);
        }
        Self { num_elements: product(&dims), dims: Dims::Many(Arc::new(dims)) }
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        Self::from(&dims[..])
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
        for (axis, dim) in self.dims().iter().enumerate() {
            let separator = if axis == 0 { "" } else { ", " };
            write!(f, "{separator}{dim}")?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shape").field(&self.dims()).finish()
    }
}

/// The shape and dtype of a tensor. Tensors can be added if their specs are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorSpec {
    shape: Shape,
    dtype: DType,
}

impl TensorSpec {
    /// Returns the spec with this shape and dtype.
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
    /// - [`Error::InvalidArgument`] if the number of bytes exceeds `isize::MAX`.
    pub fn num_bytes(&self) -> Result<usize> {
        let elements = self.shape.num_elements();
        match elements.checked_mul(self.dtype.size()) {
            Some(bytes) if isize::try_from(bytes).is_ok() => Ok(bytes),
            _ => Err(Error::invalid(format!("a tensor of {self} exceeds the address space"))),
        }
    }
}

impl TensorSpec {
    /// Checks that a dense tensor of this spec fits in the address space. The message begins with
    /// `what`.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the number of bytes exceeds the address space.
    pub(crate) fn check_addressable(&self, what: &str) -> Result<()> {
        match self.num_bytes().map(|num_bytes| num_bytes as u64) {
            Ok(num_bytes) if num_bytes <= ADDRESS_SPACE => Ok(()),
            _ => Err(Error::invalid(format!("{what}: {self} exceeds the address space"))),
        }
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.shape, self.dtype)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test may abort without memory")]
mod tests {
    use super::*;

    #[test]
    fn num_bytes_rejects_sizes_beyond_memory() {
        let spec = TensorSpec::new([usize::MAX, 3], DType::F32);
        assert!(spec.num_bytes().is_err());
        assert_eq!(TensorSpec::new([usize::MAX, 0], DType::F32).num_bytes().unwrap(), 0);
    }

    #[test]
    fn short_and_long_shapes_behave_alike() {
        for rank in 0..10 {
            let dims: Vec<usize> = (1..=rank).collect();
            let shape = Shape::from(&*dims);
            assert_eq!((shape.dims(), shape.rank()), (&*dims, rank));
            assert_eq!(shape, Shape::from(dims.clone()));
            assert_eq!(shape.num_elements(), dims.iter().product::<usize>());
            assert_ne!(shape, Shape::from([&*dims, &[0]].concat()), "a longer shape is different");
        }
        assert_eq!(Shape::from([5, 4, 3, 2, 1]).row(), Shape::from([4, 3, 2, 1]));
    }

    #[test]
    fn a_scalar_has_one_element() {
        assert_eq!(Shape::from([]).num_elements(), 1);
        assert_eq!(Shape::from([]).to_string(), "[]");
    }
}
