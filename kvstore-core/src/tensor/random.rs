//! [`Generator`]: a sequence of random tensors.

use super::Tensor;
use crate::backend::registry::Backends;
use crate::noise::Distribution;
use crate::types::{Device, Error, Result, TensorSpec};

/// A sequence of random tensors. The seed determines the complete sequence.
///
/// ```
/// use kvstore_core::{Backends, CpuBackend, DType, Device, Distribution, Generator, TensorSpec};
/// let backends = Backends::new(vec![CpuBackend::new()]);
/// let spec = TensorSpec::new([3], DType::F32);
/// let dice = Distribution::Uniform { low: 1.0, high: 7.0 };
/// let first = Generator::new(7).tensor(&backends, Device::cpu(0), spec.clone(), dice)?;
/// let again = Generator::new(7).tensor(&backends, Device::cpu(0), spec, dice)?;
/// assert_eq!(first.to_vec::<f32>()?, again.to_vec::<f32>()?);
/// # Ok::<(), kvstore_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Generator {
    stream: [u32; 2],
    num_calls: u64,
}

impl Generator {
    /// Returns the sequence with this seed, from its start.
    #[allow(clippy::cast_possible_truncation, reason = "splits the number into its halves")]
    pub fn new(seed: u64) -> Self {
        Self { stream: [seed as u32, (seed >> 32) as u32], num_calls: 0 }
    }

    /// Returns the next tensor of the sequence.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the dtype is an integer dtype.
    /// - [`Error::InvalidArgument`] if the parameters of the distribution are not valid.
    /// - The errors of [`Tensor::allocate`].
    pub fn tensor(
        &mut self,
        backends: &Backends,
        device: Device,
        spec: TensorSpec,
        distribution: Distribution,
    ) -> Result<Tensor> {
        distribution.check()?;
        let dtype = spec.dtype();
        if !dtype.is_float() {
            return Err(Error::invalid(format!(
                "random numbers: expected a floating-point dtype, found {dtype}"
            )));
        }
        let mut tensor = Tensor::allocate(backends, device, spec)?;
        let (stream, call) = (self.stream, self.num_calls);
        tensor.overwrite(|backend, dst| backend.random(dtype, dst, distribution, stream, call))?;
        self.num_calls += 1;
        Ok(tensor)
    }
}
