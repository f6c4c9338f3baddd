//! Reductions of all elements, and the largest element of each row. The destination is written by
//! the last launch, after every step that can fail.

#![expect(unsafe_code, reason = "queues work on memory of a GPU")]

use kvstore_core::storage::{Span, SpanMut};
use kvstore_core::{DType, Error, Reduction, Result};

use super::CudaBackend;
use crate::args::argmax::{self, Matrix};
use crate::args::reduce::{self, FOLD_BYTES, ReduceArgs, num_blocks};
use crate::driver::memory::{address_of, locate};

/// `Backend::reduce`.
pub(crate) fn reduce(
    backend: &CudaBackend,
    op: Reduction,
    dtype: DType,
    dst: &SpanMut<'_>,
    src: Span<'_>,
) -> Result<()> {
    let (card, from) = locate(src)?;
    let to = address_of(card, dst)?;
    if dst.num_bytes != dtype.size() {
        return Err(Error::Internal("a reduction to several elements".to_owned()));
    }
    if src.num_bytes == 0 && matches!(op, Reduction::Max | Reduction::Min) {
        return Err(Error::invalid(format!("{}: the array has no elements", op.name())));
    }
    let len = src.num_bytes / dtype.size();
    let folds = backend.pool().allocate(card.device(), num_blocks(len) * FOLD_BYTES)?;
    let args = ReduceArgs::new(op, from, folds.address(), to, len);
    let fold_blocks = card.function(&reduce::blocks_kernel(dtype))?;
    let fold_all = card.function(&reduce::kernel(dtype))?;
    // SAFETY: the ranges are memory of the GPU and have the lengths in the argument.
    unsafe { card.launch(fold_blocks, &args, args.num_tiles()) }?;
    // SAFETY: as above.
    unsafe { card.launch(fold_all, &args, 1) }
}

/// `Backend::argmax`.
pub(crate) fn argmax(
    backend: &CudaBackend,
    dtype: DType,
    dst: &SpanMut<'_>,
    src: Span<'_>,
    rows: usize,
) -> Result<()> {
    let (card, from) = locate(src)?;
    let to = address_of(card, dst)?;
    let columns = (src.num_bytes / dtype.size()).checked_div(rows).unwrap_or(0);
    if src.num_bytes != rows * columns * dtype.size() || dst.num_bytes != rows * dtype.size() {
        return Err(Error::Internal("not one element for each row".to_owned()));
    }
    if columns == 0 {
        // The caller has rejected rows without elements.
        return Ok(());
    }
    let matrix = Matrix { from, to, rows: rows as u64, columns: columns as u64 };
    let num_bytes = usize::try_from(matrix.scratch_bytes()).unwrap_or(usize::MAX);
    let scratch = backend.pool().allocate(card.device(), num_bytes)?;
    let function = card.function(&argmax::kernel(dtype))?;
    for args in matrix.launches(scratch.address())? {
        // SAFETY: the ranges are memory of the GPU and have the lengths in the argument.
        unsafe { card.launch(function, &args, args.num_tiles()) }?;
    }
    Ok(())
}
