//! Launches of batches: the lists are copied to the GPU, then the kernel runs.

#![expect(unsafe_code, reason = "launches kernels on memory of a GPU")]

use std::sync::Arc;

use kvstore_core::{Error, Result};

use super::CudaBackend;
use crate::args::batch::{Args, Batch};
use crate::args::fan::FanJob;
use crate::args::{quantize, row_jobs, update};
use crate::driver::card::{Card, Function};
use crate::driver::memory::CudaStorage;

/// A job of a batch, as the GPU reads it.
///
/// # Safety
/// - The type is `repr(C)`, has only numbers as fields, and has no padding between them.
/// - The kernels that are launched with it read the same layout.
pub(crate) unsafe trait TableRow: Copy {}

// SAFETY: tests compare the fields with those of the struct in C.
unsafe impl TableRow for FanJob {}
// SAFETY: as above.
unsafe impl TableRow for update::UpdateJob {}
// SAFETY: as above.
unsafe impl TableRow for quantize::QuantizeJob {}
// SAFETY: as above.
unsafe impl TableRow for quantize::DequantizeJob {}
// SAFETY: as above.
unsafe impl TableRow for row_jobs::RowSumJob {}
// SAFETY: as above.
unsafe impl TableRow for row_jobs::RowScatterJob {}
// SAFETY: as above.
unsafe impl TableRow for row_jobs::RowUpdateJob {}

/// Jobs, grouped by GPU and kernel. Each group is one launch.
#[derive(Debug)]
pub(crate) struct Launches<K, J>(Vec<Launch<K, J>>);

/// The jobs of one launch. `K` identifies the kernel; it is faster to compare than the name.
#[derive(Debug)]
struct Launch<K, J> {
    card: Arc<Card>,
    kind: K,
    /// The kernels, which run one after the other on the same jobs.
    kernels: Vec<String>,
    batch: Batch<J>,
}

impl<K: PartialEq, J: TableRow> Launches<K, J> {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    /// Returns the batch for a GPU and a kind of kernel. Calls `kernel` for the name if there is no
    /// such batch yet.
    pub(crate) fn batch(
        &mut self,
        card: &Arc<Card>,
        kind: K,
        kernel: impl FnOnce() -> Result<String>,
    ) -> Result<&mut Batch<J>> {
        self.batch_of_several(card, kind, || Ok(Vec::from([kernel()?])))
    }

    /// Like [`Launches::batch`], for several kernels that run one after the other.
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

    /// Queues all launches.
    ///
    /// # Safety
    /// - Every address in a job refers to memory of its GPU, of the length that the job gives.
    /// - Only queued work uses that memory.
    /// - The kernels read jobs of type `J`.
    pub(crate) unsafe fn run(self, backend: &CudaBackend) -> Result<()> {
        // Complete every step that can fail before the first kernel changes anything.
        let ready = self.0.iter().filter(|launch| launch.batch.num_tiles() > 0);
        let ready = ready.map(|launch| launch.prepare(backend)).collect::<Result<Vec<_>>>()?;
        for Ready { card, functions, args, .. } in &ready {
            for function in functions {
                // SAFETY: the caller guarantees it.
                unsafe { card.launch(*function, args, args.num_tiles) }?;
            }
        }
        Ok(())
    }
}

/// A launch whose lists are being copied. The block of the lists returns to the pool when the
/// kernel has been queued.
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
        let (job_list, addend_list) = (lists.address(), lists.address() + jobs.len() as u64);
        // SAFETY: the block has the length of both lists.
        unsafe { backend.staging().upload(card, job_list, &[jobs, addends]) }?;
        Ok(Ready { card, functions, args: batch.args(job_list, addend_list), _lists: lists })
    }
}

fn bytes_of<J: TableRow>(jobs: &[J]) -> &[u8] {
    // SAFETY: jobs have no padding, so all of their bytes are initialised.
    unsafe { std::slice::from_raw_parts(jobs.as_ptr().cast(), size_of_val(jobs)) }
}

fn bytes_of_addresses(addresses: &[u64]) -> &[u8] {
    // SAFETY: integers have no padding.
    unsafe { std::slice::from_raw_parts(addresses.as_ptr().cast(), size_of_val(addresses)) }
}
