//! Sums of a batch: which kernel of `kernels/sum.cu` runs them. The jobs are those of [`fan`](super::fan).

use kvstore_core::DType;

/// Returns the kernel of a dtype.
pub fn kernel(dtype: DType) -> String {
    format!("kv_sum_{}", suffix(dtype))
}

/// Returns what the names of kernels that sum end in: a float's name, or the bits of an integer. Integers wrap, so their
/// sign does not count.
pub(crate) fn suffix(dtype: DType) -> String {
    if dtype.is_float() { dtype.to_string() } else { (8 * dtype.size()).to_string() }
}
