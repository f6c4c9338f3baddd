//! The names of the kernels in `kernels/sum.cu`. Their jobs are in [`fan`](super::fan).

use kvstore_core::DType;

/// Returns the name of the kernel for a dtype.
pub fn kernel(dtype: DType) -> String {
    format!("kv_sum_{}", suffix(dtype))
}

/// Returns the suffix in the names of kernels that sum: the name of a floating-point dtype, or the
/// number of bits of an integer dtype. Sums of integers wrap, so their sign does not matter.
pub(crate) fn suffix(dtype: DType) -> String {
    if dtype.is_float() { dtype.to_string() } else { (8 * dtype.size()).to_string() }
}
