//! Updates of some rows: every formula with `lazy_update` and every float dtype, any lengths and
//! alignments.
#![expect(unsafe_code, reason = "launches kernels on memory of this process")]

use std::array::from_fn;
use std::collections::BTreeSet;
use std::mem::offset_of;

use kvstore_core::backend::{self, RowIds};
use kvstore_core::optimizer::{MAX_STATES, UpdateRule};
use kvstore_core::storage::{Span, SpanMut};
use kvstore_core::{DType, Device};
use kvstore_cuda::batch::{Batch, Extent};
use kvstore_cuda::plan_rows::ListedRows;
use kvstore_cuda::row_jobs::{RowUpdateArgs, RowUpdateJob, update_kernels};
use proptest::prelude::*;

use crate::device::{Memory, launch, layout};
use crate::host::{Block, assert_same, backend, floats, numbers};
use crate::row_jobs::{Case, below, cases, extent, ids, rows, with_zeros};
use crate::update::rules;

/// Returns the rules of every formula that can update single rows.
fn lazy_rules() -> Vec<UpdateRule> {
    rules().into_iter().filter(|rule| update_kernels(rule, DType::F32).is_some()).collect()
}

#[test]
fn every_lazy_formula_has_kernels() {
    let formulas: BTreeSet<&str> = lazy_rules().iter().map(UpdateRule::formula).collect();
    assert_eq!(
        formulas.into_iter().collect::<Vec<_>>(),
        ["AdaGrad", "Adam", "Ftrl", "GroupAdaGrad", "Sgd", "SgdMomentum"]
    );
}

#[test]
fn structs_have_the_same_layout_as_in_c() {
    let expected = [
        size_of::<RowUpdateJob>(),
        offset_of!(RowUpdateJob, first_tile),
        offset_of!(RowUpdateJob, cut),
        offset_of!(RowUpdateJob, addends),
        offset_of!(RowUpdateJob, weight),
        offset_of!(RowUpdateJob, states),
        offset_of!(RowUpdateJob, scalars),
        offset_of!(RowUpdateJob, ids),
    ];
    assert_eq!(layout::<8>("kv_update_rows_layout"), expected.map(|number| number as u64));
}

/// The contents of an update of some rows of a weight that has more rows.
struct Contents {
    indices: Vec<i64>,
    weight: Vec<u8>,
    states: Vec<Vec<u8>>,
    addends: Vec<Vec<u8>>,
}

fn contents(rule: &UpdateRule, dtype: DType, case: &Case) -> Contents {
    let arithmetic = dtype.arithmetic().unwrap();
    let num_states = rule.initial().len() + usize::from(arithmetic != dtype);
    let mut below = below(case.seed ^ 0x55);
    let mut next = 0;
    let mut indices = Vec::new();
    for _ in 0..case.num_rows {
        next += i64::try_from(below(3)).unwrap();
        indices.push(next);
        next += 1;
    }
    let num_rows = usize::try_from(next).unwrap() + below(2);
    let make = |dtype: DType, number: usize, len: usize| {
        let seed = case.seed.wrapping_add(7919 * number as u64);
        with_zeros(dtype, numbers(dtype, len, seed))
    };
    let len = num_rows * case.row_len;
    let num_masters = usize::from(arithmetic != dtype);
    let state = |number: usize| {
        let of_rows = rule.is_rowwise() && number >= num_masters;
        make(arithmetic, 11 + number, if of_rows { num_rows } else { len })
    };
    Contents {
        indices,
        weight: make(dtype, 10, len),
        states: (0..num_states).map(state).collect(),
        addends: case.contents(dtype, |len, seed| numbers(dtype, len, seed)),
    }
}

/// Returns the weight and the states after the update of the host's backend.
fn expected(rule: UpdateRule, dtype: DType, case: &Case, contents: &Contents) -> Vec<Vec<u8>> {
    let (starts, sources) = case.sources();
    let mut weight = Block::new(&contents.weight);
    let mut states: Vec<Block> =
        contents.states.iter().map(|content| Block::new(content)).collect();
    let addends: Vec<Block> = contents.addends.iter().map(|content| Block::new(content)).collect();
    let spans: Vec<Span<'_>> = addends.iter().map(Block::span).collect();
    let mut spans_mut = states.iter_mut().map(Block::span_mut);
    let slots: [Option<SpanMut<'_>>; MAX_STATES] = from_fn(|_| spans_mut.next());
    drop(spans_mut);
    let job = backend::RowUpdateJob {
        rule,
        device: Device::cpu(0),
        dtype,
        addends: case.row_addends(&starts, &sources, &spans),
        ids: &RowIds::new(contents.indices.clone()),
        weight: weight.span_mut(),
        states: slots,
    };
    backend().update_rows(&mut [job]).unwrap();
    std::iter::once(&weight).chain(&states).map(Block::content).collect()
}

fn check(rule: UpdateRule, dtype: DType, cases: &[Case], num_blocks: u32, order: u32) {
    let arithmetic = dtype.arithmetic().unwrap();
    let mut batch = Batch::<RowUpdateJob>::default();
    let mut memory = Vec::new();
    for case in cases.iter().filter(|case| case.num_rows > 0) {
        let contents = contents(&rule, dtype, case);
        let mut weight = case.place(dtype, 0, &contents.weight);
        let places = contents.states.iter().enumerate();
        let mut states: Vec<Memory> =
            places.map(|(number, it)| case.place(arithmetic, number + 1, it)).collect();
        let places = contents.addends.iter().enumerate();
        let mut addends: Vec<Memory> =
            places.map(|(number, it)| case.place(dtype, number + 5, it)).collect();
        let extents: Vec<Extent> = addends.iter_mut().map(extent).collect();
        let listed = case.listed(dtype, &extents);
        let step = RowUpdateArgs {
            rule: &rule,
            dtype,
            gradient: rows((case.row_len, case.full), case.num_rows, &listed, &extents),
            ids: ids(&contents.indices),
            weight: extent(&mut weight),
            states: &states.iter_mut().map(extent).collect::<Vec<_>>(),
        };
        batch.push(&step).unwrap();
        let expected = expected(rule, dtype, case, &contents);
        memory.push((expected, contents, weight, states, addends, listed));
    }
    let args = batch.args(batch.jobs().as_ptr() as u64, batch.addends().as_ptr() as u64);
    for kernel in update_kernels(&rule, dtype).unwrap() {
        // SAFETY: the batch was built from memory and lists that exist.
        unsafe { launch(&kernel, &args, num_blocks, order) };
    }
    for (expected, contents, mut weight, mut states, mut addends, _) in memory {
        let mut expected = expected.into_iter();
        assert_same(dtype, &expected.next().unwrap(), &weight.content());
        for (state, expected) in states.iter_mut().zip(expected) {
            assert_same(arithmetic, &expected, &state.content());
        }
        for (addend, content) in addends.iter_mut().zip(&contents.addends) {
            assert_eq!(addend.content(), *content);
        }
    }
}

#[test]
fn every_kernel_agrees_with_the_host() {
    for rule in lazy_rules() {
        for dtype in floats() {
            for (row_len, beyond) in [(128, 0), (128, 1), (33, 0), (4229, 0)] {
                let case = |num_rows, most, seed| Case {
                    row_len,
                    num_rows,
                    addends: vec![5, 3, 4],
                    most,
                    full: 3,
                    beyond: vec![beyond],
                    seed,
                };
                check(rule, dtype, &[case(40, Some(4), 1), case(30, None, 2)], 2, 5);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_agree_with_the_host(
        rule in prop::sample::select(lazy_rules()),
        dtype in prop::sample::select(floats().collect::<Vec<_>>()),
        cases in cases(),
        num_blocks in 1_u32..6,
        order in 0_u32..1000,
    ) {
        check(rule, dtype, &cases, num_blocks, order);
    }
}

#[test]
fn inputs_that_do_not_match_are_errors() {
    let rule = lazy_rules().into_iter().find(|rule| rule.formula() == "Adam").unwrap();
    let mut batch = Batch::<RowUpdateJob>::default();
    let mut push = |dtype, indices: &[i64], num_bytes: [usize; 3]| {
        let starts = [0, 1, 2];
        let sources = from_fn::<_, 2, _>(|row| backend::RowSource { addend: 0, row });
        let addends = [Extent { address: 64, num_bytes: 2 * 16 }];
        let listed = ListedRows::new(DType::F32, 4, (&starts, &sources), &addends).unwrap();
        let (gradient, ids) = (rows((4, 1), 2, &listed, &addends), ids(indices));
        let [weight, states @ ..] = num_bytes.map(|num_bytes| Extent { address: 128, num_bytes });
        batch
            .push(&RowUpdateArgs { rule: &rule, dtype, gradient, ids, weight, states: &states })
            .is_ok()
    };
    let whole = [3 * 16; 3];
    assert!(push(DType::F32, &[0, 2], whole));
    for indices in [&[0, 3][..], &[-2, -1], &[0], &[0, 1, 2]] {
        assert!(!push(DType::F32, indices, whole), "{indices:?}");
    }
    assert!(!push(DType::F32, &[0, 2], [48, 48, 32]));
    // A half-precision weight needs a master copy and two states.
    assert!(!push(DType::F16, &[0, 2], [24, 48, 48]));
    assert!(!push(DType::I32, &[0, 2], whole));
    assert_eq!(batch.jobs().len(), 1);
    assert_eq!(update_kernels(&rule, DType::I32), None);
}
