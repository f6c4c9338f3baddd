//! An optimizer's step outside of any store.

use kvstore_core::{Key, NDArray, Optimizer, OptimizerState, Result, RowSparse};

/// Changes `weight` by one step of `optimizer`, which keeps `state` for it.
///
/// The key is what multipliers and the noise of some optimizers go by; the state is that of
/// [`Optimizer::create_state`] for this weight. A weight of half floats is what the state's own copy
/// in `f32` rounds to: what was written into it meanwhile is lost.
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
/// [`SpecMismatch`](crate::Error::SpecMismatch) when the gradient has not the weight's shape and
/// dtype or the state is that of another weight,
/// [`InvalidArgument`](crate::Error::InvalidArgument) for weights of integers and for a state of another
/// optimizer; the weight is then as it was.
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
/// Those of [`update`].
pub fn update_rows(
    optimizer: &Optimizer,
    key: &Key,
    weight: &NDArray,
    gradient: &RowSparse,
    state: &mut OptimizerState,
) -> Result<()> {
    optimizer.update_array(key, weight, &gradient.clone().into(), state)
}
