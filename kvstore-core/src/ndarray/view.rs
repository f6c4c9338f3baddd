//! Views: handles to rows of an array, or to the entire array with another shape.

use std::sync::Arc;

use super::{NDArray, View};
use crate::types::{Error, Result, Shape, TensorSpec};

impl NDArray {
    /// Returns a handle to the rows `start..stop` of axis 0. The range may be empty.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the range is not within the array, or if `start` is greater
    ///   than `stop`.
    /// - [`Error::InvalidArgument`] if the array has no axes.
    pub fn slice(&self, start: usize, stop: usize) -> Result<Self> {
        let rows = self.shape().num_rows();
        if self.shape().rank() == 0 || start > stop || stop > rows {
            return Err(Error::invalid(format!(
                "slice [{start}, {stop}) is out of range for {}: expected a stop of at most \
                 {rows}, and a start of at most the stop",
                self.spec
            )));
        }
        let row = self.shape().row();
        let shape = self.shape().with_num_rows(stop - start);
        Ok(self.part(start * row.num_elements(), shape))
    }

    /// Returns a handle to row `index`, without the first axis. For a vector, the shape is `[1]`.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the array does not have this row.
    pub fn at(&self, index: usize) -> Result<Self> {
        let rows = self.shape().num_rows();
        if self.shape().rank() == 0 || index >= rows {
            return Err(Error::invalid(format!(
                "row index {index} is out of range for {}: expected less than {rows}",
                self.spec
            )));
        }
        let row = self.shape().row();
        let shape = if row.rank() == 0 { Shape::from([1]) } else { row.clone() };
        Ok(self.part(index * row.num_elements(), shape))
    }

    /// Returns a handle to `len` elements from `first` on, in row-major order, as a vector.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the elements are not within the array.
    pub fn elements(&self, first: usize, len: usize) -> Result<Self> {
        let end = first.checked_add(len);
        if end.is_none_or(|end| end > self.spec.num_elements()) {
            return Err(Error::invalid(format!(
                "{len} elements from element {first} on are out of range for {}, which has {}",
                self.spec,
                self.spec.num_elements()
            )));
        }
        Ok(self.part(first, Shape::from([len])))
    }

    /// Returns a handle to all elements with another shape.
    ///
    /// Besides lengths, `dims` may contain these codes:
    ///
    /// - 0: the length of the corresponding axis of this array.
    /// - -1: the length that keeps the number of elements. Only one axis may have it.
    /// - -2: all remaining axes of this array.
    /// - -3: the product of the next two axes of this array.
    /// - -4, followed by two lengths: the next axis of this array, split in two. One of the lengths
    ///   may be -1.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the number of elements would change.
    /// - [`Error::InvalidArgument`] if the codes do not fit the shape of this array.
    pub fn reshape(&self, dims: &[i64]) -> Result<Self> {
        let mismatch = || {
            Error::invalid(format!(
                "cannot reshape {} of {} elements into {dims:?}",
                self.spec,
                self.spec.num_elements()
            ))
        };
        let shape = resolve(self.shape().dims(), dims).ok_or_else(mismatch)?;
        if shape.num_elements() != self.spec.num_elements() {
            return Err(mismatch());
        }
        Ok(self.part(0, shape))
    }

    /// Returns a handle to elements of this handle, from `first_element` on.
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

/// Returns the shape for the codes `wanted` and an array of shape `own`, or `None` if they do not
/// fit.
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
                // Uses up one axis of the array, as in MXNet, and infers the length at the end.
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

/// Splits the length of an axis in two. One of `left` and `right` may be -1.
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
    fn reshape_resolves_codes() {
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
