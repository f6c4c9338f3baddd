//! Sums of a batch: which kernel of `kernels/sum.cu` runs them. The jobs are those of [`fan`](super::fan).

use kvstore_core::DType;

/// Returns the kernel of a dtype. Integers wrap, so their sign does not count.
pub fn kernel(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "kv_sum_f32",
        DType::F64 => "kv_sum_f64",
        DType::F16 => "kv_sum_f16",
        DType::Bf16 => "kv_sum_bf16",
        DType::U8 | DType::I8 => "kv_sum_8",
        DType::I32 => "kv_sum_32",
        DType::I64 => "kv_sum_64",
    }
}
