//! Sums of squares: one launch for each formula and dtype, one launch that adds the partial sums,
//! and one transfer of the sums to the host.

#![expect(unsafe_code, reason = "queues work on memory of GPUs")]

use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use kvstore_core::backend::{MeasureJob, Measured};
use kvstore_core::fallible;
use kvstore_core::norm::num_blocks;
use kvstore_core::optimizer::UpdateRule;
use kvstore_core::{DType, Device, Error, Result};

use super::CudaBackend;
use super::launch::Launches;
use super::methods::{addresses, no_float};
use crate::args::batch::Address;
use crate::args::norm::{self, MeasureArgs, PAIR_KERNEL, PARTIAL_BYTES, PairArgs, SUM_BYTES};
use crate::args::update::UpdateJob;
use crate::driver::card::Card;
use crate::driver::memory::{CudaStorage, address_on};

/// The sums of the jobs on one device.
struct Sums<'b> {
    device: Device,
    card: &'b Arc<Card>,
    num_blocks: usize,
    /// The partial sums, followed by the sums.
    memory: CudaStorage,
}

impl<'b> Sums<'b> {
    fn new(backend: &'b CudaBackend, device: Device, jobs: &[MeasureJob<'_>]) -> Result<Self> {
        let own = jobs.iter().filter(|job| job.device == device);
        let num_blocks = own.map(|job| job.sums.len()).sum();
        let num_bytes = num_blocks * (PARTIAL_BYTES + SUM_BYTES);
        let memory = backend.pool().allocate(device, num_bytes)?;
        Ok(Self { device, card: backend.card(device)?, num_blocks, memory })
    }

    fn totals(&self) -> Address {
        self.memory.address() + (self.num_blocks * PARTIAL_BYTES) as u64
    }

    /// Adds the partial sums, and writes the sums to the jobs of this device.
    fn collect(&self, backend: &CudaBackend, jobs: &mut [MeasureJob<'_>]) -> Result<()> {
        let len = 2 * self.num_blocks as u64;
        let args = PairArgs { from: self.memory.address(), to: self.totals(), len };
        let function = self.card.function(PAIR_KERNEL)?;
        let mut bytes = fallible::zeroed(self.num_blocks * SUM_BYTES)?;
        // SAFETY: the memory has room for this number of partial sums and sums.
        unsafe { self.card.launch(function, &args, args.num_tiles()) }?;
        // SAFETY: as above.
        unsafe { backend.staging().download(self.card, self.totals(), &mut bytes) }?;
        let mut found = bytes.as_chunks::<{ size_of::<f64>() }>().0.iter();
        let own = jobs.iter_mut().filter(|job| job.device == self.device);
        for sum in own.flat_map(|job| job.sums.iter_mut()).flatten() {
            *sum = found.next().map_or(f64::NAN, |bytes| f64::from_ne_bytes(*bytes));
        }
        Ok(())
    }
}

/// [`Backend::measure`](kvstore_core::Backend::measure).
pub(crate) fn measure(backend: &CudaBackend, jobs: &mut [MeasureJob<'_>]) -> Result<()> {
    let mut devices = Vec::new();
    for job in &*jobs {
        if !devices.iter().any(|sums: &Sums<'_>| sums.device == job.device) {
            fallible::push(&mut devices, Sums::new(backend, job.device, jobs)?)?;
        }
    }
    for sums in &devices {
        // Queue the work of all devices before waiting for the results of the first one.
        let mut launches = Launches::<_, UpdateJob>::new();
        let mut partial = sums.memory.address();
        for job in jobs.iter().filter(|job| job.device == sums.device) {
            push(sums.card, job, partial, &mut launches)?;
            partial += (job.sums.len() * PARTIAL_BYTES) as u64;
        }
        // SAFETY: the ranges are memory of the GPU with as many elements as the gradient. The
        // partial sums have room for all blocks.
        unsafe { launches.run(backend) }?;
    }
    devices.iter().try_for_each(|sums| sums.collect(backend, jobs))
}

/// The kind of a launch: the formula if there is one, and the dtype.
type Kind = (Option<Discriminant<UpdateRule>>, DType);

fn push(
    card: &Arc<Card>,
    job: &MeasureJob<'_>,
    partial: Address,
    launches: &mut Launches<Kind, UpdateJob>,
) -> Result<()> {
    let dtype = job.dtype;
    let num_bytes = job.addends.first().map_or(0, |addend| addend.num_bytes);
    let len = num_bytes / dtype.size();
    // Check all lengths here, because the kernel trusts the job.
    if job.sums.len() != num_blocks(len) {
        return Err(Error::Internal("not one pair of sums for each block".to_owned()));
    }
    let addends = addresses(card, job.addends, num_bytes)?;
    let (mut rule, mut weight, mut states) = (None, 0, Vec::new());
    if let Measured::Step { rule: step, weight: span, states: spans } = &job.measured {
        let arithmetic = dtype.arithmetic().unwrap_or(dtype);
        let num_states = step.initial().len() + usize::from(arithmetic != dtype);
        let are_complete = spans.iter().flatten().count() == num_states
            && spans.iter().flatten().all(|span| span.num_bytes == len * arithmetic.size());
        if span.num_bytes != num_bytes || !are_complete {
            return Err(Error::Internal("weight or state does not match the gradient".to_owned()));
        }
        (rule, weight) = (Some(step), address_on(card, *span)?);
        for span in spans.iter().flatten() {
            fallible::push(&mut states, address_on(card, *span)?)?;
        }
    }
    let kernel = || norm::kernel(rule, dtype).ok_or_else(|| no_float(dtype));
    let len = len as u64;
    let key = MeasureArgs { rule, dtype, len, weight, states: &states, addends: &addends, partial };
    launches.batch(card, (rule.map(discriminant), dtype), kernel)?.push_measured(&key)
}
