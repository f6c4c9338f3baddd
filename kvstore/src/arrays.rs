//! Making arrays on the devices of this process.

use std::path::Path;

use kvstore_core::{
    ArrayList, DType, Device, Element, NDArray, Range, Result, Scalar, Shape, Tensor, TensorSpec,
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
/// ArrayList::named([("w", ones([2, 3], DType::F32, Device::cpu(0))?)]).write(&file)?;
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
