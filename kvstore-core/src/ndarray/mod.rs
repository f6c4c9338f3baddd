//! [`NDArray`]: an identity. A shared cell that holds a [`Tensor`], with views into it.

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

/// An array that can be changed through every handle to it.
///
/// A clone is another handle to the same cell; [`NDArray::slice`] and [`NDArray::reshape`] are
/// handles to a part or under another shape, and writing through them writes the cell.
/// [`NDArray::tensor`] takes a snapshot of the value in O(1); no later write reaches it.
///
/// Every operation takes the cell's lock for its own duration only and never holds two.
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

/// Which elements of its cell a handle shows, under the handle's own shape.
#[derive(Clone, Copy)]
enum View {
    /// All, under another shape than the cell's.
    Complete,
    /// As many as the shape has, from this one on.
    Part { first_element: usize },
}

/// The place that all handles share. Its tensor's spec and device never change.
struct Cell {
    value: ForkMutex<Tensor>,
    num_elements: usize,
}

impl Cell {
    /// # Errors
    /// [`Error::Unsupported`] in a forked child, if another thread held the lock at the fork.
    fn lock(&self) -> Result<MutexGuard<'_, Tensor>> {
        // A panic in a kernel leaves arbitrary elements behind, but a whole tensor.
        self.value.lock()
    }
}

impl NDArray {
    /// Returns a new cell that holds `value`.
    pub fn new(value: Tensor) -> Self {
        let (device, spec) = (value.device(), value.spec().clone());
        let num_elements = spec.num_elements();
        let cell = Arc::new(Cell { value: ForkMutex::new(value), num_elements });
        Self { cell, device, spec, view: None }
    }

    /// Returns the present value. O(1): the memory is shared until somebody writes.
    ///
    /// In a forked child, an array that another thread was using at the fork is unreadable: every
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
        // A view lies within its cell by construction; the cell's own value is the way out.
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

    /// Gives the array a new value: cast to its dtype, moved to its device.
    ///
    /// O(1) when the value is of the same dtype and device and the array is not a view.
    ///
    /// # Errors
    /// [`Error::SpecMismatch`] when the shapes differ; the array is then unchanged.
    pub fn assign(&self, value: &Tensor) -> Result<()> {
        let landed = self.convert(value, None)?;
        self.land(landed)
    }

    /// Returns whether the array can keep this very value by sharing: nothing has to be converted,
    /// moved or copied.
    pub fn can_share(&self, value: &Tensor) -> bool {
        value.dtype() == self.dtype() && value.is_compact() && value.is_at(self.device)
    }

    /// Gives the array a value that [`NDArray::can_share`] or that [`NDArray::convert`] returned.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] for a part of an array whose present value somebody shares.
    pub fn land(&self, value: Tensor) -> Result<()> {
        if let Some(View::Part { .. }) = self.view {
            return self.overwrite(|backend, dst| backend.copy(dst, value.span()));
        }
        let mut cell = self.cell.lock()?;
        let value = value.relabelled(self.device).reshaped(cell.shape())?;
        let previous = std::mem::replace(&mut *cell, value);
        // Memory is given back outside of the lock.
        drop(cell);
        drop(previous);
        Ok(())
    }

    /// Returns `value` as this array would hold it: everything of [`NDArray::assign`] that can
    /// fail for want of memory, without changing the array. It may use what was reserved.
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

    /// Returns the memory that [`NDArray::convert`] will need for a value of this dtype, so that a
    /// call can have it before its first change; none when the value is kept by sharing.
    pub fn reserve(&self, dtype: DType) -> Result<Option<Tensor>> {
        let needed = dtype != self.dtype();
        needed.then(|| self.tensor().allocate_like(self.spec.clone())).transpose()
    }

    /// Overwrites the elements with those of the host, converted into the array's dtype.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when there are not as many.
    pub fn assign_slice<T: Element>(&self, elements: &[T]) -> Result<()> {
        let mut value = self.tensor().allocate_like(self.spec.clone())?;
        value.write_slice(elements)?;
        self.land(value)
    }

    /// Lets `change` change the value in place. Other threads wait meanwhile. A view of a part changes
    /// a copy, which then replaces the part.
    ///
    /// # Errors
    /// Those of `change`, which must keep shape, dtype and device.
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

    /// Returns a new array with the same value. O(1) until one of them is written.
    pub fn copy(&self) -> Result<Self> {
        Ok(Self::new(self.tensor().compact()?))
    }

    /// Gives `target` the value of this array: cast to its dtype, moved to its device.
    ///
    /// # Errors
    /// [`Error::SpecMismatch`] when the shapes differ.
    pub fn copy_to(&self, target: &Self) -> Result<()> {
        target.assign(&self.tensor())
    }

    /// Returns a new array with the values in another dtype.
    pub fn as_type(&self, dtype: DType) -> Result<Self> {
        Ok(Self::new(self.tensor().cast(dtype)?))
    }

    /// Returns a handle to this array when it is on `device`, otherwise a new array there.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`], [`Error::OutOfMemory`].
    pub fn to_device(&self, backends: &Backends, device: Device) -> Result<Self> {
        if device == self.device {
            return Ok(self.clone());
        }
        Ok(Self::new(self.tensor().to_device(backends, device)?))
    }

    /// Copies the elements to the host.
    ///
    /// # Errors
    /// [`Error::SpecMismatch`] when `T` is not the array's dtype.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.tensor().to_vec()
    }

    /// Copies the elements to the host, converted to `T`.
    pub fn read_as<T: Element>(&self) -> Result<Vec<T>> {
        self.tensor().read_as()
    }

    /// Copies the elements to the host as bytes, row-major, in the machine's byte order.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        self.tensor().to_bytes()
    }

    /// Waits until the elements have been computed.
    pub fn wait_to_read(&self) -> Result<()> {
        self.tensor().wait()
    }

    /// Locks the array as an operation does.
    #[cfg(all(test, unix, not(miri)))]
    #[allow(clippy::expect_used, reason = "a check fails by panicking")]
    pub(crate) fn lock_for_test(&self) -> MutexGuard<'_, Tensor> {
        self.cell.lock().expect("the process is not forked")
    }

    fn overwrite(&self, write: impl FnOnce(&dyn Backend, SpanMut<'_>) -> Result<()>) -> Result<()> {
        self.mutate(|backend, in_out| match in_out {
            InOut::InPlace(dst) | InOut::Into { dst, .. } => write(backend, dst),
        })
    }

    /// Lets `change` read and replace the elements under the cell's lock.
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

/// Takes a snapshot of the value.
impl From<NDArray> for Value {
    fn from(array: NDArray) -> Self {
        array.tensor().into()
    }
}

/// Takes a snapshot of the value.
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
    fn a_child_reads_changes_and_drops_arrays_of_its_parent() {
        const LEN: usize = 1 << 18;
        let backends = Backends::new(vec![CpuBackend::with_threads(3)]);
        let tensor = |len: usize| {
            Tensor::from_slice(&backends, Device::cpu(0), [len], &vec![1_f32; len]).unwrap()
        };
        let (array, held) = (NDArray::new(tensor(LEN)), Arc::new(NDArray::new(tensor(LEN))));
        // Fill the pool.
        drop((tensor(LEN), tensor(LEN)));
        while_held(
            || held.lock_for_test(),
            || {
                in_child(|| {
                    let sum = array.add(&array).unwrap();
                    assert!(sum.to_vec::<f32>().unwrap().iter().all(|element| *element == 2.0));
                    array.fill(5.0.into()).unwrap();
                    assert!(array.to_vec::<f32>().unwrap().iter().all(|element| *element == 5.0));
                    let refused = [
                        held.to_vec::<f32>().map(drop),
                        held.fill(1.0.into()),
                        held.add(&array).map(drop),
                        array.add(&held).map(drop),
                        held.copy().map(drop),
                        array.copy_to(&held),
                        held.copy_to(&array),
                    ];
                    for refused in refused {
                        let error = refused.unwrap_err();
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
