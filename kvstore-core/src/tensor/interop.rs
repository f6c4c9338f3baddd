//! Tensors in memory of a device that another library lends, and those that another library sees.

use std::sync::Arc;

use super::share::Share;
use super::{Tensor, exclusive};
use crate::backend::registry::Backends;
use crate::backend::{Exchange, ForeignMemory, Queue, SpanMut, Storage};
use crate::types::{Error, Result, TensorSpec};

impl Tensor {
    /// Returns a tensor whose elements lie in memory of a device that is lent: row-major, in the machine's byte order.
    /// What [`Tensor::lent`] says of the host's memory holds for it; whoever drops it last waits for the work on it. Elements
    /// at regular distances are copied, and waited for.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`]; [`Error::InvalidArgument`] for elements at places where no device reads any of their
    /// size, [`Error::LengthMismatch`] for another number of bytes.
    pub fn lent_on(backends: &Backends, spec: TensorSpec, memory: ForeignMemory) -> Result<Self> {
        check_room(&spec, &memory)?;
        check_places(&spec, &memory)?;
        let (device, is_strided) = (memory.device(), memory.layout().is_some());
        let backend = backends.of(device)?;
        let exchange = backends.exchange(device)?;
        let storage = exchange.lend(memory)?;
        if is_strided {
            let mut gathered = Self::allocate_on(backend, device, spec)?;
            gathered.overwrite(|_, dst| exchange.gather(dst, &*storage))?;
            return Ok(gathered);
        }
        Ok(Self { share: Share::new(backend, storage), device, spec, start: 0 })
    }

    /// Queues a copy of the elements to memory of another library's on the tensor's device, one after the other or at
    /// regular distances. Whoever drops what is returned waits for the copy; to wait for several at once, and to hear of
    /// what goes wrong there, [`Tensor::wait`] comes before.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for memory of another device, [`Error::LengthMismatch`] for another number of bytes.
    #[must_use = "the copy is done when this is dropped"]
    pub fn copy_to_foreign(&self, memory: ForeignMemory) -> Result<Arc<dyn Storage>> {
        check_room(&self.spec, &memory)?;
        if memory.device() != self.device {
            return Err(Error::invalid(format!(
                "{} on {} to be copied to memory of {}",
                self.spec,
                self.device,
                memory.device()
            )));
        }
        let (exchange, is_strided) = (self.exchange()?, memory.layout().is_some());
        if is_strided {
            check_places(&self.spec, &memory)?;
        }
        let mut storage = exchange.lend(memory)?;
        let target = exclusive(&mut storage)?;
        if is_strided {
            exchange.scatter(target, self.span())?;
        } else {
            let dst = SpanMut { storage: target, start: 0, num_bytes: self.num_bytes() };
            self.share.backend()?.copy(dst, self.span())?;
        }
        Ok(storage)
    }

    /// Shows the memory of the elements to another library: for reading, for a tensor is a value.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for memory that no other library sees, and for one that is lent itself.
    pub fn show(self) -> Result<Shown> {
        if self.share.storage.is_lent() {
            return Err(Error::Unsupported(format!("{self:?} in memory of another library")));
        }
        let address = self.exchange()?.address(self.span())?;
        Ok(Shown { address, value: Some(self) })
    }

    fn exchange(&self) -> Result<&dyn Exchange> {
        self.share.backend()?.exchange().ok_or_else(|| {
            Error::Unsupported(format!("{} exchanges no memory with other libraries", self.device))
        })
    }
}

fn check_room(spec: &TensorSpec, memory: &ForeignMemory) -> Result<()> {
    let (expected, found) = (spec.num_bytes()?, memory.num_bytes());
    if found == expected {
        return Ok(());
    }
    Err(Error::LengthMismatch { what: format!("bytes that are lent for {spec}"), expected, found })
}

/// Checks that a device reads elements where these are.
fn check_places(spec: &TensorSpec, memory: &ForeignMemory) -> Result<()> {
    let (size, address) = (spec.dtype().size(), memory.address());
    let strides = memory.layout().into_iter().flat_map(|layout| &layout.axes);
    let mut strides = strides.filter(|axis| axis.length > 1).map(|axis| axis.stride.unsigned_abs());
    if address.is_multiple_of(size) && strides.all(|stride| stride.is_multiple_of(size)) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{spec} on {}: lent elements, the first one at address {address:#x}, between two places for them",
        memory.device()
    )))
}

/// A tensor that another library sees in its memory, which stays and does not change before this is dropped.
///
/// Whoever drops it waits for all work on the device: nobody tells which of the other library's work still reads.
#[derive(Debug)]
pub struct Shown {
    address: usize,
    /// There until it is dropped.
    value: Option<Tensor>,
}

impl Shown {
    /// Returns where the elements are on their device, row-major.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Lets what another library queues from now on wait until the elements have been computed.
    pub fn let_wait(&self, other: Queue) -> Result<()> {
        let Some(value) = &self.value else { return Ok(()) };
        value.exchange()?.let_wait(other, value.device)
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else { return };
        let waited = value.exchange().and_then(|it| it.wait_for_all(value.device));
        if let Err(error) = waited {
            tracing::warn!(%error, ?value, "memory that another library may still read is kept for ever");
            #[expect(
                clippy::disallowed_methods,
                reason = "what may still be in use is never given back"
            )]
            std::mem::forget(value);
        }
    }
}
