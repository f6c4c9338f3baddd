//! Reads or sets one element of each row of a matrix, selected by column indices.

use super::NDArray;
use crate::fallible;
use crate::tensor::Tensor;
use crate::types::{Error, Result, Scalar, TensorSpec};

impl NDArray {
    /// Returns one element of each row of this matrix as a new array of shape `[rows]`, on the same
    /// device and with the same dtype. `columns` has one column index per row.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if this array does not have two axes.
    /// - [`Error::InvalidArgument`] if a column index is out of range or not an integer.
    /// - [`Error::LengthMismatch`] if `columns` does not have one index for each row.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
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

    /// Sets one element of each row of this matrix to 1, and all other elements to 0. `columns` has
    /// one column index per row.
    ///
    /// # Errors
    /// - The errors of [`NDArray::choose_elements`]. The matrix is then unchanged.
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
            if backend.host_bytes_mut(dst.reborrow()).is_err() {
                // The host cannot access the memory. Allocates before the first change, so that a
                // failure changes nothing.
                let mut elements = fallible::zeroed(dst.num_bytes)?;
                mark(&mut elements)?;
                return backend.write(dst, &elements);
            }
            backend.fill(dtype, dst.reborrow(), Scalar::Int(0))?;
            mark(backend.host_bytes_mut(dst)?)
        })
    }
}

/// Returns the index of the selected element of each row in the row-major matrix.
fn places(matrix: &Tensor, columns: &Tensor) -> Result<Vec<usize>> {
    let &[num_rows, width] = matrix.shape().dims() else {
        let text = format!("expected a matrix, found {}", matrix.spec());
        return Err(Error::invalid(text));
    };
    if columns.num_elements() != num_rows {
        let what = format!("columns for rows of {}", matrix.spec());
        let found = columns.num_elements();
        return Err(Error::LengthMismatch { what, expected: num_rows, found });
    }
    let (integers, numbers) = (columns.read_as::<i64>()?, columns.read_as::<f64>()?);
    let place = |(row, (integer, number)): (usize, (&i64, &f64))| {
        let column = usize::try_from(*integer).ok().filter(|column| *column < width);
        // The conversion to an integer drops fractions and maps NaN to 0.
        let column = column.filter(|_| is_integer(*number));
        column.map(|column| row * width + column).ok_or_else(|| {
            let last = width.saturating_sub(1);
            let spec = matrix.spec();
            Error::invalid(format!(
                "column index {number} for row {row} is out of range for {spec}: expected 0 to \
                 {last}"
            ))
        })
    };
    fallible::try_collect(integers.iter().zip(&numbers).enumerate().map(place))
}

#[expect(clippy::float_cmp, reason = "an integer is equal to itself without its fraction")]
fn is_integer(number: f64) -> bool {
    number.trunc() == number
}

fn outside() -> Error {
    Error::Internal("an element outside of its matrix".to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a check fails by panicking")]
mod tests {
    use crate::ndarray::arithmetic::tests::array;
    use crate::types::ErrorCode;

    #[test]
    fn one_element_of_each_row_is_read_and_set() {
        let base = array(&[9_i64, 0, 1, 2, 3, 4, 5, 9], [4, 2]);
        let matrix = base.slice(1, 4).unwrap();
        let columns = array(&[1_f32, 0.0, 1.0], [3]);
        let chosen = matrix.choose_elements(&columns).unwrap();
        assert_eq!(chosen.to_vec::<i64>().unwrap(), [2, 3, 9]);
        matrix.set_one_hot(&columns).unwrap();
        assert_eq!(base.to_vec::<i64>().unwrap(), [9, 0, 0, 1, 1, 0, 0, 1]);
    }

    #[test]
    fn invalid_columns_are_rejected_and_change_nothing() {
        let matrix = array(&[1_f32, 2.0, 3.0, 4.0], [2, 2]);
        let invalid = [-1.0, f64::NAN, 2.0, 0.5, -0.5, f64::INFINITY, 1e300];
        for column in &invalid[..if cfg!(miri) { 2 } else { 7 }] {
            let columns = array(&[0.0, *column], [2]);
            let error = matrix.choose_elements(&columns).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{column}");
            assert!(
                error
                    .to_string()
                    .contains("for row 1 is out of range for [2, 2] f32: expected 0 to 1"),
                "{error}"
            );
            assert!(matrix.set_one_hot(&columns).is_err(), "{column}");
        }
        let few = array(&[0_i64], [1]);
        let codes = [&matrix, &few].map(|of| of.choose_elements(&few).unwrap_err().code());
        assert_eq!(codes, [ErrorCode::LengthMismatch, ErrorCode::InvalidArgument]);
        assert_eq!(matrix.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    }
}
