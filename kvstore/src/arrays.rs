//! Functions that create arrays on the devices of this process.

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
/// - [`DeviceUnavailable`](crate::Error::DeviceUnavailable) if the device is not available.
/// - [`OutOfMemory`](crate::Error::OutOfMemory) if there is not enough memory.
/// - [`InvalidArgument`](crate::Error::InvalidArgument) if the size in bytes overflows.
pub fn full(
    shape: impl Into<Shape>,
    value: impl Into<Scalar>,
    dtype: DType,
    device: Device,
) -> Result<NDArray> {
    let spec = TensorSpec::new(shape, dtype);
    Tensor::full(backends(), device, spec, value.into()).map(NDArray::new)
}

/// Returns an array of zeros.
///
/// # Errors
/// - The errors of [`full`].
pub fn zeros(shape: impl Into<Shape>, dtype: DType, device: Device) -> Result<NDArray> {
    full(shape, 0, dtype, device)
}

/// Returns an array of ones.
///
/// # Errors
/// - The errors of [`full`].
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
/// - The errors of [`full`].
/// - [`LengthMismatch`](crate::Error::LengthMismatch) if the shape needs another number of
///   elements.
pub fn array<T: Element>(
    elements: &[T],
    shape: impl Into<Shape>,
    device: Device,
) -> Result<NDArray> {
    Tensor::from_slice(backends(), device, shape, elements).map(NDArray::new)
}

/// Returns an array with `num_elements` elements in row-major order, which `get` provides in
/// pieces.
///
/// For each piece, `get` receives a range of elements and a function, and calls the function with
/// these elements. So elements that can be borrowed for a short time only are copied once.
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
/// - The errors of [`full`].
/// - [`LengthMismatch`](crate::Error::LengthMismatch) if the shape needs another number of
///   elements, or a piece does not have as many elements as its range.
/// - [`InvalidArgument`](crate::Error::InvalidArgument) if `get` does not call the function.
/// - The error of `get`.
pub fn array_from<T: Element, E: From<Error>>(
    num_elements: usize,
    shape: impl Into<Shape>,
    device: Device,
    get: impl FnMut(ops::Range<usize>, &mut dyn FnMut(&[T]) -> Result<()>) -> Result<(), E>,
) -> Result<NDArray, E> {
    Tensor::from_pieces(backends(), device, shape, num_elements, get).map(NDArray::new)
}

/// Returns an array with these bytes: row-major elements in the machine's byte order.
///
/// # Errors
/// - The errors of [`full`].
/// - [`LengthMismatch`](crate::Error::LengthMismatch) if the spec needs another number of bytes.
pub fn from_bytes(bytes: &[u8], spec: TensorSpec, device: Device) -> Result<NDArray> {
    Tensor::from_bytes(backends(), device, spec, bytes).map(NDArray::new)
}

/// Returns the numbers from `start` up to, but not including, `stop`, each `repeat` times.
///
/// # Errors
/// - The errors of [`full`].
/// - [`InvalidArgument`](crate::Error::InvalidArgument) if the range is empty.
pub fn arange(range: Range, dtype: DType, device: Device) -> Result<NDArray> {
    kvstore_core::arange(backends(), device, dtype, &range).map(NDArray::new)
}

/// Reads a file of arrays that MXNet or [`ArrayList::write`] has written. The arrays are on
/// `cpu(0)`.
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
/// - [`Io`](crate::Error::Io) if the file cannot be read.
/// - [`Corrupt`](crate::Error::Corrupt) if the file is damaged.
pub fn read_arrays(path: impl AsRef<Path>) -> Result<ArrayList> {
    ArrayList::read(backends(), path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorCode;

    const LEN: usize = 200_000;

    fn counted(len: usize, provided: usize) -> Result<NDArray> {
        array_from(len, [LEN], Device::cpu(0), |range, write| {
            let piece: Vec<i32> = range.map(|index| i32::try_from(index).unwrap()).collect();
            write(piece.get(..provided.min(piece.len())).unwrap())
        })
    }

    #[test]
    fn pieces_are_concatenated() {
        let array = counted(LEN, usize::MAX).unwrap();
        let expected: Vec<i32> = (0..i32::try_from(LEN).unwrap()).collect();
        assert_eq!(array.to_vec::<i32>().unwrap(), expected);
    }

    #[test]
    fn missing_elements_are_an_error() {
        let code = |array: Result<NDArray>| array.unwrap_err().code();
        assert_eq!(code(counted(LEN - 1, usize::MAX)), ErrorCode::LengthMismatch);
        assert_eq!(code(counted(LEN, 3)), ErrorCode::LengthMismatch);
        let nothing =
            array_from(1, [1], Device::cpu(0), |_, _: &mut dyn FnMut(&[f32]) -> _| Ok(()));
        assert_eq!(code(nothing), ErrorCode::InvalidArgument);
    }

    #[test]
    fn the_error_of_get_is_returned() {
        let failed = array_from(1, [1], Device::cpu(0), |_, _: &mut dyn FnMut(&[f32]) -> _| {
            Err(Error::invalid("not today"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "not today");
    }
}
