//! Transposes, and expansions of axes in short pieces: each is one launch.

#![expect(unsafe_code, reason = "queues work on memory of a GPU")]

use kvstore_core::storage::{Span, SpanMut};
use kvstore_core::{Axis, Backend, DType, Error, Layout, Result, fallible};

use super::CudaBackend;
use crate::args::strided::{self, StridedArgs};
use crate::args::transpose::{TransposeArgs, is_wide, kernel};
use crate::driver::memory::{address_of, locate};

/// `Backend::transpose`.
pub(crate) fn transpose(
    backend: &CudaBackend,
    dtype: DType,
    dst: SpanMut<'_>,
    src: Span<'_>,
    rows: usize,
) -> Result<()> {
    let size = dtype.size();
    let columns = (src.num_bytes / size).checked_div(rows).unwrap_or(0);
    if src.num_bytes != rows * columns * size || dst.num_bytes != src.num_bytes {
        return Err(Error::Internal("a transpose of another length".to_owned()));
    }
    if rows.min(columns) <= 1 {
        return backend.copy(dst, src);
    }
    if !is_wide(dtype, rows as u64, columns as u64) {
        let along =
            |length: usize, distance: usize| Axis { length, stride: stride(distance, size) };
        let axes = [along(columns, 1), along(rows, columns)];
        let layout = Layout { size, axes: fallible::copied(&axes)? };
        // The kernel supports two axes.
        return gather(&dst, src, &layout).map(|_| ());
    }
    let (card, from) = locate(src)?;
    let to = address_of(card, &dst)?;
    let args = TransposeArgs::new(dtype, from, to, rows as u64, columns as u64);
    // SAFETY: both ranges are memory of the GPU and have this number of elements. `dst` is
    // exclusive, so they do not overlap.
    unsafe { card.launch(card.function(&kernel(dtype))?, &args, args.num_tiles(dtype)) }
}

/// Repeats `src` along its axes of length 1, element by element. Returns whether it was done: with
/// more axes than the kernel supports, nothing is queued.
pub(crate) fn expand(
    dtype: DType,
    dst: &SpanMut<'_>,
    (from, to): (&[usize], &[usize]),
    src: Span<'_>,
) -> Result<bool> {
    let size = dtype.size();
    let mut axes = fallible::with_capacity(to.len())?;
    let (mut num_read, mut num_written) = (1, 1);
    for (&from, &to) in from.iter().zip(to).rev() {
        let is_repeated = from == 1;
        axes.push(Axis {
            length: to,
            stride: if is_repeated { 0 } else { stride(num_read, size) },
        });
        num_read *= from;
        num_written *= to;
    }
    if num_read * size != src.num_bytes || num_written * size != dst.num_bytes {
        return Err(Error::Internal("a value of another shape than its own".to_owned()));
    }
    axes.reverse();
    gather(dst, src, &Layout { size, axes })
}

/// Copies strided elements of `src` to `dst`. Returns whether it was done. The caller guarantees
/// that all elements are within the ranges.
fn gather(dst: &SpanMut<'_>, src: Span<'_>, layout: &Layout) -> Result<bool> {
    let (card, from) = locate(src)?;
    let Some(args) = StridedArgs::new(address_of(card, dst)?, from, layout) else {
        return Ok(false);
    };
    let function = card.function(&strided::kernel(layout.size, true))?;
    // SAFETY: both ranges are memory of the GPU, and contain all elements. `dst` is exclusive, so
    // they do not overlap.
    unsafe { card.launch(function, &args, args.num_tiles()) }?;
    Ok(true)
}

/// Returns a distance in bytes. No range is so long that it overflows.
fn stride(num_elements: usize, size: usize) -> isize {
    (num_elements * size).cast_signed()
}
