//! Optimizer updates: every formula and dtype, any lengths and alignments, in place or not.
#![expect(unsafe_code, reason = "launches kernels on memory of this process")]

use std::array::from_fn;
use std::iter::once;
use std::mem::offset_of;

use kvstore_core::backend;
use kvstore_core::optimizer::{MAX_STATES, UpdateRule};
use kvstore_core::storage::InOut;
use kvstore_core::{DType, Device, Key, Optimizer};
use kvstore_cuda::batch::{Args, Batch};
use kvstore_cuda::update::{UpdateArgs, UpdateJob, kernel};
use proptest::prelude::*;

use crate::device::{Memory, Range, launch, layout};
use crate::host::{Block, assert_same, backend, floats, lengths, numbers};

/// Returns the update rules of every formula for the tenth update of a key.
pub(crate) fn rules() -> Vec<UpdateRule> {
    let mut rules: Vec<UpdateRule> = Vec::new();
    for name in Optimizer::names() {
        for momentum in [0.0, 0.9] {
            let mut optimizer = Optimizer::new(name).unwrap();
            for (parameter, value) in [
                ("momentum", momentum),
                ("centered", if momentum == 0.0 { 0.0 } else { 1.0 }),
                ("wd", 0.01),
                ("clip_gradient", 0.8),
                ("clip_weights", 1.5),
                ("rescale_grad", 0.7),
                ("learning_rate", 0.05),
            ] {
                if optimizer.get(parameter).is_ok() {
                    optimizer.set(parameter, value).unwrap();
                }
            }
            let rule = optimizer.rule(&Key::new("w").unwrap(), 10, &mut 0.5);
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
    }
    rules
}

/// Returns the rules that update dense weights element by element.
fn elementwise_rules() -> Vec<UpdateRule> {
    rules().into_iter().filter(|rule| !rule.is_rowwise()).collect()
}

#[test]
fn structs_have_the_same_layout_as_in_c() {
    let expected = [
        size_of::<UpdateJob>(),
        offset_of!(UpdateJob, first_tile),
        offset_of!(UpdateJob, len),
        offset_of!(UpdateJob, weight_from),
        offset_of!(UpdateJob, weight_to),
        offset_of!(UpdateJob, states_from),
        offset_of!(UpdateJob, states_to),
        offset_of!(UpdateJob, scalars),
        offset_of!(UpdateJob, first_addend),
        offset_of!(UpdateJob, num_addends),
        offset_of!(UpdateJob, is_aligned),
        offset_of!(UpdateJob, stream),
        offset_of!(UpdateJob, count),
    ];
    assert_eq!(layout::<13>("kv_update_layout"), expected.map(|number| number as u64));
    // The kernel takes the same argument as the kernel of sums.
    assert_eq!(layout::<12>("kv_fan_layout")[7], size_of::<Args>() as u64);
}

/// One update of a batch.
#[derive(Clone, Debug)]
struct Case {
    len: usize,
    num_addends: usize,
    /// The offset of each range from an aligned address, in elements.
    beyond: usize,
    /// Whether the last addend has a different offset.
    is_odd: bool,
    is_in_place: bool,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Vec<Case>> {
    let len = lengths().prop_map(|len| len.max(1));
    let beyond = prop_oneof![Just(0_usize), 0_usize..5];
    let is_odd = prop::bool::weighted(0.2);
    let case = (len, 1_usize..21, beyond, is_odd, any::<bool>(), any::<u64>());
    let case = case.prop_map(|(len, num_addends, beyond, is_odd, is_in_place, seed)| Case {
        len,
        num_addends,
        beyond,
        is_odd,
        is_in_place,
        seed,
    });
    prop::collection::vec(case, 1..4)
}

/// The contents of an update.
struct Contents {
    weight: Vec<u8>,
    states: Vec<Vec<u8>>,
    addends: Vec<Vec<u8>>,
}

fn contents(rule: &UpdateRule, dtype: DType, case: &Case) -> Contents {
    let arithmetic = dtype.arithmetic().unwrap();
    let num_states = rule.initial().len() + usize::from(arithmetic != dtype);
    let seed = |number: usize| case.seed.wrapping_add(7919 * number as u64);
    Contents {
        weight: numbers(dtype, case.len, seed(0)),
        states: (1..=num_states).map(|n| numbers(arithmetic, case.len, seed(n))).collect(),
        addends: (10..10 + case.num_addends).map(|n| numbers(dtype, case.len, seed(n))).collect(),
    }
}

/// Returns the weight and the states after the update of the host's backend.
fn expected(rule: UpdateRule, dtype: DType, contents: &Contents) -> Vec<Vec<u8>> {
    let mut weight = Block::new(&contents.weight);
    let mut states: Vec<Block> =
        contents.states.iter().map(|content| Block::new(content)).collect();
    let addends: Vec<Block> = contents.addends.iter().map(|content| Block::new(content)).collect();
    let spans: Vec<_> = addends.iter().map(Block::span).collect();
    let mut in_outs = states.iter_mut().map(|state| InOut::InPlace(state.span_mut()));
    let slots: [Option<InOut<'_>>; MAX_STATES] = from_fn(|_| in_outs.next());
    drop(in_outs);
    let job = backend::UpdateJob {
        rule: &rule,
        device: Device::cpu(0),
        dtype,
        weight: InOut::InPlace(weight.span_mut()),
        states: slots,
        addends: &spans,
    };
    backend().update(&mut once(Ok(job))).unwrap();
    std::iter::once(&weight).chain(&states).map(Block::content).collect()
}

fn check(rule: UpdateRule, dtype: DType, cases: &[Case], num_blocks: u32, order: u32) {
    let arithmetic = dtype.arithmetic().unwrap();
    let mut batch = Batch::<UpdateJob>::default();
    let mut memory = Vec::new();
    for case in cases {
        let contents = contents(&rule, dtype, case);
        let expected = expected(rule, dtype, &contents);
        let place = |dtype: DType| case.beyond * dtype.size() % 16;
        let range = |content: &[u8], dtype: DType| {
            Range::new(content, place(dtype), (!case.is_in_place).then_some(place(dtype)))
        };
        let mut weight = range(&contents.weight, dtype);
        let mut states: Vec<Range> =
            contents.states.iter().map(|it| range(it, arithmetic)).collect();
        let odd = |n: usize| case.is_odd && n + 1 == case.num_addends;
        let place_of = |n: usize| (case.beyond + usize::from(odd(n))) * dtype.size() % 16;
        let addends = contents.addends.iter().enumerate();
        let mut addends: Vec<Memory> =
            addends.map(|(n, content)| Memory::new(content, place_of(n))).collect();
        batch
            .push(&UpdateArgs {
                rule: &rule,
                dtype,
                len: case.len as u64,
                weight: weight.addresses(),
                states: &states.iter_mut().map(Range::addresses).collect::<Vec<_>>(),
                addends: &addends.iter_mut().map(Memory::address).collect::<Vec<_>>(),
            })
            .unwrap();
        memory.push((expected, contents, weight, states, addends));
    }
    let args = batch.args(batch.jobs().as_ptr() as u64, batch.addends().as_ptr() as u64);
    // SAFETY: the batch was built from memory and lists that exist.
    unsafe { launch(&kernel(&rule, dtype).unwrap(), &args, num_blocks, order) };
    for (expected, contents, mut weight, mut states, mut addends) in memory {
        let mut expected = expected.into_iter();
        assert_same(dtype, &expected.next().unwrap(), &weight.result());
        for (state, expected) in states.iter_mut().zip(expected) {
            assert_same(arithmetic, &expected, &state.result());
        }
        for (addend, content) in addends.iter_mut().zip(&contents.addends) {
            assert_eq!(addend.content(), *content);
        }
        weight.assert_source(&contents.weight);
    }
}

#[test]
fn every_kernel_agrees_with_the_host() {
    for rule in elementwise_rules() {
        for dtype in floats() {
            for (beyond, is_in_place) in [(0, true), (0, false), (1, true), (3, false)] {
                for num_addends in [1, 3, 6] {
                    let is_odd = false;
                    let case =
                        |len, seed| Case { len, num_addends, beyond, is_odd, is_in_place, seed };
                    check(rule, dtype, &[case(2051, 1), case(7, 2)], 2, 5);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_agree_with_the_host(
        rule in prop::sample::select(elementwise_rules()),
        dtype in prop::sample::select(floats().collect::<Vec<_>>()),
        cases in cases(),
        num_blocks in 1_u32..6,
        order in 0_u32..1000,
    ) {
        check(rule, dtype, &cases, num_blocks, order);
    }
}
