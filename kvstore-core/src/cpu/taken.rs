//! Lists of the jobs of a call, whose memory each thread keeps for its next call.

use std::cell::Cell;
use std::thread::LocalKey;

use crate::backend::{Jobs, SumJob, UpdateJob};
use crate::fallible;
use crate::types::Result;

/// A list with a capacity above this is freed, because keeping it would waste memory.
const MOST_KEPT: usize = 1 << 16;

thread_local! {
    static SUMS: Cell<Vec<SumJob<'static>>> = const { Cell::new(Vec::new()) };
    static UPDATES: Cell<Vec<UpdateJob<'static>>> = const { Cell::new(Vec::new()) };
}

/// Calls `run` with a list of the sums.
pub(super) fn with_sums<'a>(
    jobs: &mut Jobs<'_, SumJob<'a>>,
    run: impl FnOnce(&mut [SumJob<'a>]) -> Result<()>,
) -> Result<()> {
    with_list(&SUMS, jobs, run)
}

/// Reserves memory for the next call of [`with_sums`].
pub(super) fn reserve_sums(num_jobs: usize) -> Result<()> {
    reserve(&SUMS, num_jobs)
}

/// Reserves memory for the next call of [`with_updates`].
pub(super) fn reserve_updates(num_jobs: usize) -> Result<()> {
    reserve(&UPDATES, num_jobs)
}

fn reserve<J>(kept: &'static LocalKey<Cell<Vec<J>>>, num_jobs: usize) -> Result<()> {
    let mut list = kept.take();
    let reserved = fallible::reserve(&mut list, num_jobs);
    kept.set(list);
    reserved
}

/// Calls `run` with a list of the steps.
pub(super) fn with_updates<'a>(
    jobs: &mut Jobs<'_, UpdateJob<'a>>,
    run: impl FnOnce(&mut [UpdateJob<'a>]) -> Result<()>,
) -> Result<()> {
    with_list(&UPDATES, jobs, run)
}

/// `Kept` is `J` with another lifetime, because the list is empty between calls.
fn with_list<J, Kept>(
    kept: &'static LocalKey<Cell<Vec<Kept>>>,
    jobs: &mut Jobs<'_, J>,
    run: impl FnOnce(&mut [J]) -> Result<()>,
) -> Result<()> {
    let mut list: Vec<J> = fallible::reuse(kept.take());
    let done = take(jobs, &mut list).and_then(|()| run(&mut list));
    let list = fallible::reuse(list);
    if list.capacity() <= MOST_KEPT {
        kept.set(list);
    }
    done
}

fn take<J>(jobs: &mut Jobs<'_, J>, list: &mut Vec<J>) -> Result<()> {
    for job in jobs {
        fallible::push(list, job?)?;
    }
    Ok(())
}
