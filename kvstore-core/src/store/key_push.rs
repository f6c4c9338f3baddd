//! [`KeyPush`]: one key of a push, with its locks and its prepared change.

use std::sync::{Arc, MutexGuard};

use super::policy::{ActiveOptimizer, RunId};
use super::table::{Entry, Progress};
use crate::backend::registry::Backends;
use crate::backend::{InOut, MeasureJob, RowUpdateJob, Span, Storage, SumJob, UpdateJob};
use crate::codec::Compression;
use crate::compression::{CompressedPush, compress};
use crate::fallible;
use crate::optimizer::{OptimizerState, Pending};
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
    pub(super) values: &'a [Value],
    /// The positions of this key's values in `values`.
    pushed: &'a [PushedValue],
    /// The device that sums the values.
    pub(super) device: Device,
    /// The rows that a step changes. `None` if the step is dense.
    plan: Option<Box<RowPlan>>,
    progress: Option<MutexGuard<'a, Progress>>,
    value: Option<MutexGuard<'a, Value>>,
    prepared: PreparedChange,
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

/// A prepared step, its weight and state, and the rows that it changes if it is not dense.
type PreparedStep<'a> =
    (&'a mut Pending, &'a mut Tensor, &'a mut OptimizerState, Option<&'a RowPlan>);

impl<'a> KeyPush<'a> {
    pub(super) fn new(
        entry: &'a Entry,
        values: &'a [Value],
        pushed: &'a [PushedValue],
        device: Device,
    ) -> Self {
        let (plan, progress, value, prepared) = (None, None, None, PreparedChange::Nothing);
        Self { entry, values, pushed, device, plan, progress, value, prepared }
    }

    /// Locks the key. Its value is locked later, so that readers do not wait until other updates of
    /// the call's keys end.
    pub(super) fn lock(&mut self) -> Result<()> {
        self.progress = Some(self.entry.lock()?);
        Ok(())
    }

    /// Locks the stored value.
    pub(super) fn lock_value(&mut self) -> Result<()> {
        self.value = Some(self.entry.lock_value()?);
        Ok(())
    }

    /// Sets the value that replaces the stored one.
    pub(super) fn set_value(&mut self, value: Value) {
        self.prepared = PreparedChange::Value(value);
    }

    /// Makes the step change only these rows.
    pub(super) fn set_plan(&mut self, plan: Option<RowPlan>) {
        self.plan = plan.map(Box::new);
    }

    pub(crate) fn entry(&self) -> &'a Entry {
        self.entry
    }

    pub(super) fn len(&self) -> usize {
        self.pushed.len()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let values = self.values;
        self.pushed.iter().filter_map(|pushed| values.get(pushed.position))
    }

    /// Returns the elements of each value, or of the rows of a row-sparse value.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &'a Tensor> + use<'a> {
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
    pub(super) fn compressed(
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

    /// Locks the stored value and prepares its replacement by the sum of the values. Does nothing
    /// if that is done.
    pub(super) fn prepare_sum(&mut self, backends: &Backends) -> Result<()> {
        if self.value.is_some() {
            return Ok(());
        }
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

    /// Returns the job of the sum, or `None` if no kernel needs to run. Prepares the sum before.
    pub(super) fn sum_job<'b>(
        &'b mut self,
        backends: &Backends,
        addends: &'b [Span<'b>],
    ) -> Option<Result<SumJob<'b>>> {
        if let Err(error) = self.prepare_sum(backends) {
            return Some(Err(error));
        }
        let (PreparedChange::Sum(fresh), Some(value)) = (&mut self.prepared, &mut self.value)
        else {
            return None;
        };
        Some(value.dense_mut().ok_or_else(lost).and_then(|value| {
            let (device, dtype) = (value.device(), value.dtype());
            let (InOut::InPlace(dst) | InOut::Into { dst, .. }) = value.in_out(fresh)?;
            Ok(SumJob { device, dtype, dst, addends })
        }))
    }

    /// Locks the stored value and prepares its step of the optimizer. Does nothing if that is done.
    pub(super) fn prepare_step(
        &mut self,
        backends: &Backends,
        running: &ActiveOptimizer,
    ) -> Result<()> {
        if self.value.is_some() {
            return Ok(());
        }
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

    /// Returns the job of the step if it is dense and not skipped. Prepares the step before.
    pub(super) fn step_job<'b>(
        &'b mut self,
        backends: &Backends,
        running: &ActiveOptimizer,
        addends: &'b [Span<'b>],
    ) -> Option<Result<UpdateJob<'b>>> {
        if self.plan.is_some() {
            return None;
        }
        if let Err(error) = self.prepare_step(backends, running) {
            return Some(Err(error));
        }
        let Some((pending, value, state, _)) = self.prepared_step() else {
            return Some(Err(lost()));
        };
        (!pending.is_skipped()).then(|| pending.job(value, state, addends))
    }

    /// Returns the job of a prepared step if it changes only some rows and is not skipped.
    pub(super) fn row_step_job<'b>(
        &'b mut self,
        addends: &'b [Span<'b>],
    ) -> Result<Option<RowUpdateJob<'b>>> {
        let (pending, value, state, plan) = self.prepared_step().ok_or_else(lost)?;
        plan.map_or(Ok(None), |plan| pending.row_job(value, state, plan, addends))
    }

    fn prepared_step(&mut self) -> Option<PreparedStep<'_>> {
        let PreparedChange::Step(pending, _) = &mut self.prepared else { return None };
        let value = self.value.as_deref_mut()?.dense_mut()?;
        Some((pending, value, &mut self.progress.as_mut()?.state, self.plan.as_deref()))
    }

    /// Commits the prepared change.
    pub(super) fn settle(&mut self) {
        let (Some(value), Some(progress)) = (&mut self.value, &mut self.progress) else { return };
        // This push, or an earlier one that failed later, may have added residuals.
        let mut changes_size = !progress.residuals.is_empty();
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
                    changes_size |= pending.has_new_state();
                    pending.settle(value, &mut progress.state);
                    progress.run = run;
                }
            }
        }
        self.entry.count_push();
        if changes_size {
            self.entry.note_bytes(progress);
        }
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

pub(super) fn lost() -> Error {
    Error::Internal("a push has lost one of its values".to_owned())
}
