//! Making arrays on the devices of this process.

use std::ops;
use std::path::Path;

use kvstore_core::{
    ArrayList, DType, Device, Element, Error, NDArray, Range, Result, Scalar, Shape, Tensor,
    TensorSpec,
};

use crate::runtime::backends;

/// Returns an array with every element set to `value`.
///
/// # Errors
/// [`DeviceUnavailable`](crate::Error::DeviceUnavailable),
/// [`OutOfMemory`](crate::Error::OutOfMemory).
pub fn full(
    shape: impl Into<Shape>,
    value: impl Into<Scalar>,
    dtype: DType,
    device: Device,
) -> Result<NDArray> {
    let spec = TensorSpec::new(shape, dtype);
    Tensor::full(backends(), device, spec, value.into()).map(NDArray::new)
}

/// Returns an array of zeros; see [`full`].
pub fn zeros(shape: impl Into<Shape>, dtype: DType, device: Device) -> Result<NDArray> {
    full(shape, 0, dtype, device)
}

/// Returns an array of ones; see [`full`].
pub fn ones(shape: impl Into<Shape>, dtype: DType, device: Device) -> Result<NDArray> {
    full(shape, 1, dtype, device)
}

/// Returns an array with these elements in row-major order, of the dtype of `T`.
///
/// ```
/// use kvstore::{Device, array};
/// let matrix = array(&[1f32, 2.0, 3.0, 4.0], [2, 2], Device::cpu(0))?;
/// assert_eq!(matrix.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
/// # Ok::<(), kvstore::Error>(())
/// ```
///
/// # Errors
/// [`LengthMismatch`](crate::Error::LengthMismatch) when the shape has not as many elements, and
/// those of [`full`].
pub fn array<T: Element>(
    elements: &[T],
    shape: impl Into<Shape>,
    device: Device,
) -> Result<NDArray> {
    Tensor::from_slice(backends(), device, shape, elements).map(NDArray::new)
}

/// Returns an array with `num_elements` elements in row-major order, which `lend` shows a piece after the
/// other: it calls the function that it is given with the elements of the range. So elements that can only be
/// seen for a moment are copied once.
///
/// ```
/// use kvstore::{Device, Error, array_from};
/// let squares = array_from(4, [2, 2], Device::cpu(0), |range, write| {
///     let piece: Vec<i64> = range.map(|index| (index * index) as i64).collect();
///     write(&piece)
/// })?;
/// assert_eq!(squares.to_vec::<i64>()?, [0, 1, 4, 9]);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`LengthMismatch`](crate::Error::LengthMismatch) when the shape has not as many elements, those of
/// [`full`], and what `lend` returns.
pub fn array_from<T: Element, E: From<Error>>(
    num_elements: usize,
    shape: impl Into<Shape>,
    device: Device,
    lend: impl FnMut(ops::Range<usize>, &mut dyn FnMut(&[T]) -> Result<()>) -> Result<(), E>,
) -> Result<NDArray, E> {
    Tensor::from_pieces(backends(), device, shape, num_elements, lend).map(NDArray::new)
}

/// Returns an array with these bytes: row-major elements in the machine's byte order.
///
/// # Errors
/// [`LengthMismatch`](crate::Error::LengthMismatch) when the spec has not as many bytes, and those
/// of [`full`].
pub fn from_bytes(bytes: &[u8], spec: TensorSpec, device: Device) -> Result<NDArray> {
    Tensor::from_bytes(backends(), device, spec, bytes).map(NDArray::new)
}

/// Returns the numbers from `start` to `stop`, itself not among them, each `repeat` times.
///
/// # Errors
/// [`InvalidArgument`](crate::Error::InvalidArgument) when there are none, and those of [`full`].
pub fn arange(range: Range, dtype: DType, device: Device) -> Result<NDArray> {
    kvstore_core::arange(backends(), device, dtype, &range).map(NDArray::new)
}

/// Reads a file of arrays, as MXNet and [`ArrayList::write`] write it. Arrays go to `cpu(0)`.
///
/// ```
/// use kvstore::{ArrayList, DType, Device, ones, read_arrays};
/// let folder = std::env::temp_dir().join(format!("kvstore-{}", std::process::id()));
/// std::fs::create_dir_all(&folder)?;
/// let file = folder.join("model.params");
/// ArrayList::named([("w", ones([2, 3], DType::F32, Device::cpu(0))?)])?.write(&file)?;
/// assert_eq!(read_arrays(&file)?.get("w").expect("its name").shape().dims(), [2, 3]);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Io`](crate::Error::Io), [`Corrupt`](crate::Error::Corrupt).
pub fn read_arrays(path: impl AsRef<Path>) -> Result<ArrayList> {
    ArrayList::read(backends(), path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorCode;

    const LEN: usize = 200_000;

    fn counted(len: usize, lent: usize) -> Result<NDArray> {
        array_from(len, [LEN], Device::cpu(0), |range, write| {
            let piece: Vec<i32> = range.map(|index| i32::try_from(index).unwrap()).collect();
            write(piece.get(..lent.min(piece.len())).unwrap())
        })
    }

    #[test]
    fn pieces_stand_one_after_the_other() {
        let array = counted(LEN, usize::MAX).unwrap();
        let expected: Vec<i32> = (0..i32::try_from(LEN).unwrap()).collect();
        assert_eq!(array.to_vec::<i32>().unwrap(), expected);
    }

    #[test]
    fn elements_that_are_missing_are_an_error() {
        let code = |array: Result<NDArray>| array.unwrap_err().code();
        assert_eq!(code(counted(LEN - 1, usize::MAX)), ErrorCode::LengthMismatch);
        assert_eq!(code(counted(LEN, 3)), ErrorCode::LengthMismatch);
        let nothing =
            array_from(1, [1], Device::cpu(0), |_, _: &mut dyn FnMut(&[f32]) -> _| Ok(()));
        assert_eq!(code(nothing), ErrorCode::InvalidArgument);
    }

    #[test]
    fn an_error_of_the_lender_comes_back() {
        let failed = array_from(1, [1], Device::cpu(0), |_, _: &mut dyn FnMut(&[f32]) -> _| {
            Err(Error::invalid("not today"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "not today");
    }
}
