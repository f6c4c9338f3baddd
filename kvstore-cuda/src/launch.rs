//! Batches as launches: their lists go to the card, and the kernel after them.

#![expect(unsafe_code, reason = "launches kernels on memory of a card")]

use std::sync::Arc;

use kvstore_core::{Error, Result};

use crate::backend::CudaBackend;
use crate::batch::Batch;
use crate::driver::Card;
use crate::sum::SumJob;
use crate::{compress, rows, update};

/// A job of a batch as the device reads it: a struct of C of numbers alone, without gaps between them.
///
/// # Safety
/// It is just that, and the kernels that it is launched with read it so.
pub(crate) unsafe trait TableRow: Copy {}

// SAFETY: tests compare their fields with those in C.
unsafe impl TableRow for SumJob {}
// SAFETY: the same.
unsafe impl TableRow for update::UpdateJob {}
// SAFETY: the same.
unsafe impl TableRow for compress::QuantizeJob {}
// SAFETY: the same.
unsafe impl TableRow for compress::DequantizeJob {}
// SAFETY: the same.
unsafe impl TableRow for rows::RowSumJob {}
// SAFETY: the same.
unsafe impl TableRow for rows::RowScatterJob {}
// SAFETY: the same.
unsafe impl TableRow for rows::RowUpdateJob {}

/// Jobs that are collected by card and kernel: each of these is one launch.
#[derive(Debug)]
pub(crate) struct Launches<K, J>(Vec<Launch<K, J>>);

/// The jobs of one launch. `K` tells kernels apart faster than their names do.
#[derive(Debug)]
struct Launch<K, J> {
    card: Arc<Card>,
    kind: K,
    kernel: String,
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
        let known = |launch: &Launch<K, J>| launch.kind == kind && Arc::ptr_eq(&launch.card, card);
        let position = if let Some(position) = self.0.iter().rposition(known) {
            position
        } else {
            let (card, kernel) = (Arc::clone(card), kernel()?);
            self.0.push(Launch { card, kind, kernel, batch: Batch::default() });
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
        for Launch { card, kernel, batch, .. } in self.0 {
            // SAFETY: the caller's promise.
            unsafe { launch(backend, &card, &kernel, &batch) }?;
        }
        Ok(())
    }
}

/// Queues a batch: its lists in one block, which comes back for reuse when the kernel is queued.
unsafe fn launch<J: TableRow>(
    backend: &CudaBackend,
    card: &Arc<Card>,
    kernel: &str,
    batch: &Batch<J>,
) -> Result<()> {
    if batch.num_tiles() == 0 {
        return Ok(());
    }
    let (jobs, addends) = (bytes_of(batch.jobs()), bytes_of_addresses(batch.addends()));
    let lists = backend.pool().allocate(card.device(), jobs.len() + addends.len())?;
    let (at, behind) = (lists.address(), lists.address() + jobs.len() as u64);
    // SAFETY: the block is as long as both.
    unsafe { backend.staging().upload(card, at, &[jobs, addends].concat()) }?;
    // SAFETY: the kernel reads what the caller promises.
    unsafe { card.launch(kernel, &batch.args(at, behind), batch.num_tiles()) }
}

fn bytes_of<J: TableRow>(jobs: &[J]) -> &[u8] {
    // SAFETY: they have no gaps, so all of their bytes are initialised.
    unsafe { std::slice::from_raw_parts(jobs.as_ptr().cast(), size_of_val(jobs)) }
}

fn bytes_of_addresses(addresses: &[u64]) -> &[u8] {
    // SAFETY: integers are bytes.
    unsafe { std::slice::from_raw_parts(addresses.as_ptr().cast(), size_of_val(addresses)) }
}
