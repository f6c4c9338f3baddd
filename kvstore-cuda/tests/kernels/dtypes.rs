//! Every dtype of the core has its kernels, and the backend launches every kernel.

use std::collections::BTreeSet;

use kvstore_core::compression::Code;
use kvstore_core::{BinaryOp, DType, Distribution, UnaryOp};
use kvstore_cuda::elementwise::{
    any_zero_kernel, binary_kernel, clip_kernel, fill_kernel, unary_kernel,
};
use kvstore_cuda::plan_rows::{
    ADD_KERNEL, COUNT_KERNEL, LIST_KERNEL, LOCATE_KERNEL, MERGE_KERNEL, SCAN_KERNEL,
};
use kvstore_cuda::{
    argmax, broadcast, cast, compiled, norm, quantize, random, reduce, row_jobs, strided, sum,
    transpose, update,
};

use crate::update::rules;

/// Returns the names of the kernels that the backend launches for elements of a dtype.
fn launched(dtype: DType) -> Vec<String> {
    let mut kernels = vec![row_jobs::sum_kernel(dtype)];
    kernels.extend((1..4).map(|count| sum::kernel(dtype, sum::is_pair(dtype, count))));
    kernels.extend([fill_kernel(dtype), clip_kernel(dtype)]);
    kernels.extend(any_zero_kernel(dtype));
    kernels.extend(BinaryOp::ALL.iter().filter_map(|op| binary_kernel(*op, dtype)));
    kernels.extend(UnaryOp::ALL.iter().filter_map(|op| unary_kernel(*op, dtype)));
    kernels.extend(DType::ALL.map(|to| cast::kernel(dtype, to)));
    kernels.extend(norm::kernel(None, dtype));
    kernels.extend([reduce::blocks_kernel(dtype), reduce::kernel(dtype)]);
    kernels.extend([argmax::kernel(dtype), transpose::kernel(dtype)]);
    let uniform = Distribution::Uniform { low: 0.0, high: 1.0 };
    let normal = Distribution::Normal { mean: 0.0, deviation: 1.0 };
    kernels.extend([uniform, normal].iter().filter_map(|it| random::kernel(*it, dtype)));
    for code in [Code::OneBit, Code::TwoBit] {
        kernels.extend(quantize::quantize_kernel(code, dtype));
        kernels.extend(quantize::dequantize_kernel(code, dtype));
    }
    for rule in rules().into_iter().filter(update::has_kernel) {
        kernels.extend(update::kernel(&rule, dtype));
        kernels.extend(row_jobs::update_kernels(&rule, dtype).into_iter().flatten());
        if rule.is_layerwise() {
            kernels.extend(norm::kernel(Some(&rule), dtype));
        }
    }
    kernels
}

#[test]
fn every_dtype_has_its_kernels() {
    let mut expected: BTreeSet<_> = DType::ALL.into_iter().flat_map(launched).collect();
    // Kernels that do not depend on the dtype.
    expected.extend([row_jobs::SCATTER_KERNEL, norm::PAIR_KERNEL].map(str::to_owned));
    expected.extend([MERGE_KERNEL, COUNT_KERNEL, ADD_KERNEL].map(str::to_owned));
    expected.extend([SCAN_KERNEL, LIST_KERNEL, LOCATE_KERNEL].map(str::to_owned));
    for size in [1, 2, 4, 8] {
        expected.extend([true, false].map(|is_gather| strided::kernel(size, is_gather)));
        expected.insert(broadcast::kernel(size as u64, [size as u64]).0.to_owned());
    }
    let compiled: BTreeSet<_> = compiled::kernels().map(str::to_owned).collect();
    assert_eq!(expected, compiled);
}
