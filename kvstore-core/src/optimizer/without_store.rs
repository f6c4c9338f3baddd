//! Optimizer steps outside any store: with row-sparse gradients, and on arrays.

use std::slice::from_ref;

use super::{Optimizer, OptimizerState, Pending};
use crate::ndarray::NDArray;
use crate::rows::{RowPlan, RowSparse, Value};
use crate::tensor::Tensor;
use crate::types::{Error, Key, Result};

impl Optimizer {
    /// Updates a weight with a row-sparse gradient, outside any store.
    ///
    /// Like a push, a lazy optimizer changes only the gradient's rows of weight and state. Other
    /// optimizers convert the gradient to dense. Gradient and state may be on other devices. The
    /// state moves to the weight's device.
    ///
    /// ```
    /// use kvstore_core::{Backends, CpuBackend, Device, Key, Optimizer, RowSparse, Tensor};
    /// let backends = Backends::new(vec![CpuBackend::new()]);
    /// let tensor = |shape: [usize; 2], x: &[f32]| {
    ///     Tensor::from_slice(&backends, Device::cpu(0), shape, x)
    /// };
    /// let sgd = Optimizer::sgd().with("learning_rate", 0.5)?;
    /// let mut weight = tensor([3, 1], &[1.0; 3])?;
    /// let gradient = RowSparse::new([3, 1], vec![1], tensor([1, 1], &[1.0])?)?;
    /// let mut state = sgd.create_state(&weight)?;
    /// sgd.update_rows(&Key::new("w")?, &mut weight, &gradient, &mut state)?;
    /// assert_eq!(weight.to_vec::<f32>()?, [1.0, 0.5, 1.0]);
    /// # Ok::<(), kvstore_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// - The errors of [`Optimizer::update`].
    pub fn update_rows(
        &self,
        key: &Key,
        weight: &mut Tensor,
        gradient: &RowSparse,
        state: &mut OptimizerState,
    ) -> Result<()> {
        if gradient.spec() != weight.spec() {
            return Err(Error::spec_mismatch(key, weight.spec(), gradient.spec()));
        }
        if !self.is_lazy() {
            return self.update(key, weight, &[gradient.to_dense()?], state);
        }
        Self::check_dtype(key, weight.dtype())?;
        state.check(self.name(), key, weight.spec())?;
        let backend = weight.backend()?.clone();
        let plan = RowPlan::union(&[gradient], &*backend)?;
        let rows = gradient.rows().to_device_of(weight)?;
        let spans = [rows.span()];
        state.move_beside(weight)?;
        let mut pending = Pending::new(self, key, weight, Some(state))?;
        if let Some(job) = pending.row_job(weight, state, &plan, &spans)? {
            backend.update_rows(&mut [job])?;
        }
        pending.settle(weight, state);
        Ok(())
    }

    /// Updates an array in place with a dense or row-sparse gradient, outside any store.
    ///
    /// Other threads that use the array wait until the update is done. If the update fails, the
    /// array does not change.
    ///
    /// # Errors
    /// - The errors of [`Optimizer::update`].
    pub fn update_array(
        &self,
        key: &Key,
        weight: &NDArray,
        gradient: &Value,
        state: &mut OptimizerState,
    ) -> Result<()> {
        weight.modify(|weight| match gradient {
            Value::Dense(gradient) => self.update(key, weight, from_ref(gradient), state),
            Value::Rows(gradient) => self.update_rows(key, weight, gradient, state),
        })
    }
}
