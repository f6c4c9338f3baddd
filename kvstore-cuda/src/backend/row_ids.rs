//! Copies of row indices in the memory of GPUs. They are kept with the indices.

#![expect(unsafe_code, reason = "copies row indices to memory of GPUs")]

use std::ptr;
use std::sync::Arc;

use kvstore_core::backend::RowIds;
use kvstore_core::{Result, fallible};

use super::CudaBackend;
use crate::args::batch::Address;
use crate::driver::card::Card;
use crate::driver::memory::CudaStorage;

/// Lists of at least this many indices have a block of memory of their own, which is freed with
/// them. Shorter lists of a call share a block, because each block costs a copy or launches.
pub(super) const LONG: usize = 8192;

/// A copy of row indices in a block, which several copies may share.
struct IdsCopy {
    block: Arc<CudaStorage>,
    /// The offset of the first byte in the block.
    start: usize,
}

/// Keeps the copy of row indices that is at an offset of a block.
pub(super) fn keep(ids: &RowIds, block: &Arc<CudaStorage>, start: usize) -> Result<()> {
    ids.keep_device_copy(Arc::new(IdsCopy { block: Arc::clone(block), start }))
}

/// Returns the address of the copy in the memory of a GPU, or `None`.
pub(super) fn resident(card: &Arc<Card>, ids: &RowIds) -> Option<Address> {
    let copy = ids.device_copy(|copy: &IdsCopy| Arc::ptr_eq(copy.block.card(), card))?;
    Some(copy.block.address() + copy.start as u64)
}

/// Copies row indices to their GPUs, except those that are there.
pub(super) fn upload(backend: &CudaBackend, wanted: &[(&Arc<Card>, &RowIds)]) -> Result<()> {
    let mut short = fallible::with_capacity(wanted.len())?;
    for &(card, ids) in wanted {
        if ids.is_empty() || resident(card, ids).is_some() {
            continue;
        }
        if ids.len() < LONG {
            short.push((card, ids));
        } else {
            upload_together(backend, card, &[ids])?;
        }
    }
    // A call may use the same indices several times.
    let key =
        |(card, ids): &(&Arc<Card>, &RowIds)| (card.device().ordinal(), ptr::from_ref(*ids).addr());
    short.sort_unstable_by_key(key);
    short.dedup_by_key(|wanted| key(wanted));
    for of_card in short.chunk_by(|a, b| Arc::ptr_eq(a.0, b.0)) {
        let Some((card, _)) = of_card.first() else { continue };
        let lists: Vec<&RowIds> = fallible::collect(of_card.iter().map(|(_, ids)| *ids))?;
        upload_together(backend, card, &lists)?;
    }
    Ok(())
}

/// Copies row indices into one block.
fn upload_together(backend: &CudaBackend, card: &Arc<Card>, lists: &[&RowIds]) -> Result<()> {
    let parts = fallible::collect(lists.iter().map(|ids| bytes_of(ids.indices())))?;
    let num_bytes = parts.iter().map(|part| part.len()).sum();
    let block = backend.pool().allocate(card.device(), num_bytes)?;
    // SAFETY: the block has the length of all parts.
    unsafe { backend.staging().upload(card, block.address(), &parts) }?;
    let (block, mut start) = (Arc::new(block), 0);
    for (ids, part) in lists.iter().zip(&parts) {
        keep(ids, &block, start)?;
        start += part.len();
    }
    Ok(())
}

fn bytes_of(indices: &[i64]) -> &[u8] {
    // SAFETY: integers have no padding.
    unsafe { std::slice::from_raw_parts(indices.as_ptr().cast(), size_of_val(indices)) }
}
