//! Snapshots of stores that keep each value in parts, for which a store of its own keeps the optimizer's states.

use std::collections::HashMap;
use std::sync::Arc;

use super::policy::{ActiveOptimizer, Policy, RunId};
use super::snapshot::{SavedPolicy, SavedSettings, Snapshot};
use super::table::{KeyCopy, Progress};
use crate::codec::Compression;
use crate::fallible;
use crate::optimizer::{Optimizer, OptimizerState};
use crate::rows::Value;
use crate::tensor::Tensor;
use crate::types::{Error, Key, Result, Shape, TensorSpec};

impl OptimizerState {
    /// Returns the state of a part of a weight: of the elements from one on, as many as the spec of the part has.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a part that is none, [`Error::OutOfMemory`].
    pub fn part(&self, optimizer: &Optimizer, first: usize, part: &TensorSpec) -> Result<Self> {
        let Some(outline) = self.outline() else { return Ok(Self::default()) };
        let cut = |tensor: &Tensor| tensor.view(first, part.shape().clone())?.compact();
        let mut tensors = Vec::new();
        for tensor in self.all_tensors() {
            fallible::push(&mut tensors, cut(tensor)?)?;
        }
        Ok(Self::restored(optimizer, part, outline, tensors))
    }

    /// Returns the state of a weight, given those of its parts one behind the other.
    fn joined(optimizer: &Optimizer, weight: &TensorSpec, parts: &[Self]) -> Result<Self> {
        let Some(outline) = parts.first().and_then(Self::outline) else {
            return Ok(Self::default());
        };
        let mut tensors = Vec::new();
        for index in 0..parts.first().map_or(0, |part| part.all_tensors().count()) {
            let mut pieces = fallible::with_capacity(parts.len())?;
            for piece in parts.iter().filter_map(|part| part.all_tensors().nth(index)) {
                pieces.push(piece.view(0, Shape::from([piece.num_elements()]))?);
            }
            let joined = Tensor::concatenate(&pieces, 0)?;
            if joined.num_elements() != weight.num_elements() {
                return Err(Error::invalid(format!("states of parts that are not {weight}")));
            }
            tensors.push(joined.view(0, weight.shape().clone())?);
        }
        Ok(Self::restored(optimizer, weight, outline, tensors))
    }
}

impl Snapshot {
    /// Returns the snapshot of a store that has a part of each key: of the elements from one on, as many as a shape has.
    /// `part` gives both; keys of which it gives none are left out. Residuals are no part of it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a part that is none, [`Error::OutOfMemory`].
    pub fn part(&self, part: impl Fn(&Key) -> Option<(usize, TensorSpec)>) -> Result<Self> {
        let mut copies = fallible::with_capacity(self.len())?;
        for copy in self.copies() {
            let Some((first, spec)) = part(&copy.key) else { continue };
            let value = copy.value.to_dense()?.view(first, spec.shape().clone())?.compact()?;
            let state = match (self.optimizer(), self.state_of(copy)) {
                (Some(optimizer), Some(state)) => Some(state.part(optimizer, first, &spec)?),
                _ => None,
            };
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

    /// Returns the snapshot with nothing but its values: of a store without an optimizer.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn values(&self) -> Result<Self> {
        let copies = self.copies().iter();
        let copies = fallible::collect(copies.map(|copy| copy.with_progress(Progress::default())));
        let policy = SavedPolicy::Known(Policy::Assign);
        let settings = SavedSettings { policy, compression: None, clip_global_norm: None };
        Ok(Self::new(self.store_name(), settings, copies?))
    }

    /// Returns the snapshot with an optimizer whose states are those of parts: for each key the states of its parts one
    /// behind the other, and nothing for a key without any.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for parts that are not the whole, [`Error::OutOfMemory`].
    pub fn with_states(
        &self,
        optimizer: Optimizer,
        parts: &HashMap<Key, Vec<OptimizerState>>,
    ) -> Result<Self> {
        let running = ActiveOptimizer::begin(optimizer);
        let mut copies = fallible::copied(self.copies())?;
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

    /// Returns the snapshot of a store of this name with a compression, and what it has left of each key.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn with_residuals(
        &self,
        store: &str,
        compression: Option<Compression>,
        residuals: &HashMap<Key, Vec<Tensor>>,
    ) -> Result<Self> {
        let copies = fallible::try_collect(self.copies().iter().map(|copy| {
            let left = residuals.get(&copy.key).map_or(&[][..], Vec::as_slice);
            let Progress { run, state, .. } = &copy.progress;
            let residuals = fallible::copied(left)?;
            Ok(copy.with_progress(Progress { run: *run, state: state.clone(), residuals }))
        }))?;
        let settings = SavedSettings { compression, ..self.settings().clone() };
        Ok(Self::new(store, settings, copies))
    }

    /// Returns the snapshot with another bound of the norm of a push.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn with_clip_global_norm(&self, clip_global_norm: Option<f64>) -> Result<Self> {
        let settings = SavedSettings { clip_global_norm, ..self.settings().clone() };
        Ok(Self::new(self.store_name(), settings, fallible::copied(self.copies())?))
    }

    /// Returns what compressed values of a key have not sent, by their position in the list.
    pub fn residuals(&self, key: &Key) -> &[Tensor] {
        self.copy(key).map_or(&[], |copy| &copy.progress.residuals)
    }

    /// Returns whether the store had an updater.
    pub fn has_updater(&self) -> bool {
        matches!(self.policy(), SavedPolicy::SomeUpdater | SavedPolicy::Known(Policy::Updater(_)))
    }
}
