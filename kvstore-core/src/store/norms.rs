//! Measures norms before a push changes anything: the norms that layer-wise optimizers need, and
//! the global norm that the sums are clipped to.

use super::hooks::{BlockSums, CompleteSums};
use super::key_push::{KeyPush, lost};
use super::push::{Push, take};
use super::scratch::Scratch;
use crate::backend::registry::Backends;
use crate::backend::{MeasureJob, Measured, Span};
use crate::codec::Compression;
use crate::fallible;
use crate::norm::{add_blocks, add_in_pairs, num_blocks, sum_of_rows};
use crate::rows::{RowSparse, Value, row_len};
use crate::tensor::Tensor;
use crate::types::{BinaryOp, DType, Error, Key, Result, Scalar};

/// Is added to the norm before the division, as in Gluon's `clip_global_norm`.
const EPSILON: f64 = 1e-8;

/// The sums of squares that the steps of a push need.
#[derive(Default)]
pub(super) struct NormSums {
    /// The index of the key of each element of `sums`.
    indices: Vec<usize>,
    sums: Vec<BlockSums>,
}

impl NormSums {
    /// Reserves memory for the sums of one key. Most steps need none.
    pub(super) fn reserve(&mut self, index: usize, key: &KeyPush<'_>) -> Result<()> {
        let blocks = key.norm_sums()?;
        if !blocks.is_empty() {
            fallible::push(&mut self.indices, index)?;
            let key = key.entry().key().clone();
            fallible::push(&mut self.sums, BlockSums { key, blocks })?;
        }
        Ok(())
    }

    /// Measures the sums, and stores them in the prepared steps. If the stored values are parts,
    /// `complete` supplies the sums of the other parts.
    pub(super) fn measure(
        &mut self,
        backends: &Backends,
        keys: &mut [KeyPush<'_>],
        spans: &[Span<'_>],
        num_addends: impl Fn(&KeyPush<'_>) -> usize,
        complete: Option<&mut CompleteSums<'_>>,
    ) -> Result<()> {
        if self.sums.is_empty() {
            return Ok(());
        }
        let mut jobs = fallible::with_capacity(self.sums.len())?;
        let mut rest = spans;
        let mut sums = self.indices.iter().zip(&mut self.sums).peekable();
        for (index, key) in keys.iter().enumerate() {
            // `spans` has the addends of every key. Skips the addends of keys without norms.
            let addends = take(&mut rest, num_addends(key))?;
            if let Some((_, sums)) = sums.next_if(|(needed_by, _)| **needed_by == index) {
                jobs.push(key.measure_job(addends, &mut sums.blocks)?);
            }
        }
        backends.run(&mut jobs, |backend, jobs| backend.measure(jobs))?;
        drop(jobs);
        if let Some(complete) = complete {
            complete(&mut self.sums)?;
        }
        for (index, sums) in self.indices.iter().zip(&self.sums) {
            keys.get_mut(*index).ok_or_else(lost)?.set_norms(&sums.blocks)?;
        }
        Ok(())
    }
}

impl Push<'_> {
    /// Scales the sums so that the norm over the sums of all keys is at most `bound`.
    ///
    /// Returns the values that replace the values of the call, or `None` if the norm is already
    /// small enough. The first value of each key is then its scaled sum. Row-sparse values
    /// must be summed before.
    ///
    /// A norm that is NaN or infinite does not clip. This includes a norm above 1.3e154, because
    /// its square is infinite in `f64`.
    pub(super) fn clipped(
        &mut self,
        bound: f64,
        values: &[Value],
        scratch: &mut Scratch,
    ) -> Result<Option<Vec<Value>>> {
        let norm = self.global_norm()?;
        let factor = bound / (norm + EPSILON);
        if !norm.is_finite() || factor >= 1.0 {
            return Ok(None);
        }
        let mut clipped = fallible::copied(values)?;
        let sums = self.sum(scratch)?;
        for (key, sum) in self.keys.iter_mut().zip(sums) {
            let scaled = key.in_form_of_first(scaled(sum, factor)?)?;
            let place = key.positions().next().and_then(|place| clipped.get_mut(place));
            *place.ok_or_else(lost)? = scaled;
            key.keep_first();
        }
        Ok(Some(clipped))
    }

    /// Returns the Euclidean norm over the sums of all keys, in the order of initialisation. Rows
    /// that a value does not contain count as zeros, so the norm has the same bits as for the
    /// dense values.
    fn global_norm(&self) -> Result<f64> {
        let mut spans = fallible::with_capacity(self.num_values)?;
        spans.extend(self.keys.iter().flat_map(KeyPush::spans));
        let mut sums = fallible::with_capacity(self.keys.len())?;
        for key in &self.keys {
            let value = key.first()?;
            check_clipped_dtype(key.entry().key(), value.spec().dtype())?;
            let num_blocks = match value {
                Value::Dense(value) => num_blocks(value.num_elements()),
                Value::Rows(_) => 1,
            };
            sums.push(fallible::filled([0.0; 2], num_blocks)?);
        }
        let mut jobs = fallible::with_capacity(self.keys.len())?;
        let mut rest = spans.as_slice();
        for (key, sums) in self.keys.iter().zip(&mut sums) {
            let addends = take(&mut rest, key.len())?;
            // The host adds the squares of row-sparse values: see `sum_of_squares`.
            match key.first()? {
                Value::Dense(value) => {
                    let (device, dtype) = (value.device(), value.dtype());
                    let measured = Measured::Gradient;
                    jobs.push(MeasureJob { measured, device, dtype, addends, sums });
                }
                Value::Rows(rows) => sums.fill([sum_of_squares(rows)?, 0.0]),
            }
        }
        self.backends.run(&mut jobs, |backend, jobs| backend.measure(jobs))?;
        drop(jobs);
        let mut totals = fallible::with_capacity(self.keys.len())?;
        for sums in &sums {
            totals.push(add_blocks(sums)?[0]);
        }
        Ok(add_in_pairs(&mut totals).sqrt())
    }
}

/// Returns the sum times a factor. Half floats are scaled in `f32` and rounded once, because the
/// factor may be too small for a half float.
fn scaled(sum: Tensor, factor: f64) -> Result<Tensor> {
    let dtype = sum.dtype();
    let mut wide = sum.cast(dtype.arithmetic().unwrap_or(dtype))?;
    // Otherwise the product could not be written in place.
    drop(sum);
    wide.binary_scalar_assign(BinaryOp::Mul, Scalar::Float(factor))?;
    wide.cast(dtype)
}

/// Returns the sum of the squares of the rows. The host computes it, because it must add in the
/// order of the dense value, which differs from the order in memory.
fn sum_of_squares(rows: &RowSparse) -> Result<f64> {
    let numbers = rows.rows().read_as::<f64>()?;
    let num_elements = rows.shape().num_elements();
    Ok(sum_of_rows(rows.indices(), &numbers, row_len(rows.shape()), num_elements))
}

/// Checks the bound of [`KvStore::set_clip_global_norm`](crate::KvStore::set_clip_global_norm) and
/// that the store does not compress at the same time.
///
/// # Errors
/// - [`Error::InvalidArgument`] if the bound is not a finite number above 0.
/// - [`Error::InvalidArgument`] if there are both a bound and a compression.
pub fn check_clip(compression: Option<&Compression>, clip_global_norm: Option<f64>) -> Result<()> {
    let Some(bound) = clip_global_norm else { return Ok(()) };
    if !bound.is_finite() || bound <= 0.0 {
        return Err(Error::invalid(format!(
            "clip_global_norm: expected a finite number above 0, found {bound}"
        )));
    }
    match compression {
        Some(compression) => Err(Error::invalid(format!(
            "clip_global_norm {bound} and compression {}: expected one of them",
            compression.name()
        ))),
        None => Ok(()),
    }
}

/// Checks that the values of a key can be clipped.
///
/// # Errors
/// - [`Error::InvalidArgument`] if the dtype is an integer dtype.
pub fn check_clipped_dtype(key: &Key, dtype: DType) -> Result<()> {
    if dtype.is_float() {
        return Ok(());
    }
    let text = format!("key `{key}`: clip_global_norm needs floating-point values, not {dtype}");
    Err(Error::invalid(text))
}
