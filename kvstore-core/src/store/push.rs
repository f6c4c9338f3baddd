//! [`Push`]: the keys of one push, in the order of initialisation.
//!
//! A push has three phases:
//!
//! 1. Everything that can fail: it finds and checks all keys, takes all locks and reserves all
//!    memory.
//! 2. The kernels run, as one batch for the complete call and one for the keys with row-sparse
//!    values.
//! 3. The results become the stored values.

use std::sync::{Arc, MutexGuard};

use super::home::Home;
use super::hooks::Hooks;
use super::norms::NormSums;
use super::policy::{ActiveOptimizer, RowUse, RunId};
use super::scratch::Scratch;
use super::table::{Entry, Progress};
use crate::backend::registry::{Backends, error_after_change};
use crate::backend::{InOut, MeasureJob, RowUpdateJob, Span, Storage, SumJob, UpdateJob};
use crate::codec::Compression;
use crate::compression::{CompressedPush, compress};
use crate::fallible;
use crate::optimizer::{Optimizer, Pending};
use crate::rows::{RowPlan, RowSparse, Value};
use crate::tensor::Tensor;
use crate::types::{Device, Error, Key, Result};

/// The position of one value in the call, and its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PushedValue {
    /// The key's position in the order of initialisation.
    pub(crate) order: u64,
    /// The value's index in the call.
    pub(crate) position: usize,
    /// The index of the key's entry in the scratch vectors.
    pub(crate) entry: usize,
}

/// The push of one key: its values and, while the push runs, its locks and its new value. When they
/// are summed or stepped, the values are either all dense or all row-sparse.
pub(crate) struct KeyPush<'a> {
    entry: &'a Entry,
    /// The values of all keys of the call.
    values: &'a [Value],
    /// The positions of this key's values in `values`.
    pushed: &'a [PushedValue],
    /// The device that sums the values.
    device: Device,
    /// The rows that a step changes. `None` if the step is dense.
    plan: Option<Box<RowPlan>>,
    progress: Option<MutexGuard<'a, Progress>>,
    value: Option<MutexGuard<'a, Value>>,
    prepared: PreparedChange,
}

/// The checked keys of a push.
pub(crate) struct Push<'a> {
    pub(super) backends: &'a Backends,
    pub(crate) keys: Vec<KeyPush<'a>>,
    /// The number of values of the call. Merging rows and clipping leave fewer.
    pub(super) num_values: usize,
    /// Whether a value is not on the device of its key.
    must_move: bool,
    has_rows: bool,
}

/// The prepared change of a stored value.
enum PreparedChange {
    Nothing,
    /// Replaces the stored value. No kernel needs to run.
    Value(Value),
    /// Writes a sum: in place, or to new memory if the present memory is shared.
    Sum(Option<Arc<dyn Storage>>),
    /// Runs an optimizer step. The `RunId` identifies the optimizer.
    Step(Pending, RunId),
}

/// The values that replace the values of a call, with one field per conversion. A field is `None`
/// if its conversion changed nothing.
#[derive(Default)]
pub(crate) struct ReplacedValues {
    moved: Option<Vec<Value>>,
    merged: Option<Vec<Value>>,
    clipped: Option<Vec<Value>>,
}

impl<'a> KeyPush<'a> {
    fn new(
        entry: &'a Entry,
        values: &'a [Value],
        pushed: &'a [PushedValue],
        home: Home,
    ) -> Result<Self> {
        let first = pushed.first().and_then(|pushed| values.get(pushed.position));
        let device = home.device(first.ok_or_else(lost)?.memory());
        let (plan, progress, value, prepared) = (None, None, None, PreparedChange::Nothing);
        Ok(Self { entry, values, pushed, device, plan, progress, value, prepared })
    }

    pub(crate) fn entry(&self) -> &'a Entry {
        self.entry
    }

    pub(super) fn len(&self) -> usize {
        self.pushed.len()
    }

    fn values(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let values = self.values;
        self.pushed.iter().filter_map(|pushed| values.get(pushed.position))
    }

    /// Returns the elements of each value, or of the rows of a row-sparse value.
    fn tensors(&self) -> impl Iterator<Item = &'a Tensor> + use<'a> {
        self.values().map(Value::memory)
    }

    /// Returns the spans of the values.
    pub(super) fn spans(&self) -> impl Iterator<Item = Span<'a>> + use<'a> {
        self.tensors().map(Tensor::span)
    }

    pub(super) fn first(&self) -> Result<&'a Value> {
        self.values().next().ok_or_else(lost)
    }

    /// Returns the sum in the form of the first value: dense or row-sparse.
    pub(super) fn in_form_of_first(&self, sum: Tensor) -> Result<Value> {
        Ok(match self.first()? {
            Value::Dense(_) => Value::Dense(sum),
            Value::Rows(rows) => Value::Rows(rows.with_rows(sum)?),
        })
    }

    /// Returns the indices of the values in the call.
    pub(crate) fn positions(&self) -> impl Iterator<Item = usize> + use<'a> {
        self.pushed.iter().map(|pushed| pushed.position)
    }

    /// Drops all values but the first one, which has become the sum.
    pub(crate) fn keep_first(&mut self) {
        self.pushed = self.pushed.get(..1).unwrap_or_default();
    }

    /// Returns the values if all are row-sparse, or `None` if one is dense.
    pub(crate) fn rows(&self) -> Result<Option<Vec<&'a RowSparse>>> {
        if self.values().any(|value| value.rows().is_none()) {
            return Ok(None);
        }
        let mut rows = fallible::with_capacity(self.len())?;
        rows.extend(self.values().filter_map(Value::rows));
        Ok(Some(rows))
    }

    /// Checks that the values can be compressed.
    ///
    /// # Errors
    /// - The errors of [`check_compressed`].
    pub(crate) fn check_compression(&self, compression: &Compression) -> Result<()> {
        let key = self.entry.key();
        self.values().try_for_each(|value| check_compressed(key, value, compression))
    }

    fn tensor_list(&self) -> Result<Vec<&'a Tensor>> {
        let mut tensors = fallible::with_capacity(self.len())?;
        tensors.extend(self.tensors());
        Ok(tensors)
    }

    /// Prepares the compression of the values, with the residuals of the locked key.
    fn compressed(
        &mut self,
        backends: &Backends,
        compression: &Compression,
    ) -> Result<CompressedPush<'_>> {
        let (values, device) = (self.tensor_list()?, self.device);
        let residuals = &mut self.progress.as_mut().ok_or_else(lost)?.residuals;
        CompressedPush::new(compression, backends, device, values, residuals)
    }

    /// Returns the sum of the compressed values. Updates `residuals`.
    pub(crate) fn compressed_sum(
        &self,
        backends: &Backends,
        compression: &Compression,
        residuals: &mut Vec<Tensor>,
    ) -> Result<Tensor> {
        let values = self.tensor_list()?;
        let mut key = CompressedPush::new(compression, backends, self.device, values, residuals)?;
        compress(backends, std::slice::from_mut(&mut key))?;
        Ok(key.into_sum())
    }

    /// Locks the stored value and prepares its replacement by the sum of the values.
    fn prepare_sum(&mut self, backends: &Backends) -> Result<()> {
        self.value = Some(self.entry.lock_value()?);
        self.prepared = if self.len() == 1 {
            PreparedChange::Value(self.first()?.compact(self.device)?)
        } else {
            let value = self.value.as_mut().ok_or_else(lost)?.make_dense()?;
            value.move_to(backends, self.device)?;
            PreparedChange::Sum(value.fresh_if_shared()?)
        };
        Ok(())
    }

    /// Returns the job of a prepared sum, or `None` if no kernel needs to run.
    fn sum_job<'b>(&'b mut self, addends: &'b [Span<'b>]) -> Result<Option<SumJob<'b>>> {
        let (PreparedChange::Sum(fresh), Some(value)) = (&mut self.prepared, &mut self.value)
        else {
            return Ok(None);
        };
        let value = value.dense_mut().ok_or_else(lost)?;
        let (device, dtype) = (value.device(), value.dtype());
        let (InOut::InPlace(dst) | InOut::Into { dst, .. }) = value.in_out(fresh)?;
        Ok(Some(SumJob { device, dtype, dst, addends }))
    }

    /// Locks the stored value and prepares its step of the optimizer.
    fn prepare_step(&mut self, backends: &Backends, running: &ActiveOptimizer) -> Result<()> {
        let value = self.value.insert(self.entry.lock_value()?).make_dense()?;
        value.move_to(backends, self.device)?;
        let Progress { run, state, .. } = &mut **self.progress.as_mut().ok_or_else(lost)?;
        let mut state = Some(state).filter(|_| *run == running.run);
        if let Some(state) = &mut state {
            state.move_to(backends, self.device)?;
        }
        let pending = Pending::new(&running.optimizer, self.entry.key(), value, state)?;
        self.prepared = PreparedChange::Step(pending, running.run);
        Ok(())
    }

    /// Returns memory for the norms of a prepared step. Most steps need none, and get an empty
    /// vector.
    pub(super) fn norm_sums(&self) -> Result<Vec<[f64; 2]>> {
        match (&self.prepared, self.value.as_deref()) {
            (PreparedChange::Step(pending, _), Some(value)) => pending.norm_sums(value.memory()),
            _ => Err(lost()),
        }
    }

    /// Returns the job that measures the norms of a prepared step.
    pub(super) fn measure_job<'b>(
        &'b self,
        addends: &'b [Span<'b>],
        sums: &'b mut [[f64; 2]],
    ) -> Result<MeasureJob<'b>> {
        let (PreparedChange::Step(pending, _), Some(progress), Some(value)) =
            (&self.prepared, &self.progress, self.value.as_deref())
        else {
            return Err(lost());
        };
        Ok(pending.measure_job(value.memory(), &progress.state, addends, sums))
    }

    /// Stores the measured norms in the prepared step.
    pub(super) fn set_norms(&mut self, sums: &[[f64; 2]]) -> Result<()> {
        match &mut self.prepared {
            PreparedChange::Step(pending, _) => pending.set_norms(sums),
            _ => Err(lost()),
        }
    }

    /// Adds the job of a prepared step to `jobs` if the step is dense, otherwise to `row_jobs`.
    fn add_step<'b>(
        &'b mut self,
        addends: &'b [Span<'b>],
        jobs: &mut Vec<UpdateJob<'b>>,
        row_jobs: &mut Vec<RowUpdateJob<'b>>,
    ) -> Result<()> {
        let (Some(progress), Some(value)) = (&mut self.progress, &mut self.value) else {
            return Err(lost());
        };
        let (PreparedChange::Step(pending, _), Some(value)) =
            (&mut self.prepared, value.dense_mut())
        else {
            return Err(lost());
        };
        match &self.plan {
            None => jobs.extend(pending.job(value, &mut progress.state, addends)?),
            Some(plan) => {
                row_jobs.extend(pending.row_job(value, &mut progress.state, plan, addends)?);
            }
        }
        Ok(())
    }

    /// Commits the prepared change.
    fn settle(&mut self) {
        let (Some(value), Some(progress)) = (&mut self.value, &mut self.progress) else { return };
        match std::mem::replace(&mut self.prepared, PreparedChange::Nothing) {
            PreparedChange::Nothing => {}
            PreparedChange::Value(new) => **value = new,
            PreparedChange::Sum(fresh) => {
                if let Some(value) = value.dense_mut() {
                    value.settle(fresh);
                }
            }
            PreparedChange::Step(mut pending, run) => {
                if let Some(value) = value.dense_mut() {
                    pending.settle(value, &mut progress.state);
                    progress.run = run;
                }
            }
        }
        self.entry.count_push(progress);
    }
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
        for pushed in pushed.chunk_by(|a, b| a.order == b.order) {
            let entry = pushed.first().and_then(|first| entries.get(first.entry));
            let key = KeyPush::new(entry.ok_or_else(lost)?, values, pushed, home)?;
            for value in key.values() {
                must_move |= !value.memory().is_at(key.device);
                has_rows |= value.rows().is_some();
            }
            keys.push(key);
        }
        Ok(Self { backends, keys, num_values, must_move, has_rows })
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
        let mut jobs = scratch.take_sums(self.keys.len())?;
        let mut rest = spans.as_slice();
        for (key, sum) in self.keys.iter().zip(&mut sums) {
            let addends = take(&mut rest, key.len())?;
            if addends.len() > 1 {
                let (device, dtype) = (sum.device(), sum.dtype());
                jobs.push(SumJob { device, dtype, dst: sum.span_mut()?, addends });
            }
        }
        self.backends.run(&mut jobs, |backend, jobs| backend.sum(jobs))?;
        scratch.put_back_sums(jobs);
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
            for key in &mut self.keys {
                key.value = Some(key.entry.lock_value()?);
            }
        }
        // Compression has already computed the sums, so they only need to be committed.
        if let Some(sums) = self.compress(compression)? {
            for (sum, key) in sums.into_iter().zip(&mut self.keys) {
                key.prepared = PreparedChange::Value(sum.into());
            }
            self.settle(scratch);
            return Ok(());
        }
        let mut spans = scratch.take_spans(self.num_values)?;
        // Prepares all keys before the kernels run, because a failed push must change nothing.
        for key in &mut self.keys {
            key.prepare_sum(self.backends)?;
            spans.extend(key.spans());
        }
        let mut jobs = scratch.take_sums(self.keys.len())?;
        let mut rest = spans.as_slice();
        for key in &mut self.keys {
            let addends = take(&mut rest, key.len())?;
            jobs.extend(key.sum_job(addends)?);
        }
        self.backends.run(&mut jobs, |backend, jobs| backend.sum(jobs))?;
        scratch.put_back_sums(jobs);
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
        let mut norms = NormSums::default();
        for (index, key) in self.keys.iter_mut().enumerate() {
            key.prepare_step(self.backends, running)?;
            norms.reserve(index, key)?;
            spans.extend(key.spans());
        }
        let mut jobs: Vec<UpdateJob<'_>> = scratch.take_updates(self.keys.len())?;
        let mut row_jobs: Vec<RowUpdateJob<'_>> = fallible::with_capacity(num_plans)?;
        // `compress` changes the residuals, so an allocation that fails after it would lose values.
        let compressed = self.compress(compression)?;
        if let Some(sums) = &compressed {
            spans.clear();
            spans.extend(sums.iter().map(Tensor::span));
        }
        let num_addends = |key: &KeyPush<'_>| if compressed.is_some() { 1 } else { key.len() };
        let measured =
            norms.measure(self.backends, &mut self.keys, &spans, num_addends, hooks.complete);
        measured.map_err(|error| error_after_change(error, compressed.is_some()))?;
        let mut rest = spans.as_slice();
        for key in &mut self.keys {
            let addends = take(&mut rest, num_addends(key))?;
            key.add_step(addends, &mut jobs, &mut row_jobs)?;
        }
        let result = self.backends.run(&mut row_jobs, |backend, jobs| backend.update_rows(jobs));
        result.map_err(|error| error_after_change(error, compressed.is_some()))?;
        let has_begun = compressed.is_some() || !row_jobs.is_empty();
        drop(row_jobs);
        let result = self.backends.run(&mut jobs, |backend, jobs| backend.update(jobs));
        result.map_err(|error| error_after_change(error, has_begun))?;
        scratch.put_back_updates(jobs);
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
            Optimizer::check_dtype(key.entry.key(), key.entry.spec().dtype())?;
            let plan = match key.first()?.rows() {
                Some(first) => {
                    let backend = first.rows().backend()?;
                    key.rows()?.map(|rows| RowPlan::union(&rows, &**backend)).transpose()?
                }
                None if is_rowwise => {
                    // Compression replaces the values with one sum.
                    let num_values = if is_compressed { 1 } else { key.len() };
                    Some(RowPlan::of_all_rows(key.entry.spec().shape().num_rows(), num_values)?)
                }
                None => None,
            };
            num_plans += usize::from(plan.is_some());
            key.plan = plan.map(Box::new);
        }
        Ok(num_plans)
    }

    /// Locks all keys. Their values are locked later, so that readers do not wait until other
    /// updates of these keys end.
    fn lock(&mut self, hooks: &mut Hooks<'_>) -> Result<()> {
        for key in &mut self.keys {
            key.progress = Some(key.entry.lock()?);
        }
        hooks.start(&self.keys, false)
    }

    /// Commits the changes after the kernels have run, and releases the locks.
    fn settle(mut self, scratch: &mut Scratch) {
        self.keys.iter_mut().for_each(KeyPush::settle);
        scratch.put_back_keys(self.keys);
    }
}

/// Checks that a value of a key can be compressed.
///
/// # Errors
/// - [`Error::InvalidArgument`] if the dtype is an integer dtype or cannot represent the threshold.
/// - [`Error::InvalidArgument`] if the value is row-sparse.
pub fn check_compressed(key: &Key, value: &Value, compression: &Compression) -> Result<()> {
    let checked = compression.of(value.spec().dtype());
    checked.map_err(|error| Error::invalid(format!("key `{key}`: {error}")))?;
    if value.rows().is_none() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "key `{key}`: row-sparse values cannot be compressed: push dense values or turn \
         compression off"
    )))
}

/// Removes the first `count` spans from `rest` and returns them.
pub(super) fn take<'a>(rest: &mut &'a [Span<'a>], count: usize) -> Result<&'a [Span<'a>]> {
    let (taken, after) = rest.split_at_checked(count).ok_or_else(lost)?;
    *rest = after;
    Ok(taken)
}

pub(super) fn lost() -> Error {
    Error::Internal("a push has lost one of its values".to_owned())
}
