//! [`Push`]: the keys of one push, in the order of initialisation.
//!
//! A push has three phases:
//!
//! 1. It finds and checks all keys, locks them and prepares their changes. If all keys are in one
//!    batch, the backend prepares each key when it takes its job, before any kernel runs.
//! 2. The kernels run, as one batch for each kind of device, and one for the keys with row-sparse
//!    values.
//! 3. The results become the stored values.

use std::sync::Arc;

use super::home::Home;
use super::hooks::Hooks;
use super::key_push::{KeyPush, PushedValue, lost};
use super::norms::NormSums;
use super::policy::{ActiveOptimizer, RowUse};
use super::scratch::Scratch;
use super::table::Entry;
use crate::backend::registry::{Backends, Kinds, error_after_change};
use crate::backend::{Backend, Jobs, RowUpdateJob, Span, SumJob};
use crate::codec::Compression;
use crate::compression::{CompressedPush, compress};
use crate::fallible;
use crate::optimizer::Optimizer;
use crate::rows::{RowPlan, Value};
use crate::tensor::Tensor;
use crate::types::{Device, Result};

/// The checked keys of a push.
pub(crate) struct Push<'a> {
    pub(super) backends: &'a Backends,
    pub(crate) keys: Vec<KeyPush<'a>>,
    /// The number of values of the call. Merging rows and clipping leave fewer.
    pub(super) num_values: usize,
    /// The kinds of the devices of the keys.
    kinds: Kinds,
    /// Whether a value is not on the device of its key.
    must_move: bool,
    has_rows: bool,
}

/// The values that replace the values of a call, with one field per conversion. A field is `None`
/// if its conversion changed nothing.
#[derive(Default)]
pub(crate) struct ReplacedValues {
    moved: Option<Vec<Value>>,
    merged: Option<Vec<Value>>,
    clipped: Option<Vec<Value>>,
}

impl<'a> Push<'a> {
    /// Builds the list of keys, and checks which conversions their values need. `pushed` must be
    /// sorted by the order in which the keys were initialised.
    pub(crate) fn new(
        backends: &'a Backends,
        home: Home,
        entries: &'a [Arc<Entry>],
        values: &'a [Value],
        pushed: &'a [PushedValue],
        scratch: &mut Scratch,
    ) -> Result<Self> {
        let mut keys = scratch.take_keys(entries.len())?;
        let (num_values, mut must_move, mut has_rows) = (pushed.len(), false, false);
        let mut kinds = Kinds::default();
        for pushed in pushed.chunk_by(|a, b| a.order == b.order) {
            let first = pushed.first().ok_or_else(lost)?;
            let entry = entries.get(first.entry).ok_or_else(lost)?;
            let value = values.get(first.position).ok_or_else(lost)?;
            let device = home.device(value.memory());
            kinds.add(device);
            for value in pushed.iter().filter_map(|pushed| values.get(pushed.position)) {
                must_move |= !value.memory().is_at(device);
                has_rows |= value.rows().is_some();
            }
            keys.push(KeyPush::new(entry, values, pushed, device));
        }
        Ok(Self { backends, keys, num_values, kinds, must_move, has_rows })
    }

    /// Converts the values of the call for the sum. Moves them to the device of their key, merges
    /// row-sparse ones as `row_use` requires, and clips the sums to the global norm `clip`, if
    /// there is one.
    pub(crate) fn replace_values(
        &mut self,
        replaced: &'a mut ReplacedValues,
        mut values: &'a [Value],
        row_use: RowUse,
        clip: Option<f64>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let ReplacedValues { moved, merged, clipped } = replaced;
        if self.must_move {
            values = moved.insert(self.moved(values)?);
            self.set_values(values);
        }
        if self.has_rows {
            values = merged.insert(self.merge_rows(values, row_use)?);
            self.set_values(values);
        }
        if let Some(bound) = clip
            && let Some(values) = self.clipped(bound, values, scratch)?
        {
            self.set_values(clipped.insert(values));
        }
        Ok(())
    }

    /// Sets the values of all keys.
    fn set_values(&mut self, values: &'a [Value]) {
        for key in &mut self.keys {
            key.values = values;
        }
    }

    /// Returns the values of the call, after moving those that are not on the device of their key.
    fn moved(&self, values: &[Value]) -> Result<Vec<Value>> {
        let mut moved = fallible::copied(values)?;
        for key in &self.keys {
            for position in key.positions() {
                let value = moved.get_mut(position).ok_or_else(lost)?;
                if !value.memory().is_at(key.device) {
                    *value = value.to_device(self.backends, key.device)?;
                }
            }
        }
        Ok(moved)
    }

    /// Returns the sum of each key's values. A single value is shared as its own sum if possible.
    pub(crate) fn sum(&self, scratch: &mut Scratch) -> Result<Vec<Tensor>> {
        let mut sums = fallible::with_capacity(self.keys.len())?;
        let mut spans = scratch.take_spans(self.num_values)?;
        for key in &self.keys {
            spans.extend(key.spans());
            let first = key.first()?.memory().clone().relabelled(key.device);
            // A single value is its own sum and needs no kernel.
            sums.push(match key.len() {
                1 => first.compact()?,
                _ => first.allocate_like(first.spec().clone())?,
            });
        }
        self.backends.for_each(self.kinds, |backend| {
            let keys = self.keys.iter().zip(&mut sums);
            let place = |(key, _): &(&KeyPush<'_>, _)| (key.device, key.len());
            backend.sum(&mut jobs_on(backend, keys, &spans, place, new_sum_job))
        })?;
        scratch.put_back_spans(spans);
        Ok(sums)
    }

    /// Returns the sum of each key's values, in the order of the call. Each sum has the form of the
    /// key's first value: dense or row-sparse. Row-sparse values must be summed before.
    pub(crate) fn into_sums(self, scratch: &mut Scratch) -> Result<Vec<Value>> {
        let mut sums = fallible::with_capacity(self.keys.len())?;
        for (key, sum) in self.keys.iter().zip(self.sum(scratch)?) {
            sums.push((key.positions().next(), key.in_form_of_first(sum)?));
        }
        scratch.put_back_keys(self.keys);
        sums.sort_unstable_by_key(|(position, _)| *position);
        fallible::collect(sums.into_iter().map(|(_, sum)| sum))
    }

    /// Compresses the values of each key. Returns the sums, or `None` if compression is off.
    ///
    /// Mutates the residuals: no fallible step may follow.
    fn compress(&mut self, compression: Option<&Compression>) -> Result<Option<Vec<Tensor>>> {
        let Some(compression) = compression else { return Ok(None) };
        let mut compressed = fallible::with_capacity(self.keys.len())?;
        let mut sums = fallible::with_capacity(self.keys.len())?;
        for key in &mut self.keys {
            compressed.push(key.compressed(self.backends, compression)?);
        }
        compress(self.backends, &mut compressed)?;
        sums.extend(compressed.into_iter().map(CompressedPush::into_sum));
        Ok(Some(sums))
    }

    /// Replaces each stored value with the sum of the key's values.
    pub(crate) fn assign(
        mut self,
        compression: Option<&Compression>,
        hooks: &mut Hooks<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        self.lock(hooks)?;
        if compression.is_some() {
            self.keys.iter_mut().try_for_each(KeyPush::lock_value)?;
        }
        // Compression has already computed the sums, so they only need to be committed.
        if let Some(sums) = self.compress(compression)? {
            for (sum, key) in sums.into_iter().zip(&mut self.keys) {
                key.set_value(sum.into());
            }
            self.settle(scratch);
            return Ok(());
        }
        let mut spans = scratch.take_spans(self.num_values)?;
        spans.extend(self.keys.iter().flat_map(KeyPush::spans));
        let backends = self.backends;
        // Otherwise the only backend takes all jobs, and so prepares all keys, before its kernels
        // run. That is faster, because each key goes through the caches once.
        if !self.kinds.is_one() {
            self.keys.iter_mut().try_for_each(|key| key.prepare_sum(backends))?;
            backends.for_each(self.kinds, |backend| backend.reserve_sums(self.keys.len()))?;
        }
        backends.run_each(self.kinds, |backend| {
            let job = |key, addends| KeyPush::sum_job(key, backends, addends);
            let place = |key: &&mut KeyPush<'_>| (key.device, key.len());
            let jobs = jobs_on(backend, self.keys.iter_mut(), &spans, place, job);
            run_jobs(jobs, |jobs| backend.sum(jobs))
        })?;
        scratch.put_back_spans(spans);
        self.settle(scratch);
        Ok(())
    }

    /// Runs the optimizer step of each key. The sum of the key's values is the gradient. If the
    /// stored values are parts, `hooks` complete their norms.
    pub(crate) fn step(
        mut self,
        running: &ActiveOptimizer,
        compression: Option<&Compression>,
        mut hooks: Hooks<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        // Before `lock`, because sorting row indices is slow and readers need not wait for it.
        let num_plans = self.plan_steps(running, compression.is_some())?;
        self.lock(&mut hooks)?;
        let mut spans = scratch.take_spans(self.num_values)?;
        spans.extend(self.keys.iter().flat_map(KeyPush::spans));
        let (backends, mut norms) = (self.backends, NormSums::default());
        let has_norms = running.optimizer.is_layerwise();
        // As in `assign`, the only batch of a push prepares its keys.
        if num_plans > 0 || compression.is_some() || has_norms || !self.kinds.is_one() {
            for (index, key) in self.keys.iter_mut().enumerate() {
                key.prepare_step(backends, running)?;
                norms.reserve(index, key)?;
            }
            backends.for_each(self.kinds, |backend| backend.reserve_updates(self.keys.len()))?;
        }
        let mut row_jobs: Vec<RowUpdateJob<'_>> = fallible::with_capacity(num_plans)?;
        // `compress` changes the residuals, so an allocation that fails after it would lose values.
        let compressed = self.compress(compression)?;
        if let Some(sums) = &compressed {
            spans.clear();
            spans.extend(sums.iter().map(Tensor::span));
        }
        let num_addends = |key: &KeyPush<'_>| if compressed.is_some() { 1 } else { key.len() };
        let measured = norms.measure(backends, &mut self.keys, &spans, num_addends, hooks.complete);
        measured.map_err(|error| error_after_change(error, compressed.is_some()))?;
        if num_plans > 0 {
            let mut rest = spans.as_slice();
            for key in &mut self.keys {
                let addends = take(&mut rest, num_addends(key))?;
                row_jobs.extend(key.row_step_job(addends)?);
            }
        }
        let result = backends.run(&mut row_jobs, |backend, jobs| backend.update_rows(jobs));
        result.map_err(|error| error_after_change(error, compressed.is_some()))?;
        let has_begun = compressed.is_some() || !row_jobs.is_empty();
        drop(row_jobs);
        let result = backends.run_each(self.kinds, |backend| {
            let job = |key, addends| KeyPush::step_job(key, backends, running, addends);
            let place = |key: &&mut KeyPush<'_>| (key.device, num_addends(key));
            let jobs = jobs_on(backend, self.keys.iter_mut(), &spans, place, job);
            run_jobs(jobs, |jobs| backend.update(jobs))
        });
        result.map_err(|error| error_after_change(error, has_begun))?;
        scratch.put_back_spans(spans);
        self.settle(scratch);
        Ok(())
    }

    /// Checks the dtypes. Plans the steps of the keys with row-sparse values, or of all keys if the
    /// optimizer is row-wise. Returns the number of plans.
    fn plan_steps(&mut self, running: &ActiveOptimizer, is_compressed: bool) -> Result<usize> {
        let is_rowwise = running.optimizer.is_rowwise();
        let mut num_plans = 0;
        for key in &mut self.keys {
            Optimizer::check_dtype(key.entry().key(), key.entry().spec().dtype())?;
            let plan = match key.first()?.rows() {
                Some(first) => {
                    let backend = first.rows().backend()?;
                    key.rows()?.map(|rows| RowPlan::union(&rows, &**backend)).transpose()?
                }
                None if is_rowwise => {
                    // Compression replaces the values with one sum.
                    let num_values = if is_compressed { 1 } else { key.len() };
                    Some(RowPlan::of_all_rows(key.entry().spec().shape().num_rows(), num_values)?)
                }
                None => None,
            };
            num_plans += usize::from(plan.is_some());
            key.set_plan(plan);
        }
        Ok(num_plans)
    }

    /// Locks all keys.
    fn lock(&mut self, hooks: &mut Hooks<'_>) -> Result<()> {
        self.keys.iter_mut().try_for_each(KeyPush::lock)?;
        hooks.start(&self.keys, false)
    }

    /// Commits the changes after the kernels have run, and releases the locks.
    fn settle(mut self, scratch: &mut Scratch) {
        self.keys.iter_mut().for_each(KeyPush::settle);
        scratch.put_back_keys(self.keys);
    }
}

/// Returns the job that writes the sum of a key's values to `sum`, or `None` if there is one value.
fn new_sum_job<'a>(
    (key, sum): (&KeyPush<'_>, &'a mut Tensor),
    addends: &'a [Span<'a>],
) -> Option<Result<SumJob<'a>>> {
    let (device, dtype) = (sum.device(), sum.dtype());
    let job = |dst| SumJob { device, dtype, dst, addends };
    (key.len() > 1).then(|| sum.span_mut().map(job))
}

/// Calls `run` with the jobs, if there are any. Returns whether there are.
fn run_jobs<J>(
    jobs: impl Iterator<Item = Result<J>>,
    run: impl FnOnce(&mut Jobs<'_, J>) -> Result<()>,
) -> Result<bool> {
    let mut jobs = jobs.peekable();
    let has_jobs = jobs.peek().is_some();
    if has_jobs {
        run(&mut jobs)?;
    }
    Ok(has_jobs)
}

/// Returns the jobs of the items on the devices of a backend. `place` returns the device of an item
/// and the number of its spans, which `job` gets.
fn jobs_on<'a, T, J>(
    backend: &dyn Backend,
    items: impl Iterator<Item = T>,
    mut spans: &'a [Span<'a>],
    place: impl Fn(&T) -> (Device, usize),
    mut job: impl FnMut(T, &'a [Span<'a>]) -> Option<Result<J>>,
) -> impl Iterator<Item = Result<J>> {
    let kind = backend.kind();
    items.filter_map(move |item| {
        let (device, count) = place(&item);
        match take(&mut spans, count) {
            Ok(addends) if device.kind() == kind => job(item, addends),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }
    })
}

/// Removes the first `count` spans from `rest` and returns them.
pub(super) fn take<'a>(rest: &mut &'a [Span<'a>], count: usize) -> Result<&'a [Span<'a>]> {
    let (taken, after) = rest.split_at_checked(count).ok_or_else(lost)?;
    *rest = after;
    Ok(taken)
}
