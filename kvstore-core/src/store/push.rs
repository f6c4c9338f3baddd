//! One push: its values in the order in which keys are processed, and what becomes of each key.
//!
//! Everything that can fail comes first: all keys are found and checked, all locks taken, all memory
//! is there. Then the kernels run, as one batch for the whole call (another one for the keys that get rows), and
//! the results count.

use std::sync::{Arc, MutexGuard};

use super::home::Home;
use super::policy::{Run, Running};
use super::scratch::Scratch;
use super::table::{Entry, Progress};
use crate::backend::registry::{Backends, in_the_midst};
use crate::backend::{InOut, RowUpdateJob, Span, Storage, SumJob, UpdateJob};
use crate::codec::Compression;
use crate::compression::{Compressed, compress};
use crate::fallible;
use crate::optimizer::{Optimizer, Pending};
use crate::rows::{RowPlan, RowSparse, Value};
use crate::tensor::Tensor;
use crate::types::{Device, Error, Result};

/// One value of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pushed {
    /// The rank of its key by initialisation.
    pub(crate) order: u64,
    /// Where it stands in the call.
    pub(crate) position: usize,
    /// Where its key's entry stands in the scratch.
    pub(crate) entry: usize,
}

/// The checked values of a call: those of one key stand together, keys in the order of their
/// initialisation, and all where they are summed.
#[derive(Clone, Copy)]
pub(crate) struct Push<'a> {
    pub(crate) backends: &'a Backends,
    pub(crate) entries: &'a [Arc<Entry>],
    pub(crate) pushed: &'a [Pushed],
    pub(crate) values: &'a [Value],
}

/// The values of one key. Where they are summed or stepped, either all are whole or all are rows.
pub(crate) struct Group<'a> {
    pub(crate) entry: &'a Entry,
    values: &'a [Value],
    pub(crate) pushed: &'a [Pushed],
}

impl<'a> Group<'a> {
    /// Returns the first value.
    fn first(&self) -> Result<&'a Value> {
        self.values().next().ok_or_else(lost)
    }

    /// Returns the device where the values are summed.
    fn device(&self, home: Home) -> Result<Device> {
        Ok(home.device(self.first()?.memory()))
    }

    /// Returns the rows, or `None` if a value is dense.
    pub(crate) fn rows(&self) -> Result<Option<Vec<&'a RowSparse>>> {
        if self.values().any(|value| value.rows().is_none()) {
            return Ok(None);
        }
        let mut rows = fallible::with_capacity(self.len())?;
        rows.extend(self.values().filter_map(Value::rows));
        Ok(Some(rows))
    }

    /// Fails when any of the values is one of rows.
    pub(crate) fn check_whole(&self) -> Result<()> {
        if self.values().all(|value| value.rows().is_none()) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "key `{}`: values of rows are not compressed, push them whole or without a compression",
            self.entry.key()
        )))
    }

    pub(crate) fn len(&self) -> usize {
        self.pushed.len()
    }

    /// Prepares the values for a compression, with the residuals of the key.
    pub(crate) fn compressed<'b>(
        &self,
        backends: &Backends,
        home: Home,
        compression: &Compression,
        residuals: &'b mut Vec<Tensor>,
    ) -> Result<Compressed<'b>>
    where
        'a: 'b,
    {
        let device = self.device(home)?;
        let mut values = fallible::with_capacity(self.len())?;
        values.extend(self.iter());
        Compressed::new(compression, backends, device, values, residuals)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let values = self.values;
        self.pushed.iter().filter_map(|pushed| values.get(pushed.position))
    }

    /// Returns the elements of the values.
    fn iter(&self) -> impl Iterator<Item = &'a Tensor> + use<'a> {
        self.values().map(Value::memory)
    }
}

impl<'a> Push<'a> {
    /// Returns the groups in the order in which their keys are processed.
    pub(crate) fn groups(&self) -> impl Iterator<Item = Group<'a>> + use<'a> {
        let (entries, values) = (self.entries, self.values);
        let groups = self.pushed.chunk_by(|one, other| one.order == other.order);
        groups.filter_map(move |pushed| {
            let entry = entries.get(pushed.first()?.entry)?;
            Some(Group { entry, values, pushed })
        })
    }

    /// Returns the values with those moved that are not where their key is summed; none if all are.
    pub(crate) fn gather(&self, home: Home) -> Result<Option<Vec<Value>>> {
        let mut moved: Option<Vec<Value>> = None;
        for group in self.groups() {
            let device = group.device(home)?;
            for (pushed, value) in group.pushed.iter().zip(group.values()) {
                if !value.memory().is_at(device) {
                    let here = value.to_device(self.backends, device)?;
                    if moved.is_none() {
                        moved = Some(fallible::copied(self.values)?);
                    }
                    let moved = moved.as_deref_mut().unwrap_or_default();
                    if let Some(place) = moved.get_mut(pushed.position) {
                        *place = here;
                    }
                }
            }
        }
        Ok(moved)
    }

    /// Sums the values of each key. A single value is kept by sharing.
    pub(crate) fn sum(&self, home: Home, scratch: &mut Scratch) -> Result<Vec<Tensor>> {
        let mut sums = fallible::with_capacity(self.entries.len())?;
        for group in self.groups() {
            let first = group.first()?.memory().clone().relabelled(group.device(home)?);
            sums.push(match group.len() {
                1 => first.compact()?,
                _ => first.allocate_like(first.spec().clone())?,
            });
        }
        let mut spans = scratch.lend_spans(self.values.len())?;
        spans.extend(self.groups().flat_map(|group| group.iter()).map(Tensor::span));
        let mut jobs = scratch.lend_sums(self.entries.len())?;
        let mut rest = spans.as_slice();
        for (group, sum) in self.groups().zip(&mut sums) {
            let addends = take(&mut rest, group.len())?;
            if addends.len() > 1 {
                let (device, dtype) = (sum.device(), sum.dtype());
                jobs.push(SumJob { device, dtype, dst: sum.span_mut()?, addends });
            }
        }
        self.backends.run(&mut jobs, |backend, jobs| backend.sum(jobs))?;
        scratch.keep_sums(jobs);
        scratch.keep_spans(spans);
        Ok(sums)
    }

    /// Compresses the values of each key; returns their sums, none without a compression. The residuals change, so
    /// nothing that can fail may come after.
    fn compress(
        &self,
        home: Home,
        compression: Option<&Compression>,
        changes: &mut [Change<'_>],
    ) -> Result<Option<Vec<Tensor>>> {
        let Some(compression) = compression else { return Ok(None) };
        let mut keys = fallible::with_capacity(self.entries.len())?;
        let mut sums = fallible::with_capacity(self.entries.len())?;
        for (group, change) in self.groups().zip(changes) {
            let residuals = &mut change.progress.residuals;
            keys.push(group.compressed(self.backends, home, compression, residuals)?);
        }
        compress(self.backends, &mut keys)?;
        sums.extend(keys.into_iter().map(Compressed::into_sum));
        Ok(Some(sums))
    }

    /// Makes the sum of each key's values its stored value.
    pub(crate) fn assign(
        &self,
        home: Home,
        compression: Option<&Compression>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let mut changes = scratch.lend_changes(self.entries.len())?;
        self.lock(&mut changes)?;
        if let Some(sums) = self.compress(home, compression, &mut changes)? {
            for (sum, change) in sums.into_iter().zip(&mut changes) {
                change.prepared = Prepared::Value(sum.into());
            }
            self.settle(&mut changes);
            scratch.keep_changes(changes);
            return Ok(());
        }
        for (group, change) in self.groups().zip(&mut changes) {
            let value = &mut **change.value.as_mut().ok_or_else(lost)?;
            let device = group.device(home)?;
            change.prepared = if group.len() == 1 {
                Prepared::Value(group.first()?.compact(device)?)
            } else {
                let value = value.make_dense()?;
                value.move_to(self.backends, device)?;
                Prepared::Sum(value.fresh_if_shared()?)
            };
        }
        let mut spans = scratch.lend_spans(self.values.len())?;
        spans.extend(self.groups().flat_map(|group| group.iter()).map(Tensor::span));
        let mut jobs = scratch.lend_sums(self.entries.len())?;
        let mut rest = spans.as_slice();
        for (group, change) in self.groups().zip(&mut changes) {
            let addends = take(&mut rest, group.len())?;
            if let (Prepared::Sum(fresh), Some(value)) = (&mut change.prepared, &mut change.value)
                && let Some(value) = value.dense_mut()
            {
                let (device, dtype) = (value.device(), value.dtype());
                let (InOut::InPlace(dst) | InOut::Into { dst, .. }) = value.in_out(fresh)?;
                jobs.push(SumJob { device, dtype, dst, addends });
            }
        }
        self.backends.run(&mut jobs, |backend, jobs| backend.sum(jobs))?;
        scratch.keep_sums(jobs);
        scratch.keep_spans(spans);
        self.settle(&mut changes);
        scratch.keep_changes(changes);
        Ok(())
    }

    /// Steps each key with the sum of its values as gradient.
    pub(crate) fn step(
        &self,
        home: Home,
        running: &Running,
        compression: Option<&Compression>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        for group in self.groups() {
            Optimizer::check_dtype(group.entry.key(), group.entry.spec().dtype())?;
        }
        // Sorting row numbers takes a while, and others may read the values meanwhile.
        let plans: Vec<Option<RowPlan>> = if self.values.iter().any(|it| it.rows().is_some()) {
            let mut plans = fallible::with_capacity(self.entries.len())?;
            for group in self.groups() {
                plans.push(group.rows()?.as_deref().map(RowPlan::union).transpose()?);
            }
            plans
        } else {
            Vec::new()
        };
        let mut changes = scratch.lend_changes(self.entries.len())?;
        self.lock(&mut changes)?;
        for (group, change) in self.groups().zip(&mut changes) {
            let value = change.value.as_mut().ok_or_else(lost)?.make_dense()?;
            let device = group.device(home)?;
            value.move_to(self.backends, device)?;
            let Progress { run, state, .. } = &mut *change.progress;
            let mut state = Some(state).filter(|_| *run == running.run);
            if let Some(state) = &mut state {
                state.move_to(self.backends, device)?;
            }
            let pending = Pending::new(&running.optimizer, group.entry.key(), value, state)?;
            change.prepared = Prepared::Step(pending, running.run);
        }
        let mut spans = scratch.lend_spans(self.values.len())?;
        let mut jobs: Vec<UpdateJob<'_>> = scratch.lend_updates(self.entries.len())?;
        let mut row_jobs: Vec<RowUpdateJob<'_>> = fallible::with_capacity(plans.len())?;
        // Reserved before `compress`: it changes the residuals, so a later failure would lose values.
        let compressed = self.compress(home, compression, &mut changes)?;
        match &compressed {
            Some(sums) => spans.extend(sums.iter().map(Tensor::span)),
            None => spans.extend(self.groups().flat_map(|group| group.iter()).map(Tensor::span)),
        }
        let mut rest = spans.as_slice();
        let plans = plans.iter().map(Option::as_ref).chain(std::iter::repeat(None));
        for ((group, change), plan) in self.groups().zip(&mut changes).zip(plans) {
            let addends = take(&mut rest, if compressed.is_some() { 1 } else { group.len() })?;
            if let (Prepared::Step(pending, _), Some(value)) =
                (&mut change.prepared, &mut change.value)
                && let Some(value) = value.dense_mut()
            {
                let state = &mut change.progress.state;
                match plan {
                    None => jobs.extend(pending.job(value, state, addends)?),
                    Some(plan) => row_jobs.extend(pending.row_job(value, state, plan, addends)?),
                }
            }
        }
        let result = self.backends.run(&mut row_jobs, |backend, jobs| backend.update_rows(jobs));
        result.map_err(|error| in_the_midst(error, compressed.is_some()))?;
        let has_begun = compressed.is_some() || !row_jobs.is_empty();
        let result = self.backends.run(&mut jobs, |backend, jobs| backend.update(jobs));
        result.map_err(|error| in_the_midst(error, has_begun))?;
        scratch.keep_updates(jobs);
        scratch.keep_spans(spans);
        self.settle(&mut changes);
        scratch.keep_changes(changes);
        Ok(())
    }

    /// Makes the changes count, after the kernels have run.
    fn settle(&self, changes: &mut [Change<'_>]) {
        for (group, change) in self.groups().zip(changes) {
            change.settle();
            group.entry.count_push(&change.progress);
        }
    }

    /// Takes the locks of all keys, and after those the locks of their values.
    fn lock(&self, changes: &mut Vec<Change<'a>>) -> Result<()> {
        for group in self.groups() {
            let progress = group.entry.lock()?;
            changes.push(Change::new(progress));
        }
        for (group, change) in self.groups().zip(changes) {
            change.value = Some(group.entry.lock_value()?);
        }
        Ok(())
    }
}

/// A key in the middle of a change, with its locks.
pub(crate) struct Change<'a> {
    progress: MutexGuard<'a, Progress>,
    value: Option<MutexGuard<'a, Value>>,
    prepared: Prepared,
}

/// What a change needs to run.
enum Prepared {
    Nothing,
    /// Nothing to compute: this becomes the stored value.
    Value(Value),
    /// A sum, into other memory if the present one is shared.
    Sum(Option<Arc<dyn Storage>>),
    /// Of this run of an optimizer.
    Step(Pending, Run),
}

impl<'a> Change<'a> {
    fn new(progress: MutexGuard<'a, Progress>) -> Self {
        Self { progress, value: None, prepared: Prepared::Nothing }
    }

    fn settle(&mut self) {
        let Some(value) = &mut self.value else { return };
        match std::mem::replace(&mut self.prepared, Prepared::Nothing) {
            Prepared::Nothing => {}
            Prepared::Value(new) => **value = new,
            Prepared::Sum(fresh) => {
                if let Some(value) = value.dense_mut() {
                    value.settle(fresh);
                }
            }
            Prepared::Step(mut pending, run) => {
                if let Some(value) = value.dense_mut() {
                    pending.settle(value, &mut self.progress.state);
                    self.progress.run = run;
                }
            }
        }
    }
}

/// Takes the first `count` spans off the rest.
fn take<'a>(rest: &mut &'a [Span<'a>], count: usize) -> Result<&'a [Span<'a>]> {
    let (taken, after) = rest.split_at_checked(count).ok_or_else(lost)?;
    *rest = after;
    Ok(taken)
}

fn lost() -> Error {
    Error::Internal("a push has lost one of its values".to_owned())
}
