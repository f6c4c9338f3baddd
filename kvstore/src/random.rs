//! Arrays of random numbers, from one sequence per process.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use kvstore_core::process::PerProcess;
use kvstore_core::{DType, Device, Distribution, Generator, NDArray, Result, Shape, TensorSpec};

use crate::runtime::backends;

static GENERATOR: PerProcess<Mutex<Generator>> = PerProcess::new();

/// Restarts the sequence. After the same seed, the same calls give the same numbers.
///
/// ```
/// use kvstore::{DType, Device, random};
/// let roll = || random::uniform(0.0, 1.0, [4], DType::F32, Device::cpu(0));
/// random::seed(7);
/// let first = roll()?.to_vec::<f32>()?;
/// random::seed(7);
/// assert_eq!(roll()?.to_vec::<f32>()?, first);
/// # Ok::<(), kvstore::Error>(())
/// ```
pub fn seed(seed: u64) {
    *generator() = Generator::new(seed);
}

/// Returns an array of uniformly distributed numbers from `low` to `high`.
///
/// # Errors
/// - [`InvalidArgument`](crate::Error::InvalidArgument) if `high` is below `low`.
/// - [`InvalidArgument`](crate::Error::InvalidArgument) if `low` or `high` is not finite.
/// - [`InvalidArgument`](crate::Error::InvalidArgument) if the dtype is an integer type.
/// - The errors of [`full`](crate::full).
pub fn uniform(
    low: f64,
    high: f64,
    shape: impl Into<Shape>,
    dtype: DType,
    device: Device,
) -> Result<NDArray> {
    array(Distribution::Uniform { low, high }, shape, dtype, device)
}

/// Returns an array of normally distributed numbers.
///
/// # Errors
/// - [`InvalidArgument`](crate::Error::InvalidArgument) if the standard deviation is negative.
/// - [`InvalidArgument`](crate::Error::InvalidArgument) if `mean` or `deviation` is not finite.
/// - [`InvalidArgument`](crate::Error::InvalidArgument) if the dtype is an integer type.
/// - The errors of [`full`](crate::full).
pub fn normal(
    mean: f64,
    deviation: f64,
    shape: impl Into<Shape>,
    dtype: DType,
    device: Device,
) -> Result<NDArray> {
    array(Distribution::Normal { mean, deviation }, shape, dtype, device)
}

/// Returns an array of numbers with this distribution.
///
/// # Errors
/// - The errors of [`uniform`] and [`normal`].
pub fn array(
    distribution: Distribution,
    shape: impl Into<Shape>,
    dtype: DType,
    device: Device,
) -> Result<NDArray> {
    let mut generator = generator();
    let spec = TensorSpec::new(shape, dtype);
    generator.tensor(backends(), device, spec, distribution).map(NDArray::new)
}

/// Returns the generator of this process. A forked child continues the sequence of its parent,
/// unless another thread held the generator at the fork.
fn generator() -> MutexGuard<'static, Generator> {
    let made = |inherited: Option<&Mutex<Generator>>| {
        let parents = inherited.and_then(|parents| match parents.try_lock() {
            Ok(generator) => Some(generator),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        });
        Mutex::new(parents.map_or_else(|| Generator::new(0), |generator| generator.clone()))
    };
    GENERATOR.get_or_init(made).lock().unwrap_or_else(PoisonError::into_inner)
}
