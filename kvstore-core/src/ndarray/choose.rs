//! Elements of a matrix that are chosen by columns, and the equality of whole arrays.

use super::NDArray;
use crate::fallible;
use crate::tensor::Tensor;
use crate::types::{DType, Element, Error, Result, Scalar, TensorSpec};

/// So many elements of two arrays are compared at a time.
const PIECE: usize = 1 << 16;

impl NDArray {
    /// Returns one element of each row of this matrix as a new array of one axis, on the device and with
    /// the dtype of the matrix. `columns` has the column for each row.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if this array has not two axes, or a row has no such column.
    /// - [`Error::LengthMismatch`] if there are not as many columns as rows.
    pub fn choose_elements(&self, columns: &Self) -> Result<Self> {
        let matrix = self.tensor();
        let places = places(&matrix, &columns.tensor())?;
        let (size, elements) = (matrix.dtype().size(), matrix.seen_bytes()?);
        let mut chosen = fallible::zeroed(places.len().saturating_mul(size))?;
        for (chosen, place) in chosen.chunks_exact_mut(size).zip(&places) {
            let element = elements.get(place * size..(place + 1) * size);
            chosen.copy_from_slice(element.ok_or_else(outside)?);
        }
        let spec = TensorSpec::new([places.len()], matrix.dtype());
        let mut result = matrix.allocate_like(spec)?;
        result.overwrite(|backend, dst| backend.write(dst, &chosen))?;
        Ok(Self::new(result))
    }

    /// Sets one element of each row of this matrix to 1, and all others to 0. `columns` has the column
    /// for each row.
    ///
    /// # Errors
    /// Those of [`NDArray::choose_elements`]. The matrix is then unchanged.
    pub fn set_one_hot(&self, columns: &Self) -> Result<()> {
        let (dtype, size) = (self.dtype(), self.dtype().size());
        let places = places(&self.tensor(), &columns.tensor())?;
        let mut one = self.tensor().allocate_like(TensorSpec::new([1], dtype))?;
        one.fill(Scalar::Int(1))?;
        let one = one.to_bytes()?;
        let mark = |elements: &mut [u8]| {
            places.iter().try_for_each(|place| {
                let element = elements.get_mut(place * size..(place + 1) * size);
                element.ok_or_else(outside)?.copy_from_slice(&one);
                Ok(())
            })
        };
        self.overwrite(|backend, mut dst| {
            backend.fill(dtype, dst.reborrow(), Scalar::Int(0))?;
            if let Ok(elements) = backend.host_bytes_mut(dst.reborrow()) {
                return mark(elements);
            }
            let mut elements = fallible::zeroed(dst.num_bytes)?;
            mark(&mut elements)?;
            backend.write(dst, &elements)
        })
    }

    /// Returns whether the shapes are the same and the elements equal, as numbers: dtypes and devices may
    /// differ. NaN is equal to nothing.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn array_equal(&self, other: &Self) -> Result<bool> {
        if self.shape() != other.shape() {
            return Ok(false);
        }
        let (one, other) = (self.tensor(), other.tensor());
        let are_whole = [&one, &other].iter().all(|tensor| tensor.dtype() == DType::I64);
        for first in (0..one.num_elements()).step_by(PIECE) {
            let piece = |tensor: &Tensor| {
                let len = PIECE.min(tensor.num_elements() - first);
                tensor.view(first, [len].into())
            };
            let (one, other) = (piece(&one)?, piece(&other)?);
            let is_same =
                if are_whole { same::<i64>(&one, &other)? } else { same::<f64>(&one, &other)? };
            if !is_same {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn same<T: Element + PartialEq>(one: &Tensor, other: &Tensor) -> Result<bool> {
    Ok(one.read_as::<T>()? == other.read_as::<T>()?)
}

/// Returns the index of the element of each row, counted from the first element of the matrix.
fn places(matrix: &Tensor, columns: &Tensor) -> Result<Vec<usize>> {
    let &[num_rows, width] = matrix.shape().dims() else {
        let text = format!("expected a matrix, found {}", matrix.spec());
        return Err(Error::invalid(text));
    };
    if columns.num_elements() != num_rows {
        let what = format!("columns for the rows of {}", matrix.spec());
        let found = columns.num_elements();
        return Err(Error::LengthMismatch { what, expected: num_rows, found });
    }
    let (whole, numbers) = (columns.read_as::<i64>()?, columns.read_as::<f64>()?);
    let place = |(row, (whole, number)): (usize, (&i64, &f64))| {
        let column = usize::try_from(*whole).ok().filter(|column| *column < width);
        // A fraction or NaN has been converted to another number.
        let column = column.filter(|_| is_whole(*number));
        column.map(|column| row * width + column).ok_or_else(|| {
            let last = width.saturating_sub(1);
            let spec = matrix.spec();
            Error::invalid(format!("column {number} of row {row} of {spec}, expected 0 to {last}"))
        })
    };
    fallible::try_collect(whole.iter().zip(&numbers).enumerate().map(place))
}

#[expect(clippy::float_cmp, reason = "a whole number is equal to itself without its fraction")]
fn is_whole(number: f64) -> bool {
    number.trunc() == number
}

fn outside() -> Error {
    Error::Internal("an element outside of its matrix".to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a check fails by panicking")]
mod tests {
    use super::*;
    use crate::backend::registry::Backends;
    use crate::cpu::CpuBackend;
    use crate::types::{Device, ErrorCode, Shape};

    fn array<T: Element>(elements: &[T], shape: impl Into<Shape>) -> NDArray {
        let backends = Backends::new(vec![CpuBackend::with_threads(1)]);
        NDArray::new(Tensor::from_slice(&backends, Device::cpu(0), shape, elements).unwrap())
    }

    #[test]
    fn one_element_of_each_row_is_chosen_and_marked() {
        let whole = array(&[9_i64, 0, 1, 2, 3, 4, 5, 9], [4, 2]);
        let matrix = whole.slice(1, 4).unwrap();
        let columns = array(&[1_f32, 0.0, 1.0], [3]);
        let chosen = matrix.choose_elements(&columns).unwrap();
        assert_eq!(chosen.to_vec::<i64>().unwrap(), [2, 3, 9]);
        matrix.set_one_hot(&columns).unwrap();
        assert_eq!(whole.to_vec::<i64>().unwrap(), [9, 0, 0, 1, 1, 0, 0, 1]);
    }

    #[test]
    fn columns_that_are_not_there_are_refused_and_change_nothing() {
        let matrix = array(&[1_f32, 2.0, 3.0, 4.0], [2, 2]);
        for column in [-1.0, 2.0, 0.5, -0.5, f64::NAN, f64::INFINITY, 1e300] {
            let columns = array(&[0.0, column], [2]);
            let error = matrix.choose_elements(&columns).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{column}");
            assert!(error.to_string().contains("row 1 of [2, 2] f32, expected 0 to 1"), "{error}");
            assert!(matrix.set_one_hot(&columns).is_err(), "{column}");
        }
        let few = array(&[0_i64], [1]);
        let codes = [&matrix, &few].map(|of| of.choose_elements(&few).unwrap_err().code());
        assert_eq!(codes, [ErrorCode::LengthMismatch, ErrorCode::InvalidArgument]);
        assert_eq!(matrix.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn arrays_are_equal_as_numbers() {
        let long: Vec<i64> = (0..70_000).map(|number| i64::MAX - number).collect();
        let mut other = long.clone();
        let (one, same) = (array(&long, [long.len()]), array(&other, [long.len()]));
        other[69_999] += 1;
        let other = array(&other, [long.len()]);
        assert!(one.array_equal(&same).unwrap() && !one.array_equal(&other).unwrap());
        assert!(array(&[1_i64, 2], [2]).array_equal(&array(&[1_f32, 2.0], [2])).unwrap());
        assert!(!array(&[1_f32, 2.0], [2]).array_equal(&array(&[1_f32, 2.0], [2, 1])).unwrap());
        let nan = array(&[f32::NAN], [1]);
        assert!(!nan.array_equal(&nan).unwrap());
        assert!(array(&[0.0_f64], [1]).array_equal(&array(&[-0.0_f64], [1])).unwrap());
    }
}
