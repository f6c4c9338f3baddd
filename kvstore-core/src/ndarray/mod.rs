//! [`NDArray`]: a handle to a shared cell with a [`Tensor`], or to a part of it.

mod arithmetic;
mod choose;
mod file;
mod landing;
mod view;

use std::fmt;
use std::sync::{Arc, MutexGuard};

use crate::backend::registry::Backends;
use crate::backend::{Backend, InOut, SpanMut};
use crate::process::ForkMutex;
use crate::rows::Value;
use crate::tensor::Tensor;
use crate::types::{DType, Device, Element, Error, Result, Scalar, Shape, TensorSpec};

pub use file::ArrayList;

/// A mutable array. An `NDArray` is a handle to a cell, which contains the elements.
///
/// A clone is another handle to the same cell. [`NDArray::slice`] returns a handle to some rows,
/// and [`NDArray::reshape`] a handle with another shape. A write through any handle changes the
/// cell. [`NDArray::tensor`] returns a snapshot in O(1). Later writes do not change the snapshot.
///
/// Every operation holds the lock of its cell while it runs, and never two locks at once.
///
/// ```
/// use kvstore_core::{Backends, CpuBackend, Device, NDArray, Scalar, Tensor};
/// let backends = Backends::new(vec![CpuBackend::new()]);
/// let array = NDArray::new(Tensor::from_slice(&backends, Device::cpu(0), [2, 2], &[1f32; 4])?);
/// array.slice(1, 2)?.fill(Scalar::from(5.0))?;
/// assert_eq!(array.to_vec::<f32>()?, [1.0, 1.0, 5.0, 5.0]);
/// # Ok::<(), kvstore_core::Error>(())
/// ```
#[derive(Clone)]
pub struct NDArray {
    cell: Arc<Cell>,
    device: Device,
    spec: TensorSpec,
    view: Option<View>,
}

/// The elements of the cell that a view refers to. The handle has the shape.
#[derive(Clone, Copy)]
enum View {
    /// All elements, with another shape than the cell's.
    Complete,
    /// Some consecutive elements, from this one on.
    Part { first_element: usize },
}

/// The tensor that all handles share. Its spec and device never change.
struct Cell {
    value: ForkMutex<Tensor>,
    num_elements: usize,
}

impl Cell {
    /// Locks the tensor.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] in a forked child, if another thread held the lock at the fork.
    fn lock(&self) -> Result<MutexGuard<'_, Tensor>> {
        // Ignores poisoning: a panic in a kernel leaves arbitrary elements in a valid tensor.
        self.value.lock()
    }
}

impl NDArray {
    /// Returns a new array with the given value.
    pub fn new(value: Tensor) -> Self {
        let (device, spec) = (value.device(), value.spec().clone());
        let num_elements = spec.num_elements();
        let cell = Arc::new(Cell { value: ForkMutex::new(value), num_elements });
        Self { cell, device, spec, view: None }
    }

    /// Returns the current value. O(1), because the memory is shared until a write.
    ///
    /// In a forked child, an array that another thread was using at the fork is unreadable. Every
    /// operation on it fails with [`Error::Unsupported`].
    pub fn tensor(&self) -> Tensor {
        let value = match self.cell.lock() {
            Ok(value) => value.clone(),
            Err(reason) => return Tensor::unreadable(self.device, self.spec.clone(), &reason),
        };
        let first_element = match self.view {
            None => return value,
            Some(View::Complete) => 0,
            Some(View::Part { first_element }) => first_element,
        };
        // A view is always within its cell, so the fallback is never used.
        value.view(first_element, self.spec.shape().clone()).unwrap_or(value)
    }

    /// Returns shape and dtype.
    pub fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    /// Returns the shape.
    pub fn shape(&self) -> &Shape {
        self.spec.shape()
    }

    /// Returns the dtype.
    pub fn dtype(&self) -> DType {
        self.spec.dtype()
    }

    /// Returns the device whose memory holds the elements.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns whether both are handles to the same cell.
    pub fn is_same_cell(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.cell, &other.cell)
    }

    /// Replaces the elements with the elements of `value`, converted to the array's dtype and moved
    /// to its device.
    ///
    /// O(1) if [`NDArray::can_share`] is true for `value`, and this is not a view of a part.
    ///
    /// # Errors
    /// - [`Error::SpecMismatch`] if the shapes differ. The array is then unchanged.
    pub fn assign(&self, value: &Tensor) -> Result<()> {
        let landed = self.convert(value, None)?;
        self.land(landed)
    }

    /// Returns whether the array can share the memory of `value`, without converting, moving or
    /// copying it.
    pub fn can_share(&self, value: &Tensor) -> bool {
        value.dtype() == self.dtype() && value.is_compact() && value.is_at(self.device)
    }

    /// Replaces the elements with the elements of `value`. [`NDArray::can_share`] must be true for
    /// `value`, or [`NDArray::convert`] must have returned it.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if this is a view of a part, the cell's memory is shared, and there
    ///   is not enough memory for a copy.
    pub fn land(&self, value: Tensor) -> Result<()> {
        if let Some(View::Part { .. }) = self.view {
            return self.overwrite(|backend, dst| backend.copy(dst, value.span()));
        }
        let mut cell = self.cell.lock()?;
        let value = value.relabelled(self.device).reshaped(cell.shape())?;
        let previous = std::mem::replace(&mut *cell, value);
        // Frees the memory after unlocking.
        drop(cell);
        drop(previous);
        Ok(())
    }

    /// Returns `value` converted to the array's dtype and moved to its device. This is the part of
    /// [`NDArray::assign`] that can run out of memory. It does not change the array.
    ///
    /// `reserved` is memory from [`NDArray::reserve`] to use for the result.
    ///
    /// # Errors
    /// - [`Error::SpecMismatch`] if the shapes differ.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn convert(&self, value: &Tensor, reserved: Option<Tensor>) -> Result<Tensor> {
        if value.shape() != self.shape() {
            let expected = &self.spec;
            let found = value.spec().with_dtype(self.dtype());
            return Err(Error::operand_mismatch("assign", expected, &found));
        }
        let sample = self.cell.lock()?.clone();
        if let Some(mut converted) = reserved {
            converted.cast_from(&value.to_device_of(&sample)?)?;
            return Ok(converted);
        }
        value.cast(self.dtype())?.to_device_of(&sample)?.compact()
    }

    /// Allocates the memory that [`NDArray::convert`] needs for a value of `dtype`. This way, a
    /// call can allocate before its first change. Returns `None` if this is the array's dtype.
    pub fn reserve(&self, dtype: DType) -> Result<Option<Tensor>> {
        let needed = dtype != self.dtype();
        needed.then(|| self.tensor().allocate_like(self.spec.clone())).transpose()
    }

    /// Overwrites the elements with those of a slice, converted to the array's dtype.
    ///
    /// # Errors
    /// - [`Error::LengthMismatch`] if the slice does not have as many elements as the array.
    pub fn assign_slice<T: Element>(&self, elements: &[T]) -> Result<()> {
        let mut value = self.tensor().allocate_like(self.spec.clone())?;
        value.write_slice(elements)?;
        self.land(value)
    }

    /// Calls `change` to change the value in place, while it holds the lock. For a view, `change`
    /// receives a copy, which then replaces the elements of the view. `change` must keep shape,
    /// dtype and device.
    ///
    /// # Errors
    /// - The errors of `change`.
    pub(crate) fn modify(&self, change: impl FnOnce(&mut Tensor) -> Result<()>) -> Result<()> {
        if self.view.is_none() {
            return change(&mut *self.cell.lock()?);
        }
        let mut value = self.tensor();
        change(&mut value)?;
        self.assign(&value)
    }

    /// Sets every element to `value`.
    pub fn fill(&self, value: Scalar) -> Result<()> {
        let dtype = self.dtype();
        self.overwrite(|backend, dst| backend.fill(dtype, dst, value))
    }

    /// Returns a new array with the same value. O(1) unless this is a view of a part or its memory
    /// is external. The first write to either array then copies the elements.
    pub fn copy(&self) -> Result<Self> {
        Ok(Self::new(self.tensor().compact()?))
    }

    /// Copies the value to `target`, converted to its dtype and moved to its device.
    ///
    /// # Errors
    /// - [`Error::SpecMismatch`] if the shapes differ.
    pub fn copy_to(&self, target: &Self) -> Result<()> {
        target.assign(&self.tensor())
    }

    /// Returns a new array with the elements converted to another dtype.
    pub fn as_type(&self, dtype: DType) -> Result<Self> {
        Ok(Self::new(self.tensor().cast(dtype)?))
    }

    /// Returns a handle to this array if it is on `device`, or else a new array on `device`.
    ///
    /// # Errors
    /// - [`Error::DeviceUnavailable`] if the device is not available.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn to_device(&self, backends: &Backends, device: Device) -> Result<Self> {
        if device == self.device {
            return Ok(self.clone());
        }
        Ok(Self::new(self.tensor().to_device(backends, device)?))
    }

    /// Copies the elements to the host.
    ///
    /// # Errors
    /// - [`Error::SpecMismatch`] if `T` is not the array's dtype.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.tensor().to_vec()
    }

    /// Copies the elements to the host, converted to `T`.
    pub fn read_as<T: Element>(&self) -> Result<Vec<T>> {
        self.tensor().read_as()
    }

    /// Copies the elements to the host as bytes: row-major, in the machine's byte order.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        self.tensor().to_bytes()
    }

    /// Waits until the elements have been computed.
    pub fn wait_to_read(&self) -> Result<()> {
        self.tensor().wait()
    }

    /// Locks the array, like an operation.
    #[cfg(all(test, unix, not(miri)))]
    #[allow(clippy::expect_used, reason = "a check fails by panicking")]
    pub(crate) fn lock_for_test(&self) -> MutexGuard<'_, Tensor> {
        self.cell.lock().expect("the process is not forked")
    }

    /// Calls `write` to overwrite the elements, without reading the old ones.
    fn overwrite(&self, write: impl FnOnce(&dyn Backend, SpanMut<'_>) -> Result<()>) -> Result<()> {
        self.mutate(|backend, in_out| match in_out {
            InOut::InPlace(dst) | InOut::Into { dst, .. } => write(backend, dst),
        })
    }

    /// Calls `change` to read and replace the elements, while it holds the lock.
    fn mutate(&self, change: impl FnOnce(&dyn Backend, InOut<'_>) -> Result<()>) -> Result<()> {
        let mut cell = self.cell.lock()?;
        match self.view {
            None | Some(View::Complete) => cell.mutate(change),
            Some(View::Part { first_element }) => {
                cell.mutate_part(first_element, self.spec.num_elements(), change)
            }
        }
    }
}

/// Returns a snapshot of the value.
impl From<NDArray> for Value {
    fn from(array: NDArray) -> Self {
        array.tensor().into()
    }
}

/// Returns a snapshot of the value.
impl From<&NDArray> for Value {
    fn from(array: &NDArray) -> Self {
        array.tensor().into()
    }
}

impl fmt::Debug for NDArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NDArray[{} {}]", self.spec, self.device)
    }
}

#[cfg(all(test, unix, not(miri)))]
#[allow(clippy::unwrap_used, reason = "a check fails by panicking")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cpu::CpuBackend;
    use crate::process::tests::{in_child, while_held};
    use crate::types::ErrorCode;

    #[test]
    fn a_forked_child_reads_changes_and_drops_arrays_of_its_parent() {
        const LEN: usize = 1 << 18;
        let backends = Backends::new(vec![CpuBackend::with_threads(3)]);
        let tensor = |len: usize| {
            Tensor::from_slice(&backends, Device::cpu(0), [len], &vec![1_f32; len]).unwrap()
        };
        let (array, held) = (NDArray::new(tensor(LEN)), Arc::new(NDArray::new(tensor(LEN))));
        // Fills the pool, which the child must not use.
        drop((tensor(LEN), tensor(LEN)));
        while_held(
            || held.lock_for_test(),
            || {
                in_child(|| {
                    let sum = array.add(&array).unwrap();
                    assert!(sum.to_vec::<f32>().unwrap().iter().all(|element| *element == 2.0));
                    array.fill(5.0.into()).unwrap();
                    assert!(array.to_vec::<f32>().unwrap().iter().all(|element| *element == 5.0));
                    let results = [
                        held.to_vec::<f32>().map(drop),
                        held.fill(1.0.into()),
                        held.add(&array).map(drop),
                        array.add(&held).map(drop),
                        held.copy().map(drop),
                        array.copy_to(&held),
                        held.copy_to(&array),
                    ];
                    for result in results {
                        let error = result.unwrap_err();
                        assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");
                        assert!(error.to_string().contains("forked"), "{error}");
                    }
                    drop((sum, array, Arc::clone(&held)));
                    drop(backends);
                });
            },
        );
    }
}
