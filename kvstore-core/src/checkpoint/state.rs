//! Serializes the optimizer state of one key, in the format of a state file with a single key.

use std::sync::Arc;

use super::read::OptimizerStates;
use crate::backend::registry::Backends;
use crate::fallible;
use crate::optimizer::{Optimizer, OptimizerState};
use crate::rows::{RowSparse, Value};
use crate::store::{
    ActiveOptimizer, KeyCopy, Policy, Progress, SavedPolicy, SavedSettings, Snapshot,
};
use crate::tensor::Tensor;
use crate::types::{Device, Error, Key, Result, TensorSpec};

impl OptimizerState {
    /// Serializes the state in the format of optimizer state files.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] for a default state, because it belongs to no optimizer.
    pub fn to_bytes(&self, backends: &Backends) -> Result<Vec<u8>> {
        let text = "an empty optimizer state cannot be serialized: no optimizer has initialised it";
        let empty = || Error::invalid(text);
        let name = self.optimizer_name().ok_or_else(empty)?;
        let weight = self.weight().ok_or_else(empty)?;
        let running = ActiveOptimizer::begin(Optimizer::from_options(name, &[])?);
        let copy = KeyCopy {
            key: Key::default(),
            value: empty_value(backends, weight)?,
            progress: Progress { run: running.run, state: self.clone(), residuals: Vec::new() },
            num_pushes: self.num_updates(),
        };
        let policy = SavedPolicy::Known(Policy::Optimizer(running));
        let settings = SavedSettings { policy, compression: None, clip_global_norm: None };
        let snapshot = Snapshot::new("local", settings, Vec::from([Arc::new(copy)]));
        snapshot.optimizer_states_to_bytes(false)
    }

    /// Returns the state that [`OptimizerState::to_bytes`] serialized, in host memory.
    ///
    /// # Errors
    /// - [`Error::Corrupt`] if the bytes are damaged.
    /// - [`Error::Corrupt`] if the bytes do not contain exactly one key.
    pub fn from_bytes(backends: &Backends, bytes: &[u8]) -> Result<Self> {
        let states = OptimizerStates::from_bytes(backends, bytes)?.states;
        let num_keys = states.len();
        let mut states = states.into_values();
        match (states.next(), states.next()) {
            (Some(state), None) => Ok(state),
            _ => Err(Error::Corrupt {
                subject: "an optimizer state".to_owned(),
                reason: format!("expected the state of one key, found {num_keys}"),
            }),
        }
    }
}

/// Returns a value of this spec without rows, because a state file stores no values. For a scalar,
/// which has no rows, allocates a dense value.
fn empty_value(backends: &Backends, spec: &TensorSpec) -> Result<Value> {
    let device = Device::default();
    if spec.shape().rank() == 0 {
        return Tensor::allocate(backends, device, spec.clone()).map(Value::Dense);
    }
    let mut dims = fallible::copied(spec.shape().dims())?;
    if let Some(num_rows) = dims.first_mut() {
        *num_rows = 0;
    }
    let rows = Tensor::allocate(backends, device, TensorSpec::new(dims, spec.dtype()))?;
    RowSparse::new(spec.shape().clone(), Vec::new(), rows).map(Value::Rows)
}
