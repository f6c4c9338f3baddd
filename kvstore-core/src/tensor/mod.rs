//! [`Tensor`]: a value. Cloning shares, writing copies when somebody else still looks.

mod arithmetic;
mod external;
mod interop;
mod random;
mod reading;
mod share;

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

/// A dense, row-major tensor on one device: a value, not a place.
///
/// A clone is O(1) and shares memory. A change goes through `&mut`: in place when nobody shares the
/// memory, otherwise into other memory, so no clone ever sees it.
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
    /// Allocates a tensor of arbitrary content.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`], [`Error::OutOfMemory`], or [`Error::InvalidArgument`] for a
    /// size that no memory can have.
    pub fn allocate(backends: &Backends, device: Device, spec: TensorSpec) -> Result<Self> {
        Self::allocate_on(backends.of(device)?, device, spec)
    }

    /// Returns a tensor with every element set to `value`.
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
    /// [`Error::LengthMismatch`] when the shape does not have as many elements.
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

    /// Returns a tensor with `num_elements` elements in row-major order, which `lend` shows a piece after the
    /// other: it calls the function that it is given with the elements of the range.
    ///
    /// What happens in that function is a copy of at most 256 KiB in the calling thread: the elements may be
    /// where they cannot stay for long.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when the shape has not as many elements, and what `lend` returns.
    pub fn from_pieces<T: Element, E: From<Error>>(
        backends: &Backends,
        device: Device,
        shape: impl Into<Shape>,
        num_elements: usize,
        mut lend: impl FnMut(ops::Range<usize>, &mut dyn FnMut(&[T]) -> Result<()>) -> Result<(), E>,
    ) -> Result<Self, E> {
        let spec = TensorSpec::new(shape, T::DTYPE);
        check_length(&spec, num_elements)?;
        let mut tensor = Self::allocate(backends, device, spec)?;
        let most = PIECE_BYTES / size_of::<T>();
        let mut first = 0;
        while first < num_elements {
            let end = num_elements.min(first + most);
            let mut written = false;
            lend(first..end, &mut |elements| {
                check_length(&TensorSpec::new([end - first], T::DTYPE), elements.len())?;
                written = true;
                tensor.mutate_part(first, elements.len(), |backend, in_out| match in_out {
                    InOut::InPlace(dst) | InOut::Into { dst, .. } => {
                        backend.write(dst, bytemuck::cast_slice(elements))
                    }
                })
            })?;
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
    /// [`Error::LengthMismatch`] when the spec does not have as many bytes.
    pub fn from_bytes(
        backends: &Backends,
        device: Device,
        spec: TensorSpec,
        bytes: &[u8],
    ) -> Result<Self> {
        Self::from_parts(backends, device, spec, &[bytes])
    }

    /// Returns a tensor with the bytes of these parts, one behind the other, each of whole elements; otherwise as
    /// [`Tensor::from_bytes`].
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
            return Err(Error::invalid(format!("a part of {spec} that ends inside an element")));
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

    /// Allocates a tensor of arbitrary content beside this one: same device and backend.
    pub(crate) fn allocate_like(&self, spec: TensorSpec) -> Result<Self> {
        Self::allocate_on(self.share.backend()?, self.device, spec)
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

    /// Returns the number of elements.
    pub fn num_elements(&self) -> usize {
        self.spec.num_elements()
    }

    /// Returns the number of bytes of the elements.
    pub fn num_bytes(&self) -> usize {
        // Saturation cannot occur: the storage that holds the elements was allocated.
        self.num_elements().saturating_mul(self.dtype().size())
    }

    /// Overwrites the elements with those of the host, converted into the tensor's dtype.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when there are not as many.
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

    /// Returns the same values in another dtype; O(1) when it is the tensor's own.
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

    /// Returns the same value on another device; O(1) where both are the same memory.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`], [`Error::OutOfMemory`].
    pub fn to_device(&self, backends: &Backends, device: Device) -> Result<Self> {
        self.to_backend(backends.of(device)?, device)
    }

    /// Returns whether the value stands in the memory of the device.
    pub(crate) fn is_at(&self, device: Device) -> bool {
        let same_kind = self.device.kind() == device.kind();
        let is_same = |backend: &Arc<dyn Backend>| backend.shares_memory(self.device, device);
        self.device == device || same_kind && self.share.backend().is_ok_and(is_same)
    }

    /// Returns the same value with another name for the same memory.
    pub(crate) fn relabelled(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// Returns the same elements under another shape of as many.
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

    /// Moves the value to the device, if it is not there.
    pub(crate) fn move_to(&mut self, backends: &Backends, device: Device) -> Result<()> {
        if self.is_at(device) {
            self.device = device;
        } else {
            *self = self.to_device(backends, device)?;
        }
        Ok(())
    }

    /// Returns the same value where `other` lives.
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

    /// Returns the value in memory of its own size. A part of a larger tensor is copied, because it
    /// would keep the complete memory alive, and so is external memory.
    pub fn compact(&self) -> Result<Self> {
        if self.is_compact() { Ok(self.clone()) } else { self.duplicate() }
    }

    /// Returns whether the value and its clones use all of their memory, and it is not external.
    pub(crate) fn is_compact(&self) -> bool {
        let storage = &self.share.storage;
        storage.num_bytes() == self.num_bytes() && !storage.is_external()
    }

    /// Returns whether both are the same memory under the same spec.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.spec == other.spec
            && self.start == other.start
            && Arc::ptr_eq(&self.share.storage, &other.share.storage)
    }

    /// Returns whether both have the same spec and bits; memory that they share is not read.
    pub(crate) fn is_identical(&self, other: &Self) -> Result<bool> {
        if self.spec != other.spec {
            return Ok(false);
        }
        if self.is_same(other) {
            return Ok(true);
        }
        Ok(self.seen_bytes()? == other.seen_bytes()?)
    }

    /// Returns the value in memory that nobody else has.
    pub fn duplicate(&self) -> Result<Self> {
        let mut copy = self.allocate_like(self.spec.clone())?;
        copy.overwrite(|backend, dst| backend.copy(dst, self.span()))?;
        Ok(copy)
    }

    /// Returns a part of the elements under a shape of its own, sharing memory.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when the part does not lie within the tensor.
    pub fn view(&self, first_element: usize, shape: Shape) -> Result<Self> {
        let end = first_element.checked_add(shape.num_elements());
        if end.is_none_or(|end| end > self.num_elements()) {
            return Err(Error::invalid(format!(
                "a view of shape {shape} from element {first_element} leaves {}",
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

    /// Returns the bytes of the elements, for reading.
    pub fn span(&self) -> Span<'_> {
        Span { storage: &*self.share.storage, start: self.start, num_bytes: self.num_bytes() }
    }

    /// Returns the bytes of the elements, for writing.
    ///
    /// # Errors
    /// [`Error::Internal`] when somebody shares them.
    pub(crate) fn span_mut(&mut self) -> Result<SpanMut<'_>> {
        let (start, num_bytes) = (self.start, self.num_bytes());
        Ok(SpanMut { storage: exclusive(&mut self.share.storage)?, start, num_bytes })
    }

    /// Lets `write` replace every element; the old ones cannot be read.
    pub(crate) fn overwrite(
        &mut self,
        write: impl FnOnce(&dyn Backend, SpanMut<'_>) -> Result<()>,
    ) -> Result<()> {
        self.mutate(|backend, in_out| match in_out {
            InOut::InPlace(dst) | InOut::Into { dst, .. } => write(backend, dst),
        })
    }

    /// Lets `change` read and replace every element, in place or into other memory.
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

    /// Lets `change` read and replace `num_elements` elements from `first_element` on.
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

    /// Overwrites several parts that do not overlap with the same value. Each begins at one of these elements.
    pub(crate) fn overwrite_parts(&mut self, first_elements: &[usize], value: &Self) -> Result<()> {
        let size = self.dtype().size();
        let places = fallible::collect(first_elements.iter().map(|first| first * size))?;
        self.mutate_part(0, self.spec.num_elements(), |backend, in_out| match in_out {
            InOut::InPlace(dst) | InOut::Into { dst, .. } => {
                backend.broadcast(dst, &places, value.span())
            }
        })
    }

    /// Overwrites the rows with these indices; `rows` has one row for each of them.
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

    /// Allocates the memory that a change needs because somebody shares the present one.
    pub(crate) fn fresh_if_shared(&mut self) -> Result<Option<Arc<dyn Storage>>> {
        if self.may_write() {
            return Ok(None);
        }
        self.share.backend()?.allocate(self.device, self.num_bytes()).map(Some)
    }

    /// Returns what a change reads and writes, with the memory of [`Tensor::fresh_if_shared`].
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

    /// Moves to the memory that a change wrote to, if it was other memory.
    pub(crate) fn settle(&mut self, fresh: Option<Arc<dyn Storage>>) {
        if let Some(storage) = fresh {
            self.share.move_to(storage);
            self.start = 0;
        }
    }
}

/// As much as a backend copies without help from other threads.
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

/// Returns the elements of a range that counts up, each `repeat` times, in the given dtype.
///
/// Element `i` is `start + (i / repeat) * step`, computed in `f64` and rounded once.
///
/// # Errors
/// [`Error::InvalidArgument`] for an empty range, a step of zero or numbers that are not finite.
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

/// A half-open range of numbers for [`arange`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The first number.
    pub start: f64,
    /// Where the range ends, itself not in it.
    pub stop: f64,
    /// From one number to the next.
    pub step: f64,
    /// How often each number stands.
    pub repeat: usize,
}

impl Range {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "the number of steps is checked to be positive and below 2^53 before"
    )]
    fn num_steps(&self) -> Result<usize> {
        let steps = ((self.stop - self.start) / self.step).ceil();
        if !(1.0..9e15).contains(&steps) || self.repeat == 0 {
            return Err(Error::invalid(format!(
                "arange: nothing between {} and {} in steps of {}, each {} times",
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
