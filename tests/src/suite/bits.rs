//! Checks of the bit contract: the result of a program does not depend on where and how it runs,
//! down to the last bit. A check runs a program at several places (stores, numbers of threads) and
//! in several manners (calls, memory), and compares the bits of all runs.

use std::cmp::Reverse;
use std::fmt::Debug;
use std::sync::Arc;

use kvstore::backends;
use kvstore_core::{
    Backends, DType, Device, ErrorCode, Key, KvStore, Optimizer, Tensor, TensorSpec,
};

use super::{assert_code, assign};
use crate::arithmetic::sum;
use crate::arrays::key;
use crate::compare::assert_same_bits;
use crate::format::float_dtypes;
use crate::samples::{nasty, tame};
use crate::value::{Spec, Value};

/// One element, and lengths just below, at and above each number of elements that a loop processes
/// at once.
const SHORT: [usize; 8] = [1, 2, 15, 16, 17, 63, 64, 65];

/// Lengths around the block that stays in cache.
const BLOCKS: [usize; 3] = [2047, 2048, 2049];

/// Lengths around the limit for one thread, and one that is cut more than once.
const LONG: [usize; 4] = [65_535, 65_536, 65_537, 131_073];

/// Numbers of values around the number that is added side by side.
const FEW_AND_MANY: [usize; 7] = [1, 2, 7, 8, 9, 16, 17];

/// The place where a program runs.
#[derive(Debug)]
pub struct Place {
    /// The name of the store.
    pub store: &'static str,
    /// The number of threads of its kernels.
    pub num_threads: usize,
    /// The memory of its values.
    pub backends: Backends,
    /// Returns a device of that memory.
    pub device: fn(u32) -> Device,
    /// Creates an empty store with a name.
    pub create: fn(&str, &Backends) -> Box<dyn KvStore>,
}

impl Place {
    /// Returns a place on the host with the backends and threads of this process.
    pub fn on_host(store: &'static str, create: fn(&str, &Backends) -> Box<dyn KvStore>) -> Self {
        Self { store, num_threads: 0, backends: backends().clone(), device: Device::cpu, create }
    }
}

/// The manner in which a program runs.
#[derive(Clone, Copy, Debug)]
struct Manner {
    calls: Calls,
    /// Whether values are views that start inside larger ones, each at another element.
    views: bool,
    /// Whether the stored values are also held elsewhere, so that they cannot change in place.
    held: bool,
}

/// The grouping of values into pushes. The values of a key are always in the same order.
#[derive(Clone, Copy, Debug)]
enum Calls {
    /// A call per key, the last key first.
    OfOneKey,
    /// One call, key after key.
    OfAllKeys,
    /// One call: the first value of each key, the last key first, then the second of each.
    Interleaved,
}

impl Manner {
    const PLAIN: Self = Self { calls: Calls::OfOneKey, views: false, held: false };

    fn all() -> impl Iterator<Item = Self> + Clone {
        [Calls::OfOneKey, Calls::OfAllKeys, Calls::Interleaved].into_iter().flat_map(|calls| {
            [(false, false), (false, true), (true, false), (true, true)].map(|(views, held)| Self {
                calls,
                views,
                held,
            })
        })
    }
}

/// How a push uses the sum.
#[derive(Clone, Debug)]
enum UpdateKind {
    Assign,
    Updater,
    Optimizer(Box<Optimizer>),
}

impl UpdateKind {
    fn set_on(&self, store: &dyn KvStore) {
        match self {
            Self::Assign => store.set_updater(None),
            Self::Updater => store.set_updater(Some(Arc::new(assign))),
            Self::Optimizer(optimizer) => store.set_optimizer(Optimizer::clone(optimizer)),
        }
        .unwrap();
    }
}

/// One key of a program: its initial value, and the values of each round. Values are bytes, because
/// bytes are compared and need less memory.
struct Input {
    key: Key,
    spec: Spec,
    initial: Vec<u8>,
    rounds: Vec<Vec<Vec<u8>>>,
}

type Sample = fn(Spec, u64) -> Value;

/// The length of the period of a long value. The model is slow, so long values repeat a short one.
/// The length is a prime, so that no two blocks of a long value are equal.
const PERIOD: usize = 4099;

/// Returns the first bytes of `period` repeated.
fn repeated(period: &[u8], num_bytes: usize) -> Vec<u8> {
    let mut bytes = period.repeat(num_bytes.div_ceil(period.len()));
    bytes.truncate(num_bytes);
    bytes
}

impl Input {
    fn new(text: &str, spec: &Spec, num_values: usize, num_rounds: usize, sample: Sample) -> Self {
        let num_bytes = spec.num_elements() * spec.dtype.size();
        let period = Self::period(spec);
        let value = |round: usize, position: usize| {
            let seed = (1000 * round + position) as u64;
            repeated(&sample(period.clone(), seed).to_bytes(), num_bytes)
        };
        let values = |round| (0..num_values).map(|position| value(round, position)).collect();
        Self {
            key: key(text),
            spec: spec.clone(),
            initial: repeated(&tame(period.clone(), 77).to_bytes(), num_bytes),
            rounds: (0..num_rounds).map(values).collect(),
        }
    }

    /// Returns the spec of the period of a value.
    fn period(spec: &Spec) -> Spec {
        Spec::new(&[spec.num_elements().min(PERIOD)], spec.dtype)
    }

    /// Returns the input with only the first values of each round.
    fn first_values(&self, num_values: usize) -> Self {
        let first = |values: &Vec<Vec<u8>>| values[..num_values].to_vec();
        let rounds = self.rounds.iter().map(first).collect();
        Self {
            key: self.key.clone(),
            spec: self.spec.clone(),
            initial: self.initial.clone(),
            rounds,
        }
    }

    /// Returns the model's sum of the last round's values.
    fn sum(&self) -> Vec<u8> {
        let period = Self::period(&self.spec);
        let num_bytes = period.num_elements() * period.dtype.size();
        let value = |bytes: &Vec<u8>| Value::from_bytes(period.clone(), &bytes[..num_bytes]);
        let last = self.rounds.last().expect("programs have rounds");
        let sum = sum(&last.iter().map(value).collect::<Vec<_>>()).to_bytes();
        repeated(&sum, self.initial.len())
    }

    /// Returns the elements of the input from `start` on, under another key.
    fn part(&self, text: &str, start: usize, length: usize) -> Self {
        let size = self.spec.dtype.size();
        let cut = |bytes: &Vec<u8>| bytes[start * size..(start + length) * size].to_vec();
        Self {
            key: key(text),
            spec: Spec::new(&[length], self.spec.dtype),
            initial: cut(&self.initial),
            rounds: self.rounds.iter().map(|values| values.iter().map(cut).collect()).collect(),
        }
    }

    /// Returns one of the values as a tensor, complete or as a view.
    fn value(&self, place: &Place, bytes: &[u8], position: usize, is_view: bool) -> Tensor {
        let device = (place.device)(u32::try_from(position % 3).expect("a small number"));
        let tensor = |bytes: &[u8]| {
            let spec = TensorSpec::new([bytes.len() / self.spec.dtype.size()], self.spec.dtype);
            Tensor::from_bytes(&place.backends, device, spec, bytes).expect("memory")
        };
        if !is_view {
            return tensor(bytes);
        }
        let before = 1 + (position + self.spec.num_elements()) % 19;
        let margin = vec![0xa5; before * self.spec.dtype.size()];
        let larger = tensor(&[&margin, bytes, &margin].concat());
        larger.view(before, [self.spec.num_elements()].into()).expect("it lies within")
    }
}

/// Runs a program and returns the stored values after it.
fn run(place: &Place, rule: &UpdateKind, manner: Manner, inputs: &[Input]) -> Vec<Vec<u8>> {
    let store = (place.create)(place.store, &place.backends);
    rule.set_on(&*store);
    let keys: Vec<Key> = inputs.iter().map(|input| input.key.clone()).collect();
    let value = |input: &Input, bytes, position| input.value(place, bytes, position, manner.views);
    let initial: Vec<_> =
        inputs.iter().map(|input| value(input, &input.initial, 0).into()).collect();
    store.init(&keys, &initial).unwrap();
    // Without this, the first push could not change the values in place.
    drop(initial);
    let mut held = Vec::new();
    for round in 0..inputs[0].rounds.len() {
        if manner.held {
            held.extend(store.pull(&keys, 0).unwrap());
        }
        for call in calls(manner.calls, inputs, round) {
            let values = call.iter().map(|&(index, position)| {
                value(&inputs[index], &inputs[index].rounds[round][position], position)
            });
            let values: Vec<_> = values.map(Into::into).collect();
            let keys: Vec<_> = call.iter().map(|(index, _)| keys[*index].clone()).collect();
            store.push(&keys, &values, 0).unwrap();
        }
    }
    let stored = store.pull(&keys, 0).unwrap();
    stored.iter().map(|value| value.to_bytes().unwrap()).collect()
}

/// Returns the calls of a round. Each value is given by its input and its position in that input.
fn calls(calls: Calls, inputs: &[Input], round: usize) -> Vec<Vec<(usize, usize)>> {
    let of = |index: usize| {
        (0..inputs[index].rounds[round].len()).map(move |position| (index, position))
    };
    let mut all: Vec<_> = (0..inputs.len()).flat_map(of).collect();
    match calls {
        Calls::OfOneKey => (0..inputs.len()).rev().map(|index| of(index).collect()).collect(),
        Calls::OfAllKeys => vec![all],
        Calls::Interleaved => {
            all.sort_by_key(|(index, position)| (*position, Reverse(*index)));
            vec![all]
        }
    }
}

fn assert_same(expected: &[Vec<u8>], found: &[Vec<u8>], inputs: &[Input], what: &impl Debug) {
    for ((expected, found), input) in expected.iter().zip(found).zip(inputs) {
        // Values with different bytes may be equal, because any NaN equals any NaN.
        if expected != found {
            let value = |bytes| Value::from_bytes(input.spec.clone(), bytes);
            let num_values = input.rounds[0].len();
            let what = format!("{num_values} values of {}, {what:?}", input.spec.dtype);
            assert_same_bits(&value(expected), &value(found), &(&input.spec.shape, what));
        }
    }
}

/// Returns every way to run a program, or only each `stride`-th for a slow program. The strides in
/// use do not divide the number of ways, so each number of threads, store and kind of calls occurs.
fn ways(places: &[Place], stride: usize) -> impl Iterator<Item = (&Place, Manner)> {
    let all = places.iter().flat_map(|place| Manner::all().map(move |manner| (place, manner)));
    all.step_by(stride)
}

fn name(place: &Place) -> String {
    format!("store `{}` with {} threads", place.store, place.num_threads)
}

/// Sums equal the sums of the model, with and without an updater.
///
/// Exhaustive: dtypes x 1 to 17 values x short lengths x places x manners. Sampled: lengths around
/// a block with 1 to 17 values, and long ones with two numbers of values for each dtype and length,
/// all together in each fifth way to run them.
pub fn sums_have_the_same_bits(places: &[Place]) {
    let mut num_sums = 0;
    for (number, dtype) in DType::ALL.into_iter().enumerate() {
        let input = |length: usize, count: usize| {
            let sample = if count.is_multiple_of(2) { nasty } else { mixed };
            Input::new(&format!("{count}x{length}"), &Spec::new(&[length], dtype), count, 1, sample)
        };
        let of_all = |length: &usize| (1..=17).map(|count| input(*length, count)).collect();
        let short: Vec<Vec<_>> = SHORT.iter().map(of_all).collect();
        num_sums += check_sums(places, &short.into_iter().flatten().collect::<Vec<_>>(), 1);
        let mut longer: Vec<_> = BLOCKS.iter().map(of_all).collect();
        longer.extend(LONG.iter().enumerate().map(|(index, length)| {
            let count = |step: usize| FEW_AND_MANY[(number + index + step) % 7];
            [0, 3].map(|step| input(*length, count(step))).into()
        }));
        num_sums += check_sums(places, &longer.into_iter().flatten().collect::<Vec<_>>(), 5);
    }
    println!("{num_sums} sums compared");
}

fn check_sums(places: &[Place], inputs: &[Input], stride: usize) -> usize {
    let mut num_sums = 0;
    let expected: Vec<_> = inputs.iter().map(Input::sum).collect();
    for (place, manner) in ways(places, stride) {
        for rule in [UpdateKind::Assign, UpdateKind::Updater] {
            let found = run(place, &rule, manner, inputs);
            assert_same(&expected, &found, inputs, &(name(place), manner, &rule));
            num_sums += found.len();
        }
    }
    num_sums
}

/// Returns numbers like gradients. Every eighth is a difficult one.
fn mixed(spec: Spec, seed: u64) -> Value {
    let nasty = nasty(spec.clone(), seed);
    let mut value = tame(spec, seed);
    for (number, nasty) in value.numbers.iter_mut().zip(nasty.numbers).step_by(8) {
        *number = nasty;
    }
    value
}

/// Returns every optimizer. Optimizers with two formulas appear twice.
fn optimizers() -> Vec<Optimizer> {
    let with = |name, options: &[(&str, f64)]| {
        let mut optimizer = Optimizer::new(name).unwrap();
        for (name, value) in [("wd", 0.01), ("rescale_grad", 0.5)].iter().chain(options) {
            optimizer.set(name, *value).unwrap();
        }
        optimizer
    };
    let clipped = [("momentum", 0.9), ("clip_gradient", 1.5)];
    let with_momentum = ["sgd", "nag", "nesterov", "dcasgd"].map(|name| with(name, &clipped));
    let others = [
        with("adam", &[("decoupled_wd", 1.0), ("clip_gradient", 1.5)]),
        with("rmsprop", &[("centered", 1.0), ("clip_weights", 4.0)]),
        with("signum", &[("momentum", 0.0)]),
    ];
    Optimizer::names().map(|name| with(name, &[])).chain(with_momentum).chain(others).collect()
}

/// Fused sums and steps give the bits of the first place with one key per call, in every round.
///
/// Exhaustive: optimizers (and their second formulas) x float dtypes x short lengths x places x
/// manners. Sampled: numbers of values, one for each length, another for each optimizer and dtype;
/// all lengths together, in each 17th way to run them, of up to 9 values where they are
/// long.
pub fn steps_have_the_same_bits(places: &[Place]) {
    let mut num_steps = 0;
    for (index, dtype) in float_dtypes().enumerate() {
        let lengths = SHORT.iter().chain(&BLOCKS).chain(&LONG[2..]);
        let longest: Vec<_> = lengths
            .map(|length| {
                let most = if *length < LONG[0] { 17 } else { 9 };
                Input::new(&length.to_string(), &Spec::new(&[*length], dtype), most, 2, mixed)
            })
            .collect();
        for (number, optimizer) in optimizers().into_iter().enumerate() {
            let rule = UpdateKind::Optimizer(Box::new(optimizer));
            let longest = longest.iter().enumerate();
            let inputs: Vec<_> = longest
                .map(|(place, input)| {
                    let most = input.rounds[0].len();
                    input.first_values(1 + (number + 4 * index + 3 * place) % most)
                })
                .collect();
            num_steps += check_steps(places, &rule, &inputs[..SHORT.len()], 1);
            num_steps += check_steps(places, &rule, &inputs, 17);
        }
    }
    println!("{num_steps} weights compared");
}

fn check_steps(places: &[Place], rule: &UpdateKind, inputs: &[Input], stride: usize) -> usize {
    let expected = run(&places[0], rule, Manner::PLAIN, inputs);
    let mut num_steps = 0;
    for (place, manner) in ways(places, stride) {
        let found = run(place, rule, manner, inputs);
        assert_same(&expected, &found, inputs, &(name(place), manner, rule));
        num_steps += found.len();
    }
    num_steps
}

/// A value that is cut into two keys has the bits of the uncut value. The first part shows that a
/// prefix of a value has the bits of the complete value.
///
/// Exhaustive: all dtypes, every place, cuts at and around the lengths of blocks. Each place uses
/// another manner.
pub fn parts_have_the_bits_of_the_complete_value(places: &[Place]) {
    const LENGTH: usize = 67_601;
    let mut num_cuts = 0;
    for dtype in DType::ALL {
        for (count, sample) in [(1, nasty as Sample), (3, mixed), (9, nasty)] {
            let uncut = Input::new("w", &Spec::new(&[LENGTH], dtype), count, 1, sample);
            let sum = uncut.sum();
            for middle in
                SHORT.into_iter().chain(BLOCKS).chain([40_000, 65_535, 65_536, 65_537, LENGTH - 1])
            {
                num_cuts += check_cut(places, &UpdateKind::Assign, (&uncut, &sum), middle);
            }
        }
    }
    for dtype in float_dtypes() {
        let uncut = Input::new("w", &Spec::new(&[4113], dtype), 3, 2, mixed);
        for rule in optimizers().into_iter().map(Box::new).map(UpdateKind::Optimizer) {
            let stepped = run(&places[0], &rule, Manner::PLAIN, std::slice::from_ref(&uncut));
            for middle in [1, 16, 63, 64, 65, 2047, 2048, 2049, 4112] {
                num_cuts += check_cut(places, &rule, (&uncut, &stepped[0]), middle);
            }
        }
    }
    println!("{num_cuts} cuts compared");
}

fn check_cut(
    places: &[Place],
    rule: &UpdateKind,
    (uncut, expected): (&Input, &[u8]),
    middle: usize,
) -> usize {
    let length = uncut.spec.num_elements();
    let parts = [uncut.part("w", 0, middle), uncut.part("x", middle, length - middle)];
    let (left, right) = expected.split_at(middle * uncut.spec.dtype.size());
    let expected = [left.to_vec(), right.to_vec()];
    let num_compared = match rule {
        UpdateKind::Optimizer(optimizer) => match optimizer.name() {
            // Noise depends on the key and on the position of the element.
            "sgld" => 1,
            // Norms are over the complete value.
            "lars" | "lamb" => return 0,
            _ => 2,
        },
        _ => 2,
    };
    for (place, manner) in places.iter().zip(Manner::all().step_by(5).cycle()) {
        let found = run(place, rule, manner, &parts);
        let what = (name(place), manner, rule, middle);
        assert_same(&expected, &found[..num_compared], &parts, &what);
    }
    places.len()
}

/// Every store rejects a call with a value without elements. A step without a store does nothing.
pub fn empty_values_are_rejected(places: &[Place]) {
    for place in places {
        let tensor = |length: usize| {
            let bytes = vec![0; 4 * length];
            let spec = TensorSpec::new([length], DType::F32);
            Tensor::from_bytes(&place.backends, (place.device)(0), spec, &bytes).unwrap()
        };
        let store = (place.create)(place.store, &place.backends);
        let result = store.init(&[key("a"), key("b")], &[tensor(1).into(), tensor(0).into()]);
        assert_code(result, ErrorCode::InvalidArgument);
        assert!(store.keys().unwrap().is_empty());
        for optimizer in optimizers() {
            let mut weight = tensor(0);
            let mut state = optimizer.create_state(&weight).unwrap();
            let gradients = [tensor(0), tensor(0)];
            optimizer.update(&key("a"), &mut weight, &gradients, &mut state).unwrap();
            assert_eq!(weight.num_elements(), 0);
        }
    }
}
