//! [`Tensor`]: a value on a device. Clones share memory, and writing to shared memory copies it
//! first.

mod arithmetic;
mod external;
mod interop;
mod random;
mod reading;
mod share;
mod sum;

use std::fmt;
use std::ops;
use std::sync::Arc;

use crate::backend::registry::Backends;
use crate::backend::{Backend, InOut, Span, SpanMut, Storage};
use crate::fallible;
use crate::types::{
    DType, Device, Element, Error, Result, Scalar, Shape, TensorSpec, with_element,
};

use share::Share;

pub use interop::ExportedTensor;
pub use random::Generator;

/// A dense, row-major tensor on one device. It has value semantics.
///
/// A clone is O(1) and shares memory. A change needs `&mut`. It happens in place if the memory is
/// not shared, otherwise in new memory, so it never affects a clone.
///
/// ```
/// use kvstore_core::{Backends, CpuBackend, Device, Scalar, Tensor};
/// let backends = Backends::new(vec![CpuBackend::new()]);
/// let mut tensor = Tensor::from_slice(&backends, Device::cpu(0), [3], &[1f32, 2.0, 3.0])?;
/// let before = tensor.clone();
/// tensor.fill(Scalar::from(7.0))?;
/// assert_eq!(before.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
/// # Ok::<(), kvstore_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Tensor {
    share: Share,
    device: Device,
    spec: TensorSpec,
    start: usize,
}

impl Tensor {
    /// Allocates a tensor with unspecified contents.
    ///
    /// # Errors
    /// - [`Error::DeviceUnavailable`] if the device is not available.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    /// - [`Error::InvalidArgument`] if the size in bytes overflows.
    pub fn allocate(backends: &Backends, device: Device, spec: TensorSpec) -> Result<Self> {
        Self::allocate_on(backends.of(device)?, device, spec)
    }

    /// Returns a tensor with every element set to `value`.
    ///
    /// # Errors
    /// - The errors of [`Tensor::allocate`].
    pub fn full(
        backends: &Backends,
        device: Device,
        spec: TensorSpec,
        value: Scalar,
    ) -> Result<Self> {
        let mut tensor = Self::allocate(backends, device, spec)?;
        tensor.fill(value)?;
        Ok(tensor)
    }

    /// Returns a tensor with these elements in row-major order.
    ///
    /// # Errors
    /// - The errors of [`Tensor::allocate`].
    /// - [`Error::LengthMismatch`] if the shape needs another number of elements.
    pub fn from_slice<T: Element>(
        backends: &Backends,
        device: Device,
        shape: impl Into<Shape>,
        elements: &[T],
    ) -> Result<Self> {
        let spec = TensorSpec::new(shape, T::DTYPE);
        check_length(&spec, elements.len())?;
        let mut tensor = Self::allocate(backends, device, spec)?;
        tensor.write_slice(elements)?;
        Ok(tensor)
    }

    /// Returns a tensor with `num_elements` elements in row-major order, which `get` provides in
    /// pieces.
    ///
    /// For each piece, `get` receives a range of elements and a function, and calls the function
    /// with these elements. The function copies at most 256 KiB in the calling thread, so the
    /// elements may be in memory that can be borrowed for a short time only.
    ///
    /// # Errors
    /// - The errors of [`Tensor::allocate`].
    /// - [`Error::LengthMismatch`] if the shape needs another number of elements.
    /// - [`Error::LengthMismatch`] if a piece does not have as many elements as its range.
    /// - [`Error::InvalidArgument`] if `get` does not call the function.
    /// - The error of `get`.
    pub fn from_pieces<T: Element, E: From<Error>>(
        backends: &Backends,
        device: Device,
        shape: impl Into<Shape>,
        num_elements: usize,
        mut get: impl FnMut(ops::Range<usize>, &mut dyn FnMut(&[T]) -> Result<()>) -> Result<(), E>,
    ) -> Result<Self, E> {
        let spec = TensorSpec::new(shape, T::DTYPE);
        check_length(&spec, num_elements)?;
        let mut tensor = Self::allocate(backends, device, spec)?;
        let most = PIECE_BYTES / size_of::<T>();
        let mut first = 0;
        while first < num_elements {
            let end = num_elements.min(first + most);
            let mut written = false;
            get(first..end, &mut |elements| {
                check_length(&TensorSpec::new([end - first], T::DTYPE), elements.len())?;
                written = true;
                tensor.mutate_part(first, elements.len(), |backend, in_out| match in_out {
                    InOut::InPlace(dst) | InOut::Into { dst, .. } => {
                        backend.write(dst, bytemuck::cast_slice(elements))
                    }
                })
            })?;
            // Otherwise, these elements would keep unspecified contents.
            if !written {
                return Err(
                    Error::invalid(format!("elements {first}..{end} were not shown")).into()
                );
            }
            first = end;
        }
        Ok(tensor)
    }

    /// Returns a tensor with these bytes: row-major elements in the machine's byte order.
    ///
    /// # Errors
    /// - The errors of [`Tensor::allocate`].
    /// - [`Error::LengthMismatch`] if the spec needs another number of bytes.
    pub fn from_bytes(
        backends: &Backends,
        device: Device,
        spec: TensorSpec,
        bytes: &[u8],
    ) -> Result<Self> {
        Self::from_parts(backends, device, spec, &[bytes])
    }

    /// Returns a tensor with the bytes of these parts in order, like [`Tensor::from_bytes`].
    ///
    /// # Errors
    /// - The errors of [`Tensor::from_bytes`].
    /// - [`Error::InvalidArgument`] if a part does not have a whole number of elements.
    pub fn from_parts(
        backends: &Backends,
        device: Device,
        spec: TensorSpec,
        parts: &[&[u8]],
    ) -> Result<Self> {
        let (expected, found) = (spec.num_bytes()?, parts.iter().map(|part| part.len()).sum());
        if found != expected {
            let what = format!("bytes for {spec}");
            return Err(Error::LengthMismatch { what, expected, found });
        }
        let size = spec.dtype().size();
        if parts.iter().any(|part| !part.len().is_multiple_of(size)) {
            return Err(Error::invalid(format!(
                "a part of {spec} does not end between two elements"
            )));
        }
        let mut tensor = Self::allocate(backends, device, spec)?;
        let mut first = 0;
        for part in parts.iter().filter(|part| !part.is_empty()) {
            let num_elements = part.len() / size;
            tensor.mutate_part(first, num_elements, |backend, in_out| match in_out {
                InOut::InPlace(dst) | InOut::Into { dst, .. } => backend.write(dst, part),
            })?;
            first += num_elements;
        }
        Ok(tensor)
    }

    fn allocate_on(backend: &Arc<dyn Backend>, device: Device, spec: TensorSpec) -> Result<Self> {
        let storage = backend.allocate(device, spec.num_bytes()?)?;
        Ok(Self { share: Share::new(backend, storage), device, spec, start: 0 })
    }

    /// Allocates a tensor with unspecified contents on the same device and backend.
    pub(crate) fn allocate_like(&self, spec: TensorSpec) -> Result<Self> {
        Self::allocate_on(self.share.backend()?, self.device, spec)
    }

    /// Returns the shape and the dtype.
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

    /// Returns the number of elements.
    pub fn num_elements(&self) -> usize {
        self.spec.num_elements()
    }

    /// Returns the number of bytes of the elements. Other memory of the storage does not count.
    pub fn num_bytes(&self) -> usize {
        // Saturation cannot occur, because the storage that contains the elements was allocated.
        self.num_elements().saturating_mul(self.dtype().size())
    }

    /// Overwrites the elements with those of a slice, converted to the tensor's dtype.
    ///
    /// # Errors
    /// - [`Error::LengthMismatch`] if the slice does not have as many elements as the tensor.
    pub fn write_slice<T: Element>(&mut self, elements: &[T]) -> Result<()> {
        check_length(&self.spec, elements.len())?;
        if T::DTYPE == self.dtype() {
            return self
                .overwrite(|backend, dst| backend.write(dst, bytemuck::cast_slice(elements)));
        }
        let mut source = self.allocate_like(self.spec.with_dtype(T::DTYPE))?;
        source.overwrite(|backend, dst| backend.write(dst, bytemuck::cast_slice(elements)))?;
        self.cast_from(&source)
    }

    /// Sets every element to `value`.
    pub fn fill(&mut self, value: Scalar) -> Result<()> {
        let dtype = self.dtype();
        self.overwrite(|backend, dst| backend.fill(dtype, dst, value))
    }

    /// Returns the tensor converted to another dtype. O(1) if the tensor already has this dtype.
    pub fn cast(&self, dtype: DType) -> Result<Self> {
        if dtype == self.dtype() {
            return Ok(self.clone());
        }
        let mut converted = self.allocate_like(self.spec.with_dtype(dtype))?;
        converted.cast_from(self)?;
        Ok(converted)
    }

    /// Overwrites the elements with those of a tensor of the same shape on the same device.
    pub(crate) fn cast_from(&mut self, source: &Self) -> Result<()> {
        let to = self.dtype();
        self.overwrite(|backend, dst| backend.cast(source.dtype(), source.span(), to, dst))
    }

    /// Returns the tensor on another device. O(1) if both devices share memory.
    ///
    /// # Errors
    /// - [`Error::DeviceUnavailable`] if the device is not available.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn to_device(&self, backends: &Backends, device: Device) -> Result<Self> {
        self.to_backend(backends.of(device)?, device)
    }

    /// Returns whether the elements are in the memory of `device`.
    pub(crate) fn is_at(&self, device: Device) -> bool {
        let same_kind = self.device.kind() == device.kind();
        let is_same = |backend: &Arc<dyn Backend>| backend.shares_memory(self.device, device);
        self.device == device || same_kind && self.share.backend().is_ok_and(is_same)
    }

    /// Returns the tensor under another name of the device. Both names must share memory.
    pub(crate) fn relabelled(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// Returns the tensor with another shape.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the shape has more elements.
    pub(crate) fn reshaped(mut self, shape: &Shape) -> Result<Self> {
        if self.shape() == shape {
            return Ok(self);
        }
        if self.num_elements() != shape.num_elements() {
            return self.view(0, shape.clone());
        }
        self.spec = TensorSpec::new(shape.clone(), self.dtype());
        Ok(self)
    }

    /// Moves the tensor to the device, if it is on another one.
    pub(crate) fn move_to(&mut self, backends: &Backends, device: Device) -> Result<()> {
        if self.is_at(device) {
            self.device = device;
        } else {
            *self = self.to_device(backends, device)?;
        }
        Ok(())
    }

    /// Returns the tensor on the device of `other`.
    pub(crate) fn to_device_of(&self, other: &Self) -> Result<Self> {
        self.to_backend(other.share.backend()?, other.device)
    }

    fn to_backend(&self, backend: &Arc<dyn Backend>, device: Device) -> Result<Self> {
        if self.is_at(device) {
            return Ok(self.clone().relabelled(device));
        }
        let same_kind = self.device.kind() == device.kind();
        let mut moved = Self::allocate_on(backend, device, self.spec.clone())?;
        if same_kind {
            moved.overwrite(|backend, dst| backend.copy(dst, self.span()))?;
        } else {
            let host = self.to_bytes()?;
            moved.overwrite(|backend, dst| backend.write(dst, &host))?;
        }
        Ok(moved)
    }

    /// Returns the tensor in a storage of exactly its size. Copies external memory. Copies a part
    /// of a larger tensor, because it would keep the entire storage alive.
    pub fn compact(&self) -> Result<Self> {
        if self.is_compact() { Ok(self.clone()) } else { self.duplicate() }
    }

    /// Returns whether the tensor covers its entire storage, and the storage is not external.
    pub(crate) fn is_compact(&self) -> bool {
        let storage = &self.share.storage;
        storage.num_bytes() == self.num_bytes() && !storage.is_external()
    }

    /// Returns whether both tensors have the same memory and spec.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.spec == other.spec
            && self.start == other.start
            && Arc::ptr_eq(&self.share.storage, &other.share.storage)
    }

    /// Returns whether both tensors have the same spec and bits. Does not read memory that they
    /// share.
    pub(crate) fn is_identical(&self, other: &Self) -> Result<bool> {
        if self.spec != other.spec {
            return Ok(false);
        }
        if self.is_same(other) {
            return Ok(true);
        }
        Ok(self.seen_bytes()? == other.seen_bytes()?)
    }

    /// Returns a copy of the tensor in its own memory.
    pub fn duplicate(&self) -> Result<Self> {
        let mut copy = self.allocate_like(self.spec.clone())?;
        copy.overwrite(|backend, dst| backend.copy(dst, self.span()))?;
        Ok(copy)
    }

    /// Returns a part of the elements with another shape. The part shares the tensor's memory.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the part is not within the tensor.
    pub fn view(&self, first_element: usize, shape: Shape) -> Result<Self> {
        let end = first_element.checked_add(shape.num_elements());
        if end.is_none_or(|end| end > self.num_elements()) {
            return Err(Error::invalid(format!(
                "a view of shape {shape} from element {first_element} is out of range for {}",
                self.spec
            )));
        }
        let spec = TensorSpec::new(shape, self.dtype());
        let start = self.start + first_element * self.dtype().size();
        Ok(Self { spec, start, ..self.clone() })
    }

    /// Waits until the elements have been computed.
    pub fn wait(&self) -> Result<()> {
        self.share.backend()?.synchronize(self.device)
    }

    /// Returns the backend of the tensor's device.
    pub(crate) fn backend(&self) -> Result<&Arc<dyn Backend>> {
        self.share.backend()
    }

    /// Returns the read-only range of the elements' bytes.
    pub fn span(&self) -> Span<'_> {
        Span { storage: &*self.share.storage, start: self.start, num_bytes: self.num_bytes() }
    }

    /// Returns the writable range of the elements' bytes.
    ///
    /// # Errors
    /// - [`Error::Internal`] if the memory is shared.
    pub(crate) fn span_mut(&mut self) -> Result<SpanMut<'_>> {
        let (start, num_bytes) = (self.start, self.num_bytes());
        Ok(SpanMut { storage: exclusive(&mut self.share.storage)?, start, num_bytes })
    }

    /// Calls `write` to replace every element, without reading the old ones.
    pub(crate) fn overwrite(
        &mut self,
        write: impl FnOnce(&dyn Backend, SpanMut<'_>) -> Result<()>,
    ) -> Result<()> {
        self.mutate(|backend, in_out| match in_out {
            InOut::InPlace(dst) | InOut::Into { dst, .. } => write(backend, dst),
        })
    }

    /// Calls `change` to read and replace every element, in place or in new memory.
    pub(crate) fn mutate(
        &mut self,
        change: impl FnOnce(&dyn Backend, InOut<'_>) -> Result<()>,
    ) -> Result<()> {
        let backend = Arc::clone(self.share.backend()?);
        let mut fresh = self.fresh_if_shared()?;
        change(&*backend, self.in_out(&mut fresh)?)?;
        self.settle(fresh);
        Ok(())
    }

    /// Calls `change` to read and replace `num_elements` elements from `first_element` on. Copies
    /// the tensor first if its memory is shared.
    pub(crate) fn mutate_part(
        &mut self,
        first_element: usize,
        num_elements: usize,
        change: impl FnOnce(&dyn Backend, InOut<'_>) -> Result<()>,
    ) -> Result<()> {
        if !self.may_write() {
            *self = self.duplicate()?;
        }
        let backend = Arc::clone(self.share.backend()?);
        let size = self.dtype().size();
        let start = self.start + first_element * size;
        let storage = exclusive(&mut self.share.storage)?;
        change(
            &*backend,
            InOut::InPlace(SpanMut { storage, start, num_bytes: num_elements * size }),
        )
    }

    /// Overwrites several non-overlapping parts with `value`. `first_elements` are their first
    /// elements.
    pub(crate) fn overwrite_parts(&mut self, first_elements: &[usize], value: &Self) -> Result<()> {
        let size = self.dtype().size();
        let places = fallible::collect(first_elements.iter().map(|first| first * size))?;
        self.mutate_part(0, self.spec.num_elements(), |backend, in_out| match in_out {
            InOut::InPlace(dst) | InOut::Into { dst, .. } => {
                backend.broadcast(dst, &places, value.span())
            }
        })
    }

    /// Overwrites the rows with these indices. `rows` has one row per index.
    pub(crate) fn overwrite_rows(&mut self, indices: &[i64], rows: &Self) -> Result<()> {
        let rows = rows.to_device_of(self)?;
        let row_bytes = self.shape().row().num_elements() * self.dtype().size();
        self.mutate_part(0, self.spec.num_elements(), |backend, in_out| {
            let (InOut::InPlace(mut dst) | InOut::Into { mut dst, .. }) = in_out;
            let src = rows.span();
            for (row, index) in indices.iter().enumerate() {
                let place = usize::try_from(*index).unwrap_or(usize::MAX).saturating_mul(row_bytes);
                let start = src.start + row * row_bytes;
                let src = Span { start, num_bytes: row_bytes, ..src };
                backend.broadcast(dst.reborrow(), &[place], src)?;
            }
            Ok(())
        })
    }

    /// Allocates the memory for a change if the present memory is shared.
    pub(crate) fn fresh_if_shared(&mut self) -> Result<Option<Arc<dyn Storage>>> {
        if self.may_write() {
            return Ok(None);
        }
        self.share.backend()?.allocate(self.device, self.num_bytes()).map(Some)
    }

    /// Returns the operand of a change. `fresh` is the result of [`Tensor::fresh_if_shared`].
    pub(crate) fn in_out<'a>(
        &'a mut self,
        fresh: &'a mut Option<Arc<dyn Storage>>,
    ) -> Result<InOut<'a>> {
        let (start, num_bytes) = (self.start, self.num_bytes());
        match fresh {
            None => Ok(InOut::InPlace(self.span_mut()?)),
            Some(fresh) => Ok(InOut::Into {
                src: Span { storage: &*self.share.storage, start, num_bytes },
                dst: SpanMut { storage: exclusive(fresh)?, start: 0, num_bytes },
            }),
        }
    }

    /// Commits a change: switches to the new memory, if it used any.
    pub(crate) fn settle(&mut self, fresh: Option<Arc<dyn Storage>>) {
        if let Some(storage) = fresh {
            self.share.move_to(storage);
            self.start = 0;
        }
    }
}

/// A copy of this size is fast in one thread, so it does not need the backend's workers.
const PIECE_BYTES: usize = 256 << 10;

fn check_length(spec: &TensorSpec, found: usize) -> Result<()> {
    let expected = spec.num_elements();
    if found == expected {
        return Ok(());
    }
    Err(Error::LengthMismatch { what: format!("elements for {spec}"), expected, found })
}

fn exclusive(storage: &mut Arc<dyn Storage>) -> Result<&mut dyn Storage> {
    Arc::get_mut(storage)
        .ok_or_else(|| Error::Internal("shared storage where an own one was expected".to_owned()))
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor[{} {}]", self.spec, self.device)
    }
}

/// Returns the numbers of an evenly spaced range, each `repeat` times, in the given dtype.
///
/// Element `i` is `start + (i / repeat) * step`, computed in `f64` and rounded once.
///
/// # Errors
/// - [`Error::InvalidArgument`] if the range is empty or too long, or `repeat` is 0.
/// - [`Error::InvalidArgument`] if `step` is 0 or a number is not finite.
/// - The errors of [`Tensor::allocate`].
pub fn arange(backends: &Backends, device: Device, dtype: DType, range: &Range) -> Result<Tensor> {
    let num_steps = range.num_steps()?;
    let num_elements = num_steps
        .checked_mul(range.repeat)
        .ok_or_else(|| Error::invalid("arange: too many elements"))?;
    let mut tensor = Tensor::allocate(backends, device, TensorSpec::new([num_elements], dtype))?;
    with_element!(dtype, T => {
        let mut elements: Vec<T> = fallible::with_capacity(num_elements)?;
        for step in 0..num_steps {
            let value: T = Scalar::Float(range.at(step)).to_element();
            elements.extend(std::iter::repeat_n(value, range.repeat));
        }
        tensor.write_slice(&elements)?;
    });
    Ok(tensor)
}

/// A half-open range of evenly spaced numbers for [`arange`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The first number.
    pub start: f64,
    /// The end of the range, exclusive.
    pub stop: f64,
    /// The difference between neighbouring numbers.
    pub step: f64,
    /// How many times each number appears.
    pub repeat: usize,
}

impl Range {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "the check has limited the number of steps to 1..9e15, below 2^53"
    )]
    fn num_steps(&self) -> Result<usize> {
        let steps = ((self.stop - self.start) / self.step).ceil();
        if !(1.0..9e15).contains(&steps) || self.repeat == 0 {
            return Err(Error::invalid(format!(
                "arange: no numbers from {} to {} with step {} and repeat {}",
                self.start, self.stop, self.step, self.repeat
            )));
        }
        Ok(steps as usize)
    }

    #[allow(clippy::cast_precision_loss, reason = "a step number is below 2^53")]
    fn at(&self, step: usize) -> f64 {
        self.start + step as f64 * self.step
    }
}
