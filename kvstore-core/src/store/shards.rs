//! Snapshots of stores that split each value into parts, and keep the optimizer states of the parts
//! in a second store.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::policy::{ActiveOptimizer, Policy, RunId};
use super::snapshot::{HeldSnapshot, SavedPolicy, SavedSettings, Snapshot};
use super::table::{KeyCopy, Progress};
use crate::codec::Compression;
use crate::fallible;
use crate::optimizer::{Optimizer, OptimizerState};
use crate::rows::{Value, row_len};
use crate::tensor::Tensor;
use crate::types::{Error, Key, Result, Shape, TensorSpec};

impl OptimizerState {
    /// Returns the optimizer state of a part of a weight. The part begins at element `first`, and
    /// `part` is its spec.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the part is not within the weight.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn part(&self, optimizer: &Optimizer, first: usize, part: &TensorSpec) -> Result<Self> {
        let Some(outline) = self.outline() else { return Ok(Self::default()) };
        let row_len = row_len(part.shape());
        let mut tensors = Vec::new();
        for (tensor, spec) in self.all_tensors().zip(outline.specs(part)) {
            // A tensor with one number per row has fewer elements than the part.
            let is_per_row = spec.num_elements() != part.num_elements();
            let first = if is_per_row { first / row_len } else { first };
            let cut = tensor.view(first, spec.shape().clone())?.compact()?;
            fallible::push(&mut tensors, cut)?;
        }
        Ok(Self::restored(optimizer, part, outline, tensors))
    }

    /// Returns the state of a weight, joined from the states of its parts in order.
    fn joined(optimizer: &Optimizer, weight: &TensorSpec, parts: &[Self]) -> Result<Self> {
        let Some(outline) = parts.first().and_then(Self::outline) else {
            return Ok(Self::default());
        };
        let mut tensors = Vec::new();
        for (index, spec) in outline.specs(weight).enumerate() {
            let mut pieces = fallible::with_capacity(parts.len())?;
            for piece in parts.iter().filter_map(|part| part.all_tensors().nth(index)) {
                pieces.push(piece.view(0, Shape::from([piece.num_elements()]))?);
            }
            let joined = Tensor::concatenate(&pieces, 0)?;
            if joined.num_elements() != spec.num_elements() {
                return Err(Error::invalid(format!(
                    "the states of the parts do not add up to {weight}"
                )));
            }
            tensors.push(joined.view(0, spec.shape().clone())?);
        }
        Ok(Self::restored(optimizer, weight, outline, tensors))
    }
}

impl Snapshot {
    /// Returns the snapshot of a store that holds a part of each key. `part` returns the first
    /// element and the spec of a key's part. Keys for which it returns `None` are left out. The
    /// result has no residuals.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if a part is not within its value.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn part(&self, part: impl Fn(&Key) -> Option<(usize, TensorSpec)>) -> Result<Self> {
        let held = self.held()?;
        let mut copies = fallible::with_capacity(self.len())?;
        for copy in held.copies() {
            let Some((first, spec)) = part(&copy.key) else { continue };
            let value = copy.value.to_dense()?.view(first, spec.shape().clone())?.compact()?;
            let state = match (held.optimizer(), held.state_of(copy)) {
                (Some(optimizer), Some(state)) => Some(state.part(optimizer, first, &spec)?),
                _ => None,
            };
            // Without a state of the current optimizer, the key must count as never updated.
            let run = if state.is_some() { copy.progress.run } else { RunId::default() };
            let (key, num_pushes) = (copy.key.clone(), copy.num_pushes);
            let mut progress = Progress { run, ..Default::default() };
            progress.state = state.unwrap_or_default();
            copies.push(Arc::new(KeyCopy {
                key,
                value: Value::Dense(value),
                progress,
                num_pushes,
            }));
        }
        let settings = SavedSettings { compression: None, ..self.settings().clone() };
        Ok(Self::new(self.store_name(), settings, copies))
    }

    /// Returns the snapshot of a store that holds some rows of each key. `rows` returns the rows of
    /// a key, with `None` for all of them. Keys for which it returns `None` are left out. The
    /// settings and residuals stay.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the rows are not within the value.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn slice_rows(&self, rows: impl Fn(&Key) -> Option<Option<Range<usize>>>) -> Result<Self> {
        let held = self.held()?;
        let mut copies = Vec::new();
        for copy in held.copies() {
            let copy = match rows(&copy.key) {
                None => continue,
                Some(None) => Arc::clone(copy),
                Some(Some(rows)) => sliced(&held, copy, &rows)?,
            };
            fallible::push(&mut copies, copy)?;
        }
        Ok(Self::new(self.store_name(), self.settings().clone(), copies))
    }

    /// Returns this snapshot with the values, states and numbers of pushes that some keys have in
    /// others. `source` returns the other snapshot of a key. Keys that `source` does not have there
    /// stay as they are. The settings stay.
    ///
    /// # Errors
    /// - The errors of [`SnapshotSource::read`](super::SnapshotSource::read), if values are
    ///   elsewhere.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn with_keys_of<'a>(&self, source: impl Fn(&Key) -> Option<&'a Self>) -> Result<Self> {
        let held = self.held()?;
        let copies = held.copies().iter().map(|copy| {
            let Some(other) = source(&copy.key) else { return Ok(Arc::clone(copy)) };
            Ok(other.held()?.shared_copy(&copy.key).unwrap_or(copy).clone())
        });
        let copies = fallible::try_collect(copies)?;
        Ok(Self::new(self.store_name(), self.settings().clone(), copies))
    }

    /// Returns the snapshot of a store that holds only these keys, in this order. The settings
    /// stay.
    ///
    /// # Errors
    /// - [`Error::KeyNotFound`] if the snapshot does not have a key.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn only(&self, keys: &[Key]) -> Result<Self> {
        let held = self.held()?;
        let copies = keys.iter().map(|key| {
            let found = held.shared_copy(key).cloned();
            found.ok_or_else(|| Error::KeyNotFound { key: key.clone() })
        });
        let copies = fallible::try_collect(copies)?;
        Ok(Self::new(self.store_name(), self.settings().clone(), copies))
    }

    /// Returns the snapshot of a store that has the rows of several stores: the inverse of
    /// [`Snapshot::slice_rows`]. `keys` has each key with the indices of the snapshots that have
    /// its rows, in order. The settings are those of the first snapshot.
    ///
    /// # Errors
    /// - [`Error::KeyNotFound`] if one of these snapshots does not have the key.
    /// - [`Error::InvalidArgument`] if there is no snapshot, or the states of a key do not add up
    ///   to its value.
    /// - [`Error::SpecMismatch`] if the parts of a key differ in more than the number of rows.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn concatenate(snapshots: &[Self], keys: &[(Key, Vec<usize>)]) -> Result<Self> {
        let first = snapshots.first().ok_or_else(|| Error::invalid("no snapshots to join"))?;
        // The states of the parts belong to different runs of one optimizer.
        let running = first.optimizer().cloned().map(ActiveOptimizer::begin);
        let snapshots = fallible::try_collect(snapshots.iter().map(Self::held))?;
        let mut copies = fallible::with_capacity(keys.len())?;
        for (key, places) in keys {
            let parts = places.iter().map(|place| {
                let snapshot = snapshots.get(*place);
                let found = snapshot.and_then(|snapshot| Some((&**snapshot, snapshot.copy(key)?)));
                found.ok_or_else(|| Error::KeyNotFound { key: key.clone() })
            });
            let parts = fallible::try_collect(parts)?;
            copies.push(Arc::new(joined(key, &parts, running.as_ref())?));
        }
        let policy = match running {
            Some(running) => SavedPolicy::Known(Policy::Optimizer(running)),
            None => first.policy().clone(),
        };
        let settings = SavedSettings { policy, ..first.settings().clone() };
        Ok(Self::new(first.store_name(), settings, copies))
    }

    /// Returns the snapshot without its settings and states, like the snapshot of a store with the
    /// same values and no optimizer.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn values(&self) -> Result<Self> {
        let held = self.held()?;
        let copies = held.copies().iter();
        let copies = fallible::collect(copies.map(|copy| copy.with_progress(Progress::default())));
        let policy = SavedPolicy::Known(Policy::Assign);
        let settings = SavedSettings { policy, compression: None, clip_global_norm: None };
        Ok(Self::new(self.store_name(), settings, copies?))
    }

    /// Returns the snapshot with `optimizer` and its states. `parts` has the states of each key's
    /// parts in order. A key without parts keeps no state.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the parts of a key do not add up to its value.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn with_states(
        &self,
        optimizer: Optimizer,
        parts: &HashMap<Key, Vec<OptimizerState>>,
    ) -> Result<Self> {
        let running = ActiveOptimizer::begin(optimizer);
        let mut copies = fallible::copied(self.held()?.copies())?;
        for copy in &mut copies {
            let Some(parts) = parts.get(&copy.key).filter(|parts| !parts.is_empty()) else {
                continue;
            };
            let state = OptimizerState::joined(&running.optimizer, copy.value.spec(), parts)?;
            let residuals = fallible::copied(&copy.progress.residuals)?;
            *copy = copy.with_progress(Progress { run: running.run, state, residuals });
        }
        let policy = SavedPolicy::Known(Policy::Optimizer(running));
        let settings = SavedSettings { policy, ..self.settings().clone() };
        Ok(Self::new(self.store_name(), settings, copies))
    }

    /// Returns the snapshot with another store name, compression and residuals. `residuals` has
    /// an entry for each key.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn with_residuals(
        &self,
        store: &str,
        compression: Option<Compression>,
        residuals: &HashMap<Key, Vec<Tensor>>,
    ) -> Result<Self> {
        let copies = fallible::try_collect(self.held()?.copies().iter().map(|copy| {
            let left = residuals.get(&copy.key).map_or(&[][..], Vec::as_slice);
            let Progress { run, state, .. } = &copy.progress;
            let residuals = fallible::copied(left)?;
            Ok(copy.with_progress(Progress { run: *run, state: state.clone(), residuals }))
        }))?;
        let settings = SavedSettings { compression, ..self.settings().clone() };
        Ok(Self::new(store, settings, copies))
    }

    /// Returns the snapshot with another bound of the global norm.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn with_clip_global_norm(&self, clip_global_norm: Option<f64>) -> Result<Self> {
        let settings = SavedSettings { clip_global_norm, ..self.settings().clone() };
        Ok(Self::new(self.store_name(), settings, fallible::copied(self.held()?.copies())?))
    }
}

/// Returns the copy of a key with some rows of its value.
fn sliced(held: &HeldSnapshot, copy: &KeyCopy, rows: &Range<usize>) -> Result<Arc<KeyCopy>> {
    let value = copy.value.slice_rows(rows.clone())?;
    let value = match value {
        Value::Dense(value) => Value::Dense(value.compact()?),
        Value::Rows(_) => value,
    };
    let first = rows.start * row_len(value.spec().shape());
    let state = match (held.optimizer(), held.state_of(copy)) {
        (Some(optimizer), Some(state)) => Some(state.part(optimizer, first, value.spec())?),
        _ => None,
    };
    let residuals = copy
        .progress
        .residuals
        .iter()
        .map(|residual| residual.view(first, value.spec().shape().clone())?.compact());
    let residuals = fallible::try_collect(residuals)?;
    let run = if state.is_some() { copy.progress.run } else { RunId::default() };
    let progress = Progress { run, state: state.unwrap_or_default(), residuals };
    let (key, num_pushes) = (copy.key.clone(), copy.num_pushes);
    Ok(Arc::new(KeyCopy { key, value, progress, num_pushes }))
}

/// Returns the copy of a key, joined from those of its parts.
fn joined(
    key: &Key,
    parts: &[(&HeldSnapshot, &KeyCopy)],
    running: Option<&ActiveOptimizer>,
) -> Result<KeyCopy> {
    let values = fallible::collect(parts.iter().map(|(_, copy)| copy.value.clone()))?;
    let value = Value::concatenate(&values)?;
    let mut progress = Progress::default();
    let states = parts.iter().filter_map(|(snapshot, copy)| snapshot.state_of(copy));
    let states = fallible::gather(states.cloned())?;
    // If a part has no state, another one has just begun: then the state of the key starts anew.
    let is_complete = !states.is_empty() && states.len() == parts.len();
    if let Some(running) = running.filter(|_| is_complete) {
        progress.run = running.run;
        progress.state = OptimizerState::joined(&running.optimizer, value.spec(), &states)?;
    }
    let num_residuals = parts.iter().map(|(_, copy)| copy.progress.residuals.len()).min();
    for index in 0..num_residuals.unwrap_or_default() {
        let pieces = parts.iter().filter_map(|(_, copy)| copy.progress.residuals.get(index));
        let residual = match fallible::gather(pieces.cloned())?.as_slice() {
            // Scalars have no rows.
            [only] => only.clone(),
            pieces => Tensor::concatenate(pieces, 0)?,
        };
        fallible::push(&mut progress.residuals, residual)?;
    }
    let num_pushes = parts.first().map_or(0, |(_, copy)| copy.num_pushes);
    Ok(KeyCopy { key: key.clone(), value, progress, num_pushes })
}
