//! Views: handles to rows of an array, or to all of it under another shape.

use std::sync::Arc;

use super::{NDArray, View};
use crate::types::{Error, Result, Shape, TensorSpec};

impl NDArray {
    /// Returns a handle to the rows `start..stop` of axis 0. They may be none.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when they are not rows of this array.
    pub fn slice(&self, start: usize, stop: usize) -> Result<Self> {
        let rows = self.shape().num_rows();
        if self.shape().rank() == 0 || start > stop || stop > rows {
            return Err(Error::invalid(format!(
                "invalid slicing range [{start}, {stop}) of {}",
                self.spec
            )));
        }
        let row = self.shape().row();
        let shape = self.shape().with_num_rows(stop - start);
        Ok(self.part(start * row.num_elements(), shape))
    }

    /// Returns a handle to row `index` without its axis; of a vector, to one element as `[1]`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when there is no such row.
    pub fn at(&self, index: usize) -> Result<Self> {
        if self.shape().rank() == 0 || index >= self.shape().num_rows() {
            return Err(Error::invalid(format!("row {index} is out of range of {}", self.spec)));
        }
        let row = self.shape().row();
        let shape = if row.rank() == 0 { Shape::from([1]) } else { row.clone() };
        Ok(self.part(index * row.num_elements(), shape))
    }

    /// Returns a handle to `len` elements from `first` on, in row-major order, as a vector.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when there are not as many.
    pub fn elements(&self, first: usize, len: usize) -> Result<Self> {
        let end = first.checked_add(len);
        if end.is_none_or(|end| end > self.spec.num_elements()) {
            return Err(Error::invalid(format!(
                "{len} elements from {first} on: {} has {}",
                self.spec,
                self.spec.num_elements()
            )));
        }
        Ok(self.part(first, Shape::from([len])))
    }

    /// Returns a handle to all elements under another shape.
    ///
    /// Beside lengths, `dims` may hold: 0, the length of the same axis here; -1, once, what is
    /// left; -2, all remaining axes; -3, the product of two axes; -4 and two lengths, one axis
    /// split in two, one of them -1.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when the number of elements would change.
    pub fn reshape(&self, dims: &[i64]) -> Result<Self> {
        let refused = || {
            Error::invalid(format!(
                "cannot reshape {} of {} elements into {dims:?}",
                self.spec,
                self.spec.num_elements()
            ))
        };
        let shape = resolve(self.shape().dims(), dims).ok_or_else(refused)?;
        if shape.num_elements() != self.spec.num_elements() {
            return Err(refused());
        }
        Ok(self.part(0, shape))
    }

    fn part(&self, first_element: usize, shape: Shape) -> Self {
        let view = if shape.num_elements() == self.cell.num_elements {
            View::Complete
        } else {
            let before = match self.view {
                None | Some(View::Complete) => 0,
                Some(View::Part { first_element }) => first_element,
            };
            View::Part { first_element: before + first_element }
        };
        Self {
            cell: Arc::clone(&self.cell),
            device: self.device,
            spec: TensorSpec::new(shape, self.dtype()),
            view: Some(view),
        }
    }
}

/// Returns the shape that `wanted` means for an array of shape `own`, if it means one.
fn resolve(own: &[usize], wanted: &[i64]) -> Option<Shape> {
    let mut own_dims = own.iter().copied();
    let mut wanted_dims = wanted.iter().copied();
    let mut result: Vec<usize> = Vec::new();
    let mut inferred = None;
    while let Some(dim) = wanted_dims.next() {
        match dim {
            0 => result.push(own_dims.next()?),
            -1 => {
                if inferred.replace(result.len()).is_some() {
                    return None;
                }
                own_dims.next();
                result.push(1);
            }
            -2 => result.extend(own_dims.by_ref()),
            -3 => result.push(own_dims.next()?.checked_mul(own_dims.next()?)?),
            -4 => {
                let (left, right) =
                    split(own_dims.next()?, wanted_dims.next()?, wanted_dims.next()?)?;
                result.extend([left, right]);
            }
            _ => {
                own_dims.next();
                result.push(usize::try_from(dim).ok()?);
            }
        }
    }
    if let Some(axis) = inferred {
        let known = Shape::from(result.as_slice()).num_elements();
        let total = Shape::from(own).num_elements();
        *result.get_mut(axis)? = total.checked_div(known).filter(|dim| dim * known == total)?;
    }
    Some(Shape::from(result))
}

/// Splits an axis in two lengths, one of which may be -1.
fn split(axis: usize, left: i64, right: i64) -> Option<(usize, usize)> {
    let pair = match (left, right) {
        (-1, right) => {
            let right = usize::try_from(right).ok()?;
            (axis.checked_div(right)?, right)
        }
        (left, -1) => {
            let left = usize::try_from(left).ok()?;
            (left, axis.checked_div(left)?)
        }
        (left, right) => (usize::try_from(left).ok()?, usize::try_from(right).ok()?),
    };
    (pair.0.checked_mul(pair.1)? == axis).then_some(pair)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test may abort without memory")]
mod tests {
    use super::*;

    #[test]
    fn reshape_codes() {
        let resolved = |wanted: &[i64]| resolve(&[2, 3, 4], wanted).map(|s| s.dims().to_vec());
        assert_eq!(resolved(&[6, -1]), Some(vec![6, 4]));
        assert_eq!(resolved(&[0, -1]), Some(vec![2, 12]));
        assert_eq!(resolved(&[0, -2]), Some(vec![2, 3, 4]));
        assert_eq!(resolved(&[-3, 4]), Some(vec![6, 4]));
        assert_eq!(resolved(&[-4, 1, -1, -2]), Some(vec![1, 2, 3, 4]));
        assert_eq!(resolved(&[-1, -1]), None);
        assert_eq!(resolved(&[7, -1]), None);
    }
}
