//! Batches as launches: their lists go to the card, and the kernel after them.

#![expect(unsafe_code, reason = "launches kernels on memory of a card")]

use std::sync::Arc;

use kvstore_core::fallible;
use kvstore_core::{Error, Result};

use super::CudaBackend;
use crate::args::batch::{Args, Batch};
use crate::args::fan::FanJob;
use crate::args::{compress, row_jobs, update};
use crate::driver::card::{Card, Function};
use crate::driver::memory::CudaStorage;

/// A job of a batch as the device reads it: a struct of C of numbers alone, without gaps between them.
///
/// # Safety
/// It is just that, and the kernels that it is launched with read it so.
pub(crate) unsafe trait TableRow: Copy {}

// SAFETY: tests compare their fields with those in C.
unsafe impl TableRow for FanJob {}
// SAFETY: the same.
unsafe impl TableRow for update::UpdateJob {}
// SAFETY: the same.
unsafe impl TableRow for compress::QuantizeJob {}
// SAFETY: the same.
unsafe impl TableRow for compress::DequantizeJob {}
// SAFETY: the same.
unsafe impl TableRow for row_jobs::RowSumJob {}
// SAFETY: the same.
unsafe impl TableRow for row_jobs::RowScatterJob {}
// SAFETY: the same.
unsafe impl TableRow for row_jobs::RowUpdateJob {}

/// Jobs that are collected by card and kernel: each of these is one launch.
#[derive(Debug)]
pub(crate) struct Launches<K, J>(Vec<Launch<K, J>>);

/// The jobs of one launch. `K` tells kernels apart faster than their names do.
#[derive(Debug)]
struct Launch<K, J> {
    card: Arc<Card>,
    kind: K,
    /// They run one after the other.
    kernels: Vec<String>,
    batch: Batch<J>,
}

impl<K: PartialEq, J: TableRow> Launches<K, J> {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    /// Returns the batch of a card and a kind of kernel, whose name is asked for when it is the first of them.
    pub(crate) fn batch(
        &mut self,
        card: &Arc<Card>,
        kind: K,
        kernel: impl FnOnce() -> Result<String>,
    ) -> Result<&mut Batch<J>> {
        self.batch_of_several(card, kind, || Ok(Vec::from([kernel()?])))
    }

    /// Returns the same for several kernels, which run one after the other.
    pub(crate) fn batch_of_several(
        &mut self,
        card: &Arc<Card>,
        kind: K,
        kernels: impl FnOnce() -> Result<Vec<String>>,
    ) -> Result<&mut Batch<J>> {
        let known = |launch: &Launch<K, J>| launch.kind == kind && Arc::ptr_eq(&launch.card, card);
        let position = if let Some(position) = self.0.iter().rposition(known) {
            position
        } else {
            let (card, kernels) = (Arc::clone(card), kernels()?);
            self.0.push(Launch { card, kind, kernels, batch: Batch::default() });
            self.0.len() - 1
        };
        let launch = self.0.get_mut(position);
        launch.map(|launch| &mut launch.batch).ok_or_else(|| Error::Internal("no batch".to_owned()))
    }

    /// Queues all of them.
    ///
    /// # Safety
    /// Every address in a job is that of memory of its card, as long as the job says, which nobody but queued work
    /// uses; the kernels read such jobs.
    pub(crate) unsafe fn run(self, backend: &CudaBackend) -> Result<()> {
        // All that can fail for want of something is done before the first of them changes anything.
        let ready = self.0.iter().filter(|launch| launch.batch.num_tiles() > 0);
        let ready = ready.map(|launch| launch.prepare(backend)).collect::<Result<Vec<_>>>()?;
        for Ready { card, functions, args, .. } in &ready {
            for function in functions {
                // SAFETY: the caller's promise.
                unsafe { card.launch(*function, args, args.num_tiles) }?;
            }
        }
        Ok(())
    }
}

/// A launch whose lists are on their way; the block comes back for reuse when the kernel is queued.
struct Ready<'a> {
    card: &'a Card,
    functions: Vec<Function>,
    args: Args,
    _lists: CudaStorage,
}

impl<K, J: TableRow> Launch<K, J> {
    fn prepare(&self, backend: &CudaBackend) -> Result<Ready<'_>> {
        let Self { card, kernels, batch, .. } = self;
        let functions = kernels.iter().map(|kernel| card.function(kernel));
        let functions = functions.collect::<Result<Vec<_>>>()?;
        let (jobs, addends) = (bytes_of(batch.jobs()), bytes_of_addresses(batch.addends()));
        let lists = backend.pool().allocate(card.device(), jobs.len() + addends.len())?;
        let (at, behind) = (lists.address(), lists.address() + jobs.len() as u64);
        let mut both = fallible::with_capacity(jobs.len() + addends.len())?;
        both.extend(jobs.iter().chain(addends).copied());
        // SAFETY: the block is as long as both.
        unsafe { backend.staging().upload(card, at, &both) }?;
        Ok(Ready { card, functions, args: batch.args(at, behind), _lists: lists })
    }
}

fn bytes_of<J: TableRow>(jobs: &[J]) -> &[u8] {
    // SAFETY: they have no gaps, so all of their bytes are initialised.
    unsafe { std::slice::from_raw_parts(jobs.as_ptr().cast(), size_of_val(jobs)) }
}

fn bytes_of_addresses(addresses: &[u64]) -> &[u8] {
    // SAFETY: integers are bytes.
    unsafe { std::slice::from_raw_parts(addresses.as_ptr().cast(), size_of_val(addresses)) }
}
