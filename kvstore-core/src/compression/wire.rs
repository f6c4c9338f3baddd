//! Encodes values to codes that one process sends and another decodes.

use crate::backend::registry::Backends;
use crate::backend::{DequantizeJob, QuantizeJob};
use crate::codec::Compression;
use crate::tensor::Tensor;
use crate::types::{DType, Error, Result, Scalar, TensorSpec};

impl Compression {
    /// Compresses a value to [`Code::num_bytes`](crate::compression::Code::num_bytes) bytes of
    /// codes on its device.
    ///
    /// `residual` is what earlier calls have not sent yet, or `None` for zeros. The call replaces
    /// it by the new residual. A failed call loses nothing.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the value has an integer dtype, or a dtype that cannot
    ///   represent the threshold.
    /// - [`Error::SpecMismatch`] if the residual does not have the value's shape, or does not have
    ///   the dtype that it is computed in.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn encode(
        &self,
        backends: &Backends,
        value: &Tensor,
        residual: &mut Option<Tensor>,
    ) -> Result<Tensor> {
        let quantizer = self.of(value.dtype())?;
        let arithmetic = value.dtype().arithmetic().unwrap_or(value.dtype());
        let (device, spec) = (value.device(), value.spec().with_dtype(arithmetic));
        if let Some(left) = residual.as_ref().filter(|left| *left.spec() != spec) {
            return Err(Error::operand_mismatch("residual", &spec, left.spec()));
        }
        let num_bytes = quantizer.code.num_bytes(value.num_elements());
        let mut codes =
            Tensor::allocate(backends, device, TensorSpec::new([num_bytes], DType::U8))?;
        // The residual stays in its place, so that a failure does not lose it.
        let left = match residual {
            Some(left) => left,
            None => residual.insert(Tensor::full(backends, device, spec, Scalar::Float(0.0))?),
        };
        left.move_to(backends, device)?;
        let mut fresh = left.fresh_if_shared()?;
        let mut jobs = [QuantizeJob {
            quantizer,
            device,
            dtype: value.dtype(),
            gradient: value.span(),
            residual: left.in_out(&mut fresh)?,
            codes: codes.span_mut()?,
        }];
        backends.run(&mut jobs, |backend, jobs| backend.quantize(jobs))?;
        left.settle(fresh);
        Ok(codes)
    }

    /// Returns the value of codes that [`Compression::encode`] returned for a value of this spec.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if `spec` has an integer dtype, or a dtype that cannot
    ///   represent the threshold.
    /// - [`Error::LengthMismatch`] if the number of codes does not match `spec`.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn decode(&self, backends: &Backends, codes: &Tensor, spec: TensorSpec) -> Result<Tensor> {
        let quantizer = self.of(spec.dtype())?;
        let expected = quantizer.code.num_bytes(spec.num_elements());
        if codes.num_bytes() != expected {
            let what = format!("bytes of codes for {spec}");
            return Err(Error::LengthMismatch { what, expected, found: codes.num_bytes() });
        }
        let (device, dtype) = (codes.device(), spec.dtype());
        let mut value = Tensor::allocate(backends, device, spec)?;
        let spans = [codes.span()];
        let dst = value.span_mut()?;
        let mut jobs = [DequantizeJob { quantizer, device, dtype, codes: &spans, dst }];
        backends.run(&mut jobs, |backend, jobs| backend.dequantize(jobs))?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::CpuBackend;
    use crate::types::Device;

    #[test]
    fn codes_and_residuals_match_those_of_a_store() {
        let backends = Backends::new(vec![CpuBackend::new()]);
        let tensor = |elements: &[f32]| {
            Tensor::from_slice(&backends, Device::cpu(0), [elements.len()], elements).unwrap()
        };
        let compression = Compression::new("2bit", 0.5).unwrap();
        let value = tensor(&[-0.49, -0.3, 0.1, 0.2, 0.26, 0.49, 0.5]);
        let mut residual = None;
        let mut push = || {
            let codes = compression.encode(&backends, &value, &mut residual).unwrap();
            let value = compression.decode(&backends, &codes, value.spec().clone()).unwrap();
            value.to_vec::<f32>().unwrap()
        };
        // An element sends the threshold when its residual has reached it, and keeps the rest.
        assert_eq!(push(), [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5]);
        assert_eq!(push(), [-0.5, -0.5, 0.0, 0.0, 0.5, 0.5, 0.5]);
        assert_eq!(push(), [-0.5, 0.0, 0.0, 0.5, 0.0, 0.5, 0.5]);

        let error = compression.encode(&backends, &tensor(&[1.0]), &mut residual).unwrap_err();
        assert!(error.to_string().contains("residual"), "{error}");
        let codes = compression.encode(&backends, &value, &mut residual).unwrap();
        let spec = TensorSpec::new([70], DType::F32);
        let error = compression.decode(&backends, &codes, spec).unwrap_err();
        assert!(error.to_string().contains("codes for"), "{error}");
    }
}
