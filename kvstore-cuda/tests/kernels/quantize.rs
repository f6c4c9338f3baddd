//! Compression: every code and dtype, any lengths and alignments, residuals in place or not.
#![expect(unsafe_code, reason = "launches kernels on memory of this process")]

use std::mem::offset_of;

use kvstore_core::backend;
use kvstore_core::compression::{Code, Quantizer};
use kvstore_core::storage::InOut;
use kvstore_core::{DType, Device};
use kvstore_cuda::batch::Batch;
use kvstore_cuda::quantize::{DequantizeJob, QuantizeJob, dequantize_kernel, quantize_kernel};
use kvstore_cuda::update::FromTo;
use proptest::prelude::*;

use crate::device::{Memory, launch, layout};
use crate::host::{Block, assert_same, backend, bytes, floats, lengths, numbers};

const THRESHOLD: f64 = 0.5;

#[test]
fn structs_have_the_same_layout_as_in_c() {
    let expected = [
        size_of::<QuantizeJob>(),
        offset_of!(QuantizeJob, len),
        offset_of!(QuantizeJob, gradient),
        offset_of!(QuantizeJob, residual_from),
        offset_of!(QuantizeJob, residual_to),
        offset_of!(QuantizeJob, codes),
        offset_of!(QuantizeJob, threshold),
        offset_of!(QuantizeJob, is_aligned),
        size_of::<DequantizeJob>(),
        offset_of!(DequantizeJob, len),
        offset_of!(DequantizeJob, dst),
        offset_of!(DequantizeJob, threshold),
        offset_of!(DequantizeJob, first_addend),
        offset_of!(DequantizeJob, num_addends),
        offset_of!(DequantizeJob, is_aligned),
    ];
    assert_eq!(layout::<15>("kv_quantize_layout"), expected.map(|number| number as u64));
}

/// One value of a batch, or one sum.
#[derive(Clone, Debug)]
struct Case {
    len: usize,
    num_codes: usize,
    /// The offset of each range from an aligned address, in elements.
    beyond: usize,
    is_in_place: bool,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Vec<Case>> {
    let len = prop_oneof![1_usize..70, lengths().prop_map(|len| len.max(1))];
    let case =
        (len, 1_usize..10, prop_oneof![Just(0_usize), 0_usize..5], any::<bool>(), any::<u64>());
    let case = case.prop_map(|(len, num_codes, beyond, is_in_place, seed)| Case {
        len,
        num_codes,
        beyond,
        is_in_place,
        seed,
    });
    prop::collection::vec(case, 1..4)
}

/// Returns numbers. Some of them are the threshold or its negative, where codes change.
fn edged(dtype: DType, len: usize, seed: u64) -> Vec<u8> {
    let mut all = numbers(dtype, len, seed);
    for (index, element) in all.chunks_exact_mut(dtype.size()).enumerate() {
        let edge = match seed.wrapping_add(index as u64) % 5 {
            0 => THRESHOLD,
            1 => -THRESHOLD,
            2 => 0.0,
            _ => continue,
        };
        element.copy_from_slice(&crate::host::number(dtype, edge));
    }
    all
}

fn check_quantize(quantizer: Quantizer, dtype: DType, cases: &[Case], num_blocks: u32, order: u32) {
    let arithmetic = dtype.arithmetic().unwrap();
    let mut batch = Batch::<QuantizeJob>::default();
    let mut memory = Vec::new();
    for case in cases {
        let gradient = edged(dtype, case.len, case.seed);
        let residual = edged(arithmetic, case.len, case.seed.wrapping_add(99));
        let num_bytes = quantizer.code.num_bytes(case.len);
        let (given, mut kept) = (Block::new(&gradient), Block::new(&residual));
        let mut codes = Block::new(&vec![0xff; num_bytes]);
        let job = backend::QuantizeJob {
            quantizer,
            device: Device::cpu(0),
            dtype,
            gradient: given.span(),
            residual: InOut::InPlace(kept.span_mut()),
            codes: codes.span_mut(),
        };
        backend().quantize(&mut [job]).unwrap();
        let expected = (kept.content(), codes.content());

        let place = |dtype: DType| case.beyond * dtype.size() % 16;
        let mut from = Memory::new(&residual, place(arithmetic));
        let mut to = Memory::new(&vec![0; residual.len()], place(arithmetic));
        let mut gradient = Memory::new(&gradient, place(dtype));
        let mut codes = Memory::new(&vec![0xff; num_bytes], 4 * case.beyond % 16);
        let to_address = if case.is_in_place { from.address() } else { to.address() };
        let residual = FromTo { from: from.address(), to: to_address };
        let ranges = (gradient.address(), residual, codes.address());
        batch.push(quantizer, dtype, case.len as u64, ranges).unwrap();
        memory.push((expected, case.is_in_place, from, to, gradient, codes));
    }
    let args = batch.args(batch.jobs().as_ptr() as u64, 0);
    let kernel = quantize_kernel(quantizer.code, dtype).unwrap();
    // SAFETY: the batch was built from memory and a list that exist.
    unsafe { launch(&kernel, &args, num_blocks, order) };
    for (expected, is_in_place, mut from, mut to, mut gradient, mut codes) in memory {
        let residual = if is_in_place { from.content() } else { to.content() };
        assert_same(arithmetic, &expected.0, &residual);
        assert_eq!(expected.1, codes.content());
        gradient.content();
    }
}

fn check_sum(quantizer: Quantizer, dtype: DType, cases: &[Case], num_blocks: u32, order: u32) {
    let mut batch = Batch::<DequantizeJob>::default();
    let mut memory = Vec::new();
    for case in cases {
        let num_bytes = quantizer.code.num_bytes(case.len);
        let seed = |n: usize| case.seed.wrapping_add(31 * n as u64);
        let codes: Vec<Vec<u8>> = (0..case.num_codes).map(|n| bytes(num_bytes, seed(n))).collect();
        let given: Vec<Block> = codes.iter().map(|content| Block::new(content)).collect();
        let spans: Vec<_> = given.iter().map(Block::span).collect();
        let mut sum = Block::new(&vec![0; case.len * dtype.size()]);
        let (device, dst) = (Device::cpu(0), sum.span_mut());
        let job = backend::DequantizeJob { quantizer, device, dtype, codes: &spans, dst };
        backend().dequantize(&mut [job]).unwrap();

        let mut codes: Vec<Memory> =
            codes.iter().map(|it| Memory::new(it, case.beyond % 16)).collect();
        let beyond = case.beyond * dtype.size() % 16;
        let mut dst = Memory::new(&vec![0; case.len * dtype.size()], beyond);
        let addresses: Vec<u64> = codes.iter_mut().map(Memory::address).collect();
        batch.push(quantizer, dtype, case.len as u64, (&addresses, dst.address())).unwrap();
        memory.push((sum.content(), codes, dst));
    }
    let args = batch.args(batch.jobs().as_ptr() as u64, batch.addends().as_ptr() as u64);
    let kernel = dequantize_kernel(quantizer.code, dtype).unwrap();
    // SAFETY: as above.
    unsafe { launch(&kernel, &args, num_blocks, order) };
    for (expected, _codes, mut dst) in memory {
        assert_same(dtype, &expected, &dst.content());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn codes_and_sums_agree_with_the_host(
        code in prop::sample::select(vec![Code::OneBit, Code::TwoBit]),
        dtype in prop::sample::select(floats().collect::<Vec<_>>()),
        cases in cases(),
        num_blocks in 1_u32..6,
        order in 0_u32..1000,
    ) {
        let quantizer = Quantizer { code, threshold: THRESHOLD };
        check_quantize(quantizer, dtype, &cases, num_blocks, order);
        check_sum(quantizer, dtype, &cases, num_blocks, order);
    }
}
