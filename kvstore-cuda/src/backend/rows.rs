//! Operations on row-sparse values: sums, conversion to dense values, and updates of rows.

#![expect(unsafe_code, reason = "queues work on memory of GPUs")]

use std::mem::discriminant;
use std::sync::Arc;

use kvstore_core::backend::{RowIds, RowScatterJob, RowSources, RowSumJob, RowUpdateJob};
use kvstore_core::{Result, fallible};

use super::CudaBackend;
use super::launch::Launches;
use super::methods::no_float;
use super::plan_rows::{Plans, Request};
use super::row_ids::{resident, upload};
use crate::args::row_jobs::{self, Ids, RowUpdateArgs, SCATTER_KERNEL, Scatter};
use crate::driver::card::Card;
use crate::driver::memory::{extent, reading};

/// [`Backend::sum_rows`](kvstore_core::Backend::sum_rows).
pub(crate) fn sum_rows(backend: &CudaBackend, jobs: &[RowSumJob<'_>]) -> Result<()> {
    let requests = fallible::try_collect(
        jobs.iter().map(|job| Request::new(backend, job.device, job.dtype, job.addends, job.ids)),
    )?;
    // The plans keep the memory of their lists until all kernels are queued.
    let plans = Plans::new(backend, &requests)?;
    let mut launches = Launches::<_, row_jobs::RowSumJob>::new();
    for ((job, request), lists) in jobs.iter().zip(&requests).zip(plans.lists()) {
        let dst = extent(request.card, reading(&job.dst))?;
        let kernel = || Ok(row_jobs::sum_kernel(job.dtype));
        let batch = launches.batch(request.card, job.dtype, kernel)?;
        batch.push(job.dtype, &request.rows(*lists), dst)?;
    }
    // SAFETY: the ranges are memory of the GPU. The plans have checked that they contain the rows.
    unsafe { launches.run(backend) }
}

/// [`Backend::scatter_rows`](kvstore_core::Backend::scatter_rows).
pub(crate) fn scatter_rows(backend: &CudaBackend, jobs: &[RowScatterJob<'_>]) -> Result<()> {
    let mut wanted = fallible::with_capacity(jobs.len())?;
    for job in jobs {
        wanted.push((backend.card(job.device)?, job.ids));
    }
    upload(backend, &wanted)?;
    let mut launches = Launches::<_, row_jobs::RowScatterJob>::new();
    for (job, (card, ids)) in jobs.iter().zip(wanted) {
        let row_bytes = job.row_len * job.dtype.size();
        let (rows, dst) = (extent(card, job.rows)?, extent(card, reading(&job.dst))?);
        let batch = launches.batch(card, (), || Ok(SCATTER_KERNEL.to_owned()))?;
        let ids = ids_of(card, ids, ids.indices().last().copied());
        batch.push(&Scatter { row_bytes, ids, rows, dst })?;
    }
    // SAFETY: the ranges are memory of the GPU. `push` has checked that they contain the rows.
    unsafe { launches.run(backend) }
}

/// [`Backend::update_rows`](kvstore_core::Backend::update_rows).
pub(crate) fn update_rows(backend: &CudaBackend, jobs: &[RowUpdateJob<'_>]) -> Result<()> {
    let requests = fallible::try_collect(
        jobs.iter().map(|job| Request::new(backend, job.device, job.dtype, job.addends, job.ids)),
    )?;
    // A plan of a union computes its indices on the GPU.
    let mut wanted = fallible::with_capacity(jobs.len())?;
    let others = requests.iter().filter(|request| !request.is_union());
    wanted.extend(others.map(|request| (request.card, request.ids)));
    upload(backend, &wanted)?;
    let plans = Plans::new(backend, &requests)?;
    let mut launches = Launches::<_, row_jobs::RowUpdateJob>::new();
    for ((job, request), lists) in jobs.iter().zip(&requests).zip(plans.lists()) {
        let (card, dtype) = (request.card, job.dtype);
        let states = job.states.iter().flatten();
        let states =
            states.map(|state| extent(card, reading(state))).collect::<Result<Vec<_>>>()?;
        let kernels = || row_jobs::update_kernels(&job.rule, dtype).ok_or_else(|| no_float(dtype));
        let batch = launches.batch_of_several(card, (discriminant(&job.rule), dtype), kernels)?;
        batch.push(&RowUpdateArgs {
            rule: &job.rule,
            dtype,
            gradient: request.rows(*lists),
            ids: ids_of(card, job.ids, last_of(job)),
            weight: extent(card, reading(&job.weight))?,
            states: &states,
        })?;
    }
    // SAFETY: the ranges are memory of the GPU. The plans and `push` have checked that they contain
    // the rows.
    unsafe { launches.run(backend) }
}

/// Returns the largest row index of the gradient. Does not compute the union of several lists.
fn last_of(job: &RowUpdateJob<'_>) -> Option<i64> {
    match job.addends.sources {
        RowSources::Union(lists) => lists.iter().filter_map(|ids| ids.indices().last()).max(),
        RowSources::Listed { .. } | RowSources::InOrder | RowSources::Gathered => {
            job.ids.indices().last()
        }
    }
    .copied()
}

/// Returns the row indices in the memory of a GPU. Without indices, there is no list.
fn ids_of(card: &Arc<Card>, ids: &RowIds, last: Option<i64>) -> Ids {
    Ids { address: resident(card, ids).unwrap_or_default(), len: ids.len(), last }
}
