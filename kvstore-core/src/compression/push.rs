//! Compresses the values of a push to codes, sums the codes, and updates the residuals: what
//! compression has not sent yet.

use std::sync::Arc;

use crate::backend::registry::{Backends, error_after_change};
use crate::backend::{DequantizeJob, QuantizeJob, Storage};
use crate::codec::{Compression, Quantizer};
use crate::fallible;
use crate::tensor::Tensor;
use crate::types::{DType, Device, Error, Result, Scalar, TensorSpec};

/// The values of one key.
#[derive(Debug)]
pub(crate) struct CompressedPush<'a> {
    quantizer: Quantizer,
    values: Vec<&'a Tensor>,
    residuals: &'a mut Vec<Tensor>,
    /// New residuals, if the push has more values than `residuals`.
    added: Vec<Tensor>,
    /// For each residual, new memory if its memory is shared.
    fresh: Vec<Option<Arc<dyn Storage>>>,
    codes: Vec<Tensor>,
    sum: Tensor,
}

impl<'a> CompressedPush<'a> {
    /// Prepares the values of a key. They are on `device`, where they will be summed.
    ///
    /// `residuals` has one residual per value of the largest push so far. [`compress`] changes them
    /// in place, unless their memory is shared.
    pub(crate) fn new(
        compression: &Compression,
        backends: &Backends,
        device: Device,
        values: Vec<&'a Tensor>,
        residuals: &'a mut Vec<Tensor>,
    ) -> Result<Self> {
        let first = values.first().ok_or_else(lost)?;
        let quantizer = compression.of(first.dtype())?;
        let arithmetic = first.spec().with_dtype(first.dtype().arithmetic().ok_or_else(lost)?);
        for residual in residuals.iter_mut() {
            residual.move_to(backends, device)?;
        }
        let zeros = || Tensor::full(backends, device, arithmetic.clone(), Scalar::Float(0.0));
        let mut added = fallible::try_collect((residuals.len()..values.len()).map(|_| zeros()))?;
        let bytes = quantizer.code.num_bytes(first.num_elements());
        // Reserved here, because `settle` must not fail.
        fallible::reserve(residuals, added.len())?;
        let mut fresh = fallible::with_capacity(values.len())?;
        let mut codes = fallible::with_capacity(values.len())?;
        for residual in residuals.iter_mut().chain(&mut added).take(values.len()) {
            fresh.push(residual.fresh_if_shared()?);
            codes.push(Tensor::allocate(backends, device, TensorSpec::new([bytes], DType::U8))?);
        }
        let sum = Tensor::allocate(backends, device, first.spec().clone())?;
        Ok(Self { quantizer, values, residuals, added, fresh, codes, sum })
    }

    fn quantize_jobs(&mut self) -> impl Iterator<Item = Result<QuantizeJob<'_>>> {
        let quantizer = self.quantizer;
        let residuals = self.residuals.iter_mut().chain(&mut self.added);
        let targets = residuals.zip(&mut self.fresh).zip(&mut self.codes);
        self.values.iter().zip(targets).map(move |(value, ((residual, fresh), codes))| {
            Ok(QuantizeJob {
                quantizer,
                device: residual.device(),
                dtype: value.dtype(),
                gradient: value.span(),
                residual: residual.in_out(fresh)?,
                codes: codes.span_mut()?,
            })
        })
    }

    /// Commits the new residuals.
    #[expect(clippy::disallowed_methods, reason = "`new` reserves the capacity")]
    fn settle(&mut self) {
        self.residuals.append(&mut self.added);
        for (residual, fresh) in self.residuals.iter_mut().zip(&mut self.fresh) {
            residual.settle(fresh.take());
        }
    }

    /// Returns the sum.
    pub(crate) fn into_sum(self) -> Tensor {
        self.sum
    }
}

/// Compresses and sums the values of all keys in one batch.
pub(crate) fn compress(backends: &Backends, keys: &mut [CompressedPush<'_>]) -> Result<()> {
    // Reserves memory before any residual changes, because a later failure would lose gradients.
    let num_codes = keys.iter().map(|key| key.codes.len()).sum();
    let mut quantize = fallible::with_capacity(num_codes)?;
    let mut codes = fallible::with_capacity(num_codes)?;
    let mut sums = fallible::with_capacity(keys.len())?;
    let mut dequantize = fallible::with_capacity(keys.len())?;
    for key in keys.iter_mut() {
        for job in key.quantize_jobs() {
            quantize.push(job?);
        }
    }
    backends.run(&mut quantize, |backend, jobs| backend.quantize(jobs))?;
    drop(quantize);
    for key in keys {
        key.settle();
        codes.extend(key.codes.iter().map(Tensor::span));
        sums.push((key.quantizer, key.codes.len(), &mut key.sum));
    }
    let mut rest = codes.as_slice();
    for (quantizer, num_codes, sum) in sums {
        let (codes, others) = rest.split_at_checked(num_codes).ok_or_else(lost)?;
        rest = others;
        let (device, dtype) = (sum.device(), sum.dtype());
        dequantize.push(DequantizeJob { quantizer, device, dtype, codes, dst: sum.span_mut()? });
    }
    let result = backends.run(&mut dequantize, |backend, jobs| backend.dequantize(jobs));
    result.map_err(|error| error_after_change(error, true))
}

fn lost() -> Error {
    Error::Internal("a compressed push has lost its values".to_owned())
}
