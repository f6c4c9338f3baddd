//! The state of one key as bytes: a file of states with one key in it.

use std::sync::Arc;

use super::OptimizerStates;
use crate::backends::Backends;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::fallible;
use crate::key::Key;
use crate::optimizer::{Optimizer, OptimizerState};
use crate::policy::{Policy, Running};
use crate::row_sparse::RowSparse;
use crate::shape::TensorSpec;
use crate::snapshot::{Rule, Snapshot};
use crate::table::{KeyCopy, Progress};
use crate::tensor::Tensor;
use crate::value::Value;

impl OptimizerState {
    /// Returns the state as bytes, in the format of a file of optimizer states.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a state that no optimizer made.
    pub fn to_bytes(&self, backends: &Backends) -> Result<Vec<u8>> {
        let unmade = || Error::invalid("a state that no optimizer made has no bytes");
        let name = self.optimizer_name().ok_or_else(unmade)?;
        let weight = self.weight().ok_or_else(unmade)?;
        let running = Running::begin(Optimizer::from_options(name, &[])?);
        let copy = KeyCopy {
            key: Key::default(),
            value: stand_in(backends, weight)?,
            progress: Progress { run: running.run, state: self.clone(), residuals: Vec::new() },
            num_pushes: self.num_updates(),
        };
        let rule = Rule::Known(Policy::Optimizer(running));
        let snapshot = Snapshot::new("local", rule, None, Vec::from([Arc::new(copy)]));
        snapshot.optimizer_states_to_bytes(false)
    }

    /// Returns the state that [`OptimizerState::to_bytes`] made bytes of, on the host.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for damaged bytes and for the states of several keys.
    pub fn from_bytes(backends: &Backends, bytes: &[u8]) -> Result<Self> {
        let mut states = OptimizerStates::from_bytes(backends, bytes)?.states.into_values();
        match (states.next(), states.next()) {
            (Some(state), None) => Ok(state),
            _ => Err(Error::Corrupt {
                subject: "an optimizer state".to_owned(),
                reason: "it does not have one key".to_owned(),
            }),
        }
    }
}

/// Returns a value of this spec that takes no memory where it can: a file of states has no values.
fn stand_in(backends: &Backends, spec: &TensorSpec) -> Result<Value> {
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
