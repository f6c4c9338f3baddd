//! The names of the kernels in `kernels/sum.cu`. Their jobs are in [`fan`](super::fan).

use kvstore_core::DType;

/// Returns whether sums of this number of values have a faster kernel, which cannot add others.
pub fn is_pair(dtype: DType, num_addends: usize) -> bool {
    num_addends == 2 && matches!(dtype, DType::F16 | DType::Bf16)
}

/// Returns the name of the kernel for a dtype.
pub fn kernel(dtype: DType, is_pair: bool) -> String {
    let name = if is_pair { "pair_sum" } else { "sum" };
    format!("kv_{name}_{}", suffix(dtype))
}

/// Returns the suffix in the names of kernels that sum: the name of a floating-point dtype, or the
/// number of bits of an integer dtype. Sums of integers wrap, so their sign does not matter.
pub(crate) fn suffix(dtype: DType) -> String {
    if dtype.is_float() { dtype.to_string() } else { (8 * dtype.size()).to_string() }
}
