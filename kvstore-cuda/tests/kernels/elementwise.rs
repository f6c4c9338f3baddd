//! Elementwise operations: every dtype, any lengths and alignments, ranges and scalars, in place or
//! not.
#![expect(unsafe_code, reason = "launches kernels on memory of this process")]

use std::mem::offset_of;

use kvstore_core::backend::Operand as HostOperand;
use kvstore_core::storage::InOut;
use kvstore_core::{BinaryOp, DType, Scalar, UnaryOp};
use kvstore_cuda::elementwise::{
    AnyZeroArgs, Binary, BinaryArgs, ClipArgs, FillArgs, Operand, UnaryArgs, any_zero_kernel,
    binary_kernel, clip_kernel, fill_kernel, unary_kernel,
};
use kvstore_cuda::update::FromTo;
use proptest::prelude::*;

use crate::device::{Memory, Range, launch, layout};
use crate::host::{Block, assert_same, backend, bytes, edges, elements, integers, number};

#[test]
fn structs_have_the_same_layout_as_in_c() {
    let expected = [
        size_of::<FillArgs>(),
        offset_of!(FillArgs, to),
        offset_of!(FillArgs, len),
        offset_of!(FillArgs, number),
        offset_of!(FillArgs, is_aligned),
        size_of::<BinaryArgs>(),
        offset_of!(BinaryArgs, from),
        offset_of!(BinaryArgs, to),
        offset_of!(BinaryArgs, rhs),
        offset_of!(BinaryArgs, len),
        offset_of!(BinaryArgs, op),
        offset_of!(BinaryArgs, is_scalar),
        offset_of!(BinaryArgs, is_reversed),
        offset_of!(BinaryArgs, is_aligned),
        size_of::<UnaryArgs>(),
        offset_of!(UnaryArgs, from),
        offset_of!(UnaryArgs, to),
        offset_of!(UnaryArgs, len),
        offset_of!(UnaryArgs, op),
        offset_of!(UnaryArgs, is_aligned),
        size_of::<ClipArgs>(),
        offset_of!(ClipArgs, from),
        offset_of!(ClipArgs, to),
        offset_of!(ClipArgs, len),
        offset_of!(ClipArgs, low),
        offset_of!(ClipArgs, high),
        offset_of!(ClipArgs, is_aligned),
        size_of::<AnyZeroArgs>(),
        offset_of!(AnyZeroArgs, from),
        offset_of!(AnyZeroArgs, len),
        offset_of!(AnyZeroArgs, found),
        offset_of!(AnyZeroArgs, is_aligned),
    ];
    assert_eq!(layout::<32>("kv_elementwise_layout"), expected.map(|number| number as u64));
}

fn is_zero(element: &[u8]) -> bool {
    element.iter().all(|byte| *byte == 0)
}

/// Replaces zeros by ones.
fn without_zeros(dtype: DType, content: &[u8]) -> Vec<u8> {
    let one = number(dtype, 1.0);
    let elements = content.chunks_exact(dtype.size());
    elements.flat_map(|it| if is_zero(it) { &one } else { it }.to_vec()).collect()
}

/// The offsets of memory from an aligned address, in elements, and the grid of the launch.
#[derive(Clone, Copy, Debug)]
struct Run {
    from: usize,
    /// `None` for an operation in place.
    to: Option<usize>,
    rhs: usize,
    num_blocks: u32,
    order: u32,
}

const RUNS: [Run; 3] = [
    Run { from: 0, to: None, rhs: 0, num_blocks: 2, order: 5 },
    Run { from: 0, to: Some(0), rhs: 0, num_blocks: 1, order: 0 },
    Run { from: 1, to: Some(2), rhs: 3, num_blocks: 2, order: 8 },
];

impl Run {
    fn range(&self, dtype: DType, content: &[u8]) -> Range {
        let place = |beyond: usize| beyond * dtype.size() % 16;
        Range::new(content, place(self.from), self.to.map(place))
    }

    fn rhs(&self, dtype: DType, content: &[u8]) -> Memory {
        Memory::new(content, self.rhs * dtype.size() % 16)
    }
}

fn runs() -> impl Strategy<Value = Run> {
    let beyond = || prop_oneof![Just(0_usize), 0_usize..16];
    (beyond(), prop::option::of(beyond()), beyond(), 1_u32..4, 0_u32..1000)
        .prop_map(|(from, to, rhs, num_blocks, order)| Run { from, to, rhs, num_blocks, order })
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![0_usize..40, 2040_usize..2056, 4500_usize..4503]
}

fn scalars() -> impl Strategy<Value = Scalar> {
    prop_oneof![
        prop::sample::select(edges().collect::<Vec<_>>()).prop_map(Scalar::Float),
        (-4.0..4.0).prop_map(Scalar::Float),
        any::<f64>().prop_map(Scalar::Float),
        (-4_i64..4).prop_map(Scalar::Int),
        any::<i64>().prop_map(Scalar::Int),
    ]
}

fn num_elements(dtype: DType, content: &[u8]) -> u64 {
    (content.len() / dtype.size()) as u64
}

/// The right operand of a test.
#[derive(Clone, Debug)]
enum Rhs {
    Elements(Vec<u8>),
    Number(Scalar),
}

fn check_binary(op: BinaryOp, dtype: DType, lhs: &[u8], rhs: &Rhs, is_reversed: bool, run: Run) {
    let elements: &[u8] = if let Rhs::Elements(elements) = rhs { elements } else { &[] };
    let (mut host, host_rhs) = (Block::new(lhs), Block::new(elements));
    let (mut range, mut memory) = (run.range(dtype, lhs), run.rhs(dtype, elements));
    let (host_operand, operand) = match rhs {
        Rhs::Elements(_) => (HostOperand::Span(host_rhs.span()), Operand::Range(memory.address())),
        Rhs::Number(number) => (HostOperand::Scalar(*number), Operand::Scalar(*number)),
    };
    let in_place = InOut::InPlace(host.span_mut());
    backend().binary(op, dtype, in_place, host_operand, is_reversed).unwrap();
    let (lhs_place, len) = (range.addresses(), num_elements(dtype, lhs));
    let binary = Binary { op, dtype, lhs: lhs_place, rhs: operand, is_reversed, len };
    let (kernel, args) = (binary_kernel(op, dtype).unwrap(), BinaryArgs::new(&binary));
    // SAFETY: the ranges have the length in the argument.
    unsafe { launch(&kernel, &args, run.num_blocks, run.order) };
    assert_same(dtype, &host.content(), &range.result());
    range.assert_source(lhs);
    assert_eq!(memory.content(), elements);
}

fn check_unary(op: UnaryOp, dtype: DType, content: &[u8], run: Run) {
    let mut host = Block::new(content);
    backend().unary(op, dtype, InOut::InPlace(host.span_mut())).unwrap();
    let mut range = run.range(dtype, content);
    let args = UnaryArgs::new(op, dtype, range.addresses(), num_elements(dtype, content));
    // SAFETY: the ranges have the length in the argument.
    unsafe { launch(&unary_kernel(op, dtype).unwrap(), &args, run.num_blocks, run.order) };
    assert_same(dtype, &host.content(), &range.result());
    range.assert_source(content);
}

fn check_clip(dtype: DType, content: &[u8], (low, high): (Scalar, Scalar), run: Run) {
    let mut host = Block::new(content);
    backend().clip(dtype, InOut::InPlace(host.span_mut()), low, high).unwrap();
    let mut range = run.range(dtype, content);
    let len = num_elements(dtype, content);
    let args = ClipArgs::new(dtype, range.addresses(), (low, high), len);
    // SAFETY: the ranges have the length in the argument.
    unsafe { launch(&clip_kernel(dtype), &args, run.num_blocks, run.order) };
    assert_same(dtype, &host.content(), &range.result());
    range.assert_source(content);
}

fn check_fill(dtype: DType, len: usize, number: Scalar, run: Run) {
    let content = bytes(len * dtype.size(), 3);
    let mut host = Block::new(&content);
    backend().fill(dtype, host.span_mut(), number).unwrap();
    let mut memory = run.rhs(dtype, &content);
    let args = FillArgs::new(dtype, memory.address(), number, len as u64);
    // SAFETY: the range has the length in the argument.
    unsafe { launch(&fill_kernel(dtype), &args, run.num_blocks, run.order) };
    assert_same(dtype, &host.content(), &memory.content());
}

/// Returns whether the kernel finds a zero.
fn has_zero(dtype: DType, content: &[u8], run: Run) -> bool {
    let mut memory = run.rhs(dtype, content);
    let mut found = Memory::new(&[0; 4], 4);
    let len = num_elements(dtype, content);
    let args = AnyZeroArgs::new(dtype, memory.address(), found.address(), len);
    // SAFETY: the range has the length in the argument, and the flag is a word.
    unsafe { launch(&any_zero_kernel(dtype).unwrap(), &args, run.num_blocks, run.order) };
    assert_eq!(memory.content(), content);
    match *found.content() {
        [0, 0, 0, 0] => false,
        [1, 0, 0, 0] => true,
        ref other => panic!("{other:?}"),
    }
}

fn binary_ops(dtype: DType) -> impl Iterator<Item = BinaryOp> {
    BinaryOp::ALL.iter().copied().filter(move |op| binary_kernel(*op, dtype).is_some())
}

fn unary_ops(dtype: DType) -> impl Iterator<Item = UnaryOp> {
    UnaryOp::ALL.iter().copied().filter(move |op| unary_kernel(*op, dtype).is_some())
}

#[test]
fn every_operation_with_a_defined_result_has_a_kernel() {
    for dtype in DType::ALL {
        assert_eq!((binary_ops(dtype).count(), unary_ops(dtype).count()), (13, 12));
    }
}

/// Returns 64-bit floats with exponents at which remainders take different branches.
fn places() -> impl Iterator<Item = Vec<u8>> {
    let places = [0_u64, 1, 2, 11, 12, 13, 51, 52, 53, 54, 1023, 2046];
    let digits = [1, 0x000a_bcde_f012_3457, 0x000f_ffff_ffff_ffff];
    places
        .into_iter()
        .flat_map(move |place| digits.map(|it| (place << 52 | it).to_le_bytes().into()))
}

/// Returns two lists of elements that contain every pair of edge cases.
fn pairs(dtype: DType) -> (Vec<u8>, Vec<u8>) {
    let places = places().filter(|_| dtype == DType::F64);
    let edges: Vec<Vec<u8>> = edges().map(|edge| number(dtype, edge)).chain(places).collect();
    let lhs = edges.iter().flat_map(|edge| edge.repeat(edges.len())).collect();
    (lhs, edges.concat().repeat(edges.len()))
}

#[test]
fn pairs_of_edge_cases_agree_with_the_host() {
    for dtype in DType::ALL {
        let (lhs, rhs) = pairs(dtype);
        for op in binary_ops(dtype) {
            let rejects_zeros = op == BinaryOp::Div && !dtype.is_float();
            let [lhs, rhs] = [&lhs, &rhs]
                .map(|it| if rejects_zeros { without_zeros(dtype, it) } else { it.clone() });
            for (run, is_reversed) in RUNS.into_iter().zip([false, true, false]) {
                check_binary(op, dtype, &lhs, &Rhs::Elements(rhs.clone()), is_reversed, run);
            }
        }
    }
}

#[test]
fn edge_cases_and_any_bits_agree_with_the_host() {
    for dtype in DType::ALL {
        let mut content: Vec<u8> = edges().flat_map(|edge| number(dtype, edge)).collect();
        content.extend(elements(dtype, 4200, 11));
        for run in RUNS {
            for op in unary_ops(dtype) {
                check_unary(op, dtype, &content, run);
            }
            for low in edges() {
                check_clip(dtype, &content, (low.into(), 2.5.into()), run);
                check_clip(dtype, &content, (i64::from(-3).into(), low.into()), run);
                check_fill(dtype, 2100, low.into(), run);
            }
        }
    }
}

#[test]
fn one_zero_is_found() {
    for dtype in integers() {
        // Elements with some zero bytes that are not 0.
        let content = [vec![0; dtype.size() - 1], vec![1]].concat().repeat(2100);
        for run in RUNS {
            assert!(!has_zero(dtype, &content, run));
            for index in [0, 1, 7, 8, 100, 2047, 2048, 2099] {
                let mut content = content.clone();
                content[index * dtype.size()..(index + 1) * dtype.size()].fill(0);
                assert!(has_zero(dtype, &content, run), "{dtype}, element {index}");
            }
        }
    }
}

#[test]
fn divisors_are_checked_if_the_host_rejects_zeros() {
    const LHS: FromTo = FromTo { from: 4096, to: 4096 };
    for (dtype, lhs, rhs) in DType::ALL.into_iter().flat_map(|dtype| [(dtype, 0, 1), (dtype, 1, 0)])
    {
        for (op, is_reversed) in binary_ops(dtype).flat_map(|op| [(op, false), (op, true)]) {
            let mut host = Block::new(&number(dtype, f64::from(lhs)));
            let operand = HostOperand::Scalar(rhs.into());
            let host = InOut::InPlace(host.span_mut());
            let rejects_zeros = backend().binary(op, dtype, host, operand, is_reversed).is_err();
            let rhs = Operand::Scalar(rhs.into());
            let divisor = Binary { op, dtype, lhs: LHS, rhs, is_reversed, len: 1 }.divisor();
            let is_zero = divisor.is_some_and(|divisor| match divisor {
                Operand::Range(address) => address == LHS.from && lhs == 0,
                Operand::Scalar(number) => number.to_bits(dtype) == 0,
            });
            assert_eq!(is_zero, rejects_zeros, "{op:?} of {dtype}, reversed: {is_reversed}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn binary_operations_agree_with_the_host(
        dtype in prop::sample::select(DType::ALL.to_vec()),
        op in prop::sample::select(binary_ops(DType::F32).collect::<Vec<_>>()),
        (len, seed) in (lengths(), any::<u64>()),
        number in prop::option::of(scalars()),
        is_reversed in any::<bool>(),
        run in runs(),
    ) {
        let rejects_zeros = op == BinaryOp::Div && !dtype.is_float();
        let operand = |seed: u64| {
            let content = elements(dtype, len, seed);
            if rejects_zeros { without_zeros(dtype, &content) } else { content }
        };
        let rhs = match number {
            Some(number) if !(rejects_zeros && number.to_bits(dtype) == 0) => Rhs::Number(number),
            _ => Rhs::Elements(operand(!seed)),
        };
        check_binary(op, dtype, &operand(seed), &rhs, is_reversed, run);
    }

    #[test]
    fn unary_operations_agree_with_the_host(
        dtype in prop::sample::select(DType::ALL.to_vec()),
        op in prop::sample::select(unary_ops(DType::F32).collect::<Vec<_>>()),
        (len, seed) in (lengths(), any::<u64>()),
        run in runs(),
    ) {
        check_unary(op, dtype, &elements(dtype, len, seed), run);
    }

    #[test]
    fn clip_and_fill_agree_with_the_host(
        dtype in prop::sample::select(DType::ALL.to_vec()),
        (len, seed) in (lengths(), any::<u64>()),
        (low, high) in (scalars(), scalars()),
        run in runs(),
    ) {
        check_clip(dtype, &elements(dtype, len, seed), (low, high), run);
        check_fill(dtype, len, low, run);
    }

    #[test]
    fn zeros_are_found_if_there_are_any(
        dtype in prop::sample::select(integers().collect::<Vec<_>>()),
        (len, seed) in (lengths(), any::<u64>()),
        zero in prop::option::of(any::<prop::sample::Index>()),
        run in runs(),
    ) {
        let mut content = without_zeros(dtype, &bytes(len * dtype.size(), seed));
        let zero = zero.filter(|_| len > 0);
        if let Some(index) = zero {
            let start = index.index(len) * dtype.size();
            content[start..start + dtype.size()].fill(0);
        }
        assert_eq!(has_zero(dtype, &content, run), zero.is_some());
    }
}
