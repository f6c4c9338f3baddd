//! Optimizer steps without a store.

use kvstore_core::{Key, NDArray, Optimizer, OptimizerState, Result, RowSparse};

/// Updates `weight` and `state` by one step of `optimizer`.
///
/// `state` comes from [`Optimizer::create_state`] for this weight. The key selects multipliers and
/// the noise of some optimizers. The state of a half-precision weight contains a copy in `f32`, and
/// the step sets the weight to the rounded copy, so other changes to the weight are lost.
///
/// ```
/// use kvstore::{Device, Key, Optimizer, array, update};
/// let optimizer = Optimizer::sgd().with("learning_rate", 0.5)?;
/// let weight = array(&[1f32, 2.0], [2], Device::cpu(0))?;
/// let gradient = array(&[2f32, 2.0], [2], Device::cpu(0))?;
/// let mut state = optimizer.create_state(&weight.tensor())?;
/// update(&optimizer, &Key::new("w")?, &weight, &gradient, &mut state)?;
/// assert_eq!(weight.to_vec::<f32>()?, [0.0, 1.0]);
/// # Ok::<(), kvstore::Error>(())
/// ```
///
/// # Errors
/// A failed call changes nothing.
///
/// - [`SpecMismatch`](crate::Error::SpecMismatch) if the gradient's shape or dtype differs from the
///   weight's.
/// - [`SpecMismatch`](crate::Error::SpecMismatch) if the state does not fit the weight.
/// - [`InvalidArgument`](crate::Error::InvalidArgument) if the weight has an integer dtype.
/// - [`InvalidArgument`](crate::Error::InvalidArgument) if the state belongs to another optimizer.
pub fn update(
    optimizer: &Optimizer,
    key: &Key,
    weight: &NDArray,
    gradient: &NDArray,
    state: &mut OptimizerState,
) -> Result<()> {
    optimizer.update_array(key, weight, &gradient.tensor().into(), state)
}

/// Updates `weight` with a row-sparse gradient, as [`update`] does with a dense one.
///
/// A lazy optimizer (`lazy_update`) changes only the rows of the gradient, in weight and state.
/// Other optimizers treat absent rows as zeros.
///
/// ```
/// use kvstore::{Device, Key, Optimizer, RowSparse, array, update_rows};
/// let optimizer = Optimizer::sgd().with("learning_rate", 0.5)?.with("wd", 0.5)?;
/// let weight = array(&[1f32, 2.0], [2, 1], Device::cpu(0))?;
/// let row = array(&[2f32], [1, 1], Device::cpu(0))?.tensor();
/// let gradient = RowSparse::new([2, 1], vec![1], row)?;
/// let mut state = optimizer.create_state(&weight.tensor())?;
/// update_rows(&optimizer, &Key::new("w")?, &weight, &gradient, &mut state)?;
/// assert_eq!(weight.to_vec::<f32>()?, [1.0, 0.5]);
/// # Ok::<(), kvstore::Error>(())
/// ```
///
/// # Errors
/// - The errors of [`update`].
pub fn update_rows(
    optimizer: &Optimizer,
    key: &Key,
    weight: &NDArray,
    gradient: &RowSparse,
    state: &mut OptimizerState,
) -> Result<()> {
    optimizer.update_array(key, weight, &gradient.clone().into(), state)
}
