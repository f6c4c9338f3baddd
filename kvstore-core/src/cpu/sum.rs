//! The n-way sum: a left fold over the addends, block by block through cache.

use std::sync::Arc;

use super::memory::{elements, elements_mut};
use super::workers::{Split, Workers};
use crate::backend::SumJob;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::storage::Span;
use crate::with_element;

/// How many elements are summed before the next block; their sums stay in the first-level cache.
pub(super) const BLOCK: usize = 1024;

/// Runs the sums of a batch, all of them as one parallel job per dtype.
pub(super) fn run(workers: &Workers, jobs: Vec<SumJob<'_>>) -> Result<()> {
    let mut rest = jobs;
    while let Some(dtype) = rest.first().map(|job| job.dtype) {
        let (same, other): (Vec<_>, Vec<_>) = rest.into_iter().partition(|job| job.dtype == dtype);
        with_element!(dtype, T => {
            let works = same.into_iter().map(Sum::<T>::open).collect::<Result<Vec<_>>>()?;
            workers.for_each_piece_of_all(works, &Sum::run);
        });
        rest = other;
    }
    Ok(())
}

/// One sum: the addends may be longer than `dst`, which starts at their element `offset`.
struct Sum<'a, T> {
    dst: &'a mut [T],
    addends: Addends<'a, T>,
}

impl<'a, T: Element> Sum<'a, T> {
    fn open(job: SumJob<'a>) -> Result<Self> {
        let dst = elements_mut(job.dst)?;
        let addends = Addends::open(&job.addends, dst.len())?;
        Ok(Self { dst, addends })
    }

    fn run(self) {
        let mut sums = [T::Accumulator::default(); BLOCK];
        for (block, dst) in self.dst.chunks_mut(BLOCK).enumerate() {
            self.addends.fold(block * BLOCK, dst.len(), &mut sums);
            for (dst, sum) in dst.iter_mut().zip(sums) {
                *dst = T::narrow(sum);
            }
        }
    }
}

impl<T: Element> Split for Sum<'_, T> {
    fn len(&self) -> usize {
        self.dst.len()
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        let (left, right) = self.dst.split_at_mut(middle);
        let (left_addends, right_addends) = self.addends.split_at(middle);
        (Self { dst: left, addends: left_addends }, Self { dst: right, addends: right_addends })
    }
}

/// What is added, all of one length. Shared by the pieces that the work is cut into.
#[derive(Clone)]
pub(super) struct Addends<'a, T> {
    slices: Arc<[&'a [T]]>,
    offset: usize,
}

impl<'a, T: Element> Addends<'a, T> {
    pub(super) fn open(spans: &[Span<'a>], len: usize) -> Result<Self> {
        let slices: Arc<[&[T]]> =
            spans.iter().map(|&span| elements(span)).collect::<Result<_>>()?;
        if slices.is_empty() || slices.iter().any(|slice| slice.len() != len) {
            return Err(Error::Internal("addends of another length than their sum".to_owned()));
        }
        Ok(Self { slices, offset: 0 })
    }

    /// Writes the sums of `len` elements from `start` on: `((x0 + x1) + x2) + ..` for each.
    #[inline]
    pub(super) fn fold(&self, start: usize, len: usize, sums: &mut [T::Accumulator; BLOCK]) {
        let start = self.offset + start;
        let Some((first, others)) = self.slices.split_first() else { return };
        for (sum, &value) in sums.iter_mut().zip(part(first, start, len)) {
            *sum = T::widen(value);
        }
        for addend in others {
            for (sum, &value) in sums.iter_mut().zip(part(addend, start, len)) {
                *sum = T::accumulate(*sum, value);
            }
        }
    }

    pub(super) fn split_at(self, middle: usize) -> (Self, Self) {
        let right = Self { slices: self.slices.clone(), offset: self.offset + middle };
        (self, right)
    }
}

fn part<T>(slice: &[T], start: usize, len: usize) -> &[T] {
    slice.get(start..start + len).unwrap_or_default()
}
