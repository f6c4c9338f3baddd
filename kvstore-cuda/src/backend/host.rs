//! Operations without a kernel. The host's backend runs them on copies, so the bits are
//! the same as on the host.

use std::iter::once;
use std::sync::Arc;

use kvstore_core::backend::{Operand, UpdateJob};
use kvstore_core::fallible;
use kvstore_core::storage::{InOut, Span, SpanMut, Storage};
use kvstore_core::{Backend, BinaryOp, DType, Device, Error, Result};

use super::CudaBackend;
use crate::driver::memory::reading;

/// A temporary block of the host's memory.
struct Block {
    storage: Arc<dyn Storage>,
    num_bytes: usize,
}

impl Block {
    /// Returns memory with unspecified contents.
    fn new(backend: &CudaBackend, num_bytes: usize) -> Result<Self> {
        Ok(Self { storage: backend.host().allocate(Device::cpu(0), num_bytes)?, num_bytes })
    }

    /// Returns a copy of a range.
    fn of(backend: &CudaBackend, src: Span<'_>) -> Result<Self> {
        let mut block = Self::new(backend, src.num_bytes)?;
        let mut bytes = fallible::zeroed(src.num_bytes)?;
        backend.read(src, &mut bytes)?;
        backend.host().write(block.span_mut()?, &bytes)?;
        Ok(block)
    }

    fn span(&self) -> Span<'_> {
        Span { storage: &*self.storage, start: 0, num_bytes: self.num_bytes }
    }

    fn span_mut(&mut self) -> Result<SpanMut<'_>> {
        let num_bytes = self.num_bytes;
        let storage = Arc::get_mut(&mut self.storage).ok_or_else(shared)?;
        Ok(SpanMut { storage, start: 0, num_bytes })
    }

    /// Copies the block to a range of a GPU.
    fn send(&self, backend: &CudaBackend, dst: SpanMut<'_>) -> Result<()> {
        backend.write(dst, backend.host().host_bytes(self.span())?)
    }
}

fn shared() -> Error {
    Error::Internal("host memory has another reference".to_owned())
}

/// Returns the destination of an operation.
fn written(in_out: InOut<'_>) -> SpanMut<'_> {
    match in_out {
        InOut::InPlace(dst) | InOut::Into { dst, .. } => dst,
    }
}

/// Returns a copy of the source of an operation.
fn read(backend: &CudaBackend, in_out: &InOut<'_>) -> Result<Block> {
    match in_out {
        InOut::InPlace(span) => Block::of(backend, reading(span)),
        InOut::Into { src, .. } => Block::of(backend, *src),
    }
}

/// Computes a range on the host from copies of other ranges.
pub(crate) fn make_of(
    backend: &CudaBackend,
    dst: SpanMut<'_>,
    sources: &[Span<'_>],
    write: impl FnOnce(&dyn Backend, SpanMut<'_>, &[Span<'_>]) -> Result<()>,
) -> Result<()> {
    let sources = fallible::try_collect(sources.iter().map(|src| Block::of(backend, *src)))?;
    let spans: Vec<_> = fallible::collect(sources.iter().map(Block::span))?;
    let mut made = Block::new(backend, dst.num_bytes)?;
    write(backend.host(), made.span_mut()?, &spans)?;
    made.send(backend, dst)
}

/// Changes a range on the host.
pub(crate) fn change(
    backend: &CudaBackend,
    operand: InOut<'_>,
    change: impl FnOnce(&dyn Backend, InOut<'_>) -> Result<()>,
) -> Result<()> {
    let mut block = read(backend, &operand)?;
    change(backend.host(), InOut::InPlace(block.span_mut()?))?;
    block.send(backend, written(operand))
}

/// [`Backend::binary`].
pub(crate) fn binary(
    backend: &CudaBackend,
    op: BinaryOp,
    dtype: DType,
    lhs: InOut<'_>,
    rhs: Operand<'_>,
    reversed: bool,
) -> Result<()> {
    let block = match rhs {
        Operand::Span(span) => Some(Block::of(backend, span)?),
        Operand::Scalar(_) => None,
    };
    let rhs = block.as_ref().map_or(rhs, |block| Operand::Span(block.span()));
    change(backend, lhs, |host, lhs| host.binary(op, dtype, lhs, rhs, reversed))
}

/// Runs an optimizer update on the host.
pub(crate) fn update(backend: &CudaBackend, mut job: UpdateJob<'_>) -> Result<()> {
    let mut weight = read(backend, &job.weight)?;
    let states = job.states.iter().flatten().map(|state| read(backend, state));
    let mut states = states.collect::<Result<Vec<_>>>()?;
    let addends = fallible::try_collect(job.addends.iter().map(|span| Block::of(backend, *span)))?;
    let addends: Vec<_> = fallible::collect(addends.iter().map(Block::span))?;
    let mut on_host = UpdateJob {
        rule: job.rule,
        device: Device::cpu(0),
        dtype: job.dtype,
        weight: InOut::InPlace(weight.span_mut()?),
        states: Default::default(),
        addends: &addends,
    };
    for (place, state) in on_host.states.iter_mut().zip(&mut states) {
        *place = Some(InOut::InPlace(state.span_mut()?));
    }
    backend.host().update(&mut once(Ok(on_host)))?;
    // Copy the results back only after the update has succeeded.
    weight.send(backend, written(job.weight.reborrow()))?;
    for (state, place) in states.iter().zip(job.states.iter_mut().flatten()) {
        state.send(backend, written(place.reborrow()))?;
    }
    Ok(())
}
