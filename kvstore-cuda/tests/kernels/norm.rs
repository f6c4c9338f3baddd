//! Sums of squares: every formula and dtype, any lengths and alignments.
#![expect(unsafe_code, reason = "launches kernels on memory of this process")]

use std::mem::offset_of;

use kvstore_core::backend::{self, Measured};
use kvstore_core::norm::num_blocks;
use kvstore_core::optimizer::{MAX_STATES, UpdateRule};
use kvstore_core::storage::Span;
use kvstore_core::{DType, Device};
use kvstore_cuda::batch::Batch;
use kvstore_cuda::norm::{MeasureArgs, PAIR_KERNEL, PARTIAL_BYTES, PairArgs, SUM_BYTES, kernel};
use kvstore_cuda::update::UpdateJob;

use crate::device::{Memory, launch, layout};
use crate::host::{Block, backend, floats, numbers};
use crate::update::rules;

#[test]
fn structs_have_the_same_layout_as_in_c() {
    let expected = [
        size_of::<PairArgs>(),
        offset_of!(PairArgs, from),
        offset_of!(PairArgs, to),
        offset_of!(PairArgs, len),
    ];
    assert_eq!(layout::<4>("kv_norm_layout"), expected.map(|number| number as u64));
}

/// The contents for one key.
struct Contents {
    len: usize,
    weight: Vec<u8>,
    states: Vec<Vec<u8>>,
    addends: Vec<Vec<u8>>,
}

impl Contents {
    fn new(rule: Option<&UpdateRule>, dtype: DType, len: usize, num_addends: usize) -> Self {
        let arithmetic = dtype.arithmetic().unwrap();
        let num_states = rule.map_or(0, |rule| rule.initial().len());
        let num_states = num_states + usize::from(arithmetic != dtype && rule.is_some());
        let values = |dtype, seed| numbers(dtype, len, seed);
        Self {
            len,
            weight: values(dtype, 1),
            states: (0..num_states).map(|n| values(arithmetic, 2 + n as u64)).collect(),
            addends: (0..num_addends).map(|n| values(dtype, 10 + n as u64)).collect(),
        }
    }

    /// Returns the sums of the host's backend.
    fn expected(&self, rule: Option<&UpdateRule>, dtype: DType) -> Vec<[f64; 2]> {
        let weight = Block::new(&self.weight);
        let states: Vec<Block> = self.states.iter().map(|content| Block::new(content)).collect();
        let addends: Vec<Block> = self.addends.iter().map(|content| Block::new(content)).collect();
        let spans: Vec<_> = addends.iter().map(Block::span).collect();
        let measured = rule.map_or(Measured::Gradient, |rule| {
            let mut slots: [Option<Span<'_>>; MAX_STATES] = [None; MAX_STATES];
            for (slot, state) in slots.iter_mut().zip(&states) {
                *slot = Some(state.span());
            }
            Measured::Step { rule: *rule, weight: weight.span(), states: slots }
        });
        let mut sums = vec![[0.0; 2]; num_blocks(self.len)];
        let device = Device::cpu(0);
        let job = backend::MeasureJob { measured, device, dtype, addends: &spans, sums: &mut sums };
        backend().measure(&mut [job]).unwrap();
        sums
    }
}

fn check(rule: Option<&UpdateRule>, dtype: DType, keys: &[(usize, usize)], beyond: usize) {
    let arithmetic = dtype.arithmetic().unwrap();
    let keys: Vec<_> =
        keys.iter().map(|(len, count)| Contents::new(rule, dtype, *len, *count)).collect();
    let num_all: usize = keys.iter().map(|key| num_blocks(key.len)).sum();
    let mut partial = Memory::new(&vec![0xff; num_all * PARTIAL_BYTES], 0);
    let mut batch = Batch::<UpdateJob>::default();
    let mut memory = Vec::new();
    let mut next = partial.address();
    for key in &keys {
        let at = |content: &[u8], dtype: DType| Memory::new(content, beyond * dtype.size() % 16);
        let mut weight = at(&key.weight, dtype);
        let mut states: Vec<_> = key.states.iter().map(|it| at(it, arithmetic)).collect();
        let mut addends: Vec<_> = key.addends.iter().map(|it| at(it, dtype)).collect();
        batch
            .push_measured(&MeasureArgs {
                rule,
                dtype,
                len: key.len as u64,
                weight: weight.address(),
                states: &states.iter_mut().map(Memory::address).collect::<Vec<_>>(),
                addends: &addends.iter_mut().map(Memory::address).collect::<Vec<_>>(),
                partial: next,
            })
            .unwrap();
        next += (num_blocks(key.len) * PARTIAL_BYTES) as u64;
        memory.push((weight, states, addends));
    }
    let args = batch.args(batch.jobs().as_ptr() as u64, batch.addends().as_ptr() as u64);
    // SAFETY: the batch was built from memory and lists that exist.
    unsafe { launch(&kernel(rule, dtype).unwrap(), &args, 3, 7) };
    let mut sums = Memory::new(&vec![0; num_all * SUM_BYTES], 0);
    let len = 2 * num_all as u64;
    let args = PairArgs { from: partial.address(), to: sums.address(), len };
    // SAFETY: both ranges have the length in the argument.
    unsafe { launch(PAIR_KERNEL, &args, 2, 5) };
    let expected = keys.iter().flat_map(|key| key.expected(rule, dtype)).flatten();
    let expected: Vec<u8> = expected.flat_map(f64::to_ne_bytes).collect();
    assert_eq!(
        sums.content(),
        expected,
        "{} {dtype}",
        rule.map_or("gradient", |rule| rule.formula())
    );
    partial.content();
}

#[test]
fn every_kernel_agrees_with_the_host() {
    let layerwise = rules().into_iter().filter(UpdateRule::is_layerwise);
    let rules: Vec<_> = std::iter::once(None).chain(layerwise.map(Some)).collect();
    assert!(rules.len() > 3, "the gradient, both forms of lars, and lamb");
    for rule in &rules {
        for dtype in floats() {
            for beyond in [0, 1] {
                check(rule.as_ref(), dtype, &[(40_000, 3), (7, 1), (4096, 2), (4099, 1)], beyond);
                check(rule.as_ref(), dtype, &[(1, 1), (129, 9), (32_768, 1)], beyond);
            }
        }
    }
}
