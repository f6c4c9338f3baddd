//! Random programs of store verbs. Most calls are valid; the others contain every mistake that a
//! caller can make.

use kvstore::DType;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::compression::Compression;
use crate::format::float_dtypes;
use crate::naive_rows::{NaiveRows, ValueOrRows};
use crate::policy::{NamedUpdater, Policy, Sgd};
use crate::value::{Number, Spec, Value};

/// The keys that programs initialise, in any order.
pub const KEYS: [&str; 5] = ["b", "a", "e", "", "é漢"];

/// A key that no program initialises.
pub const UNKNOWN_KEY: &str = "never";

/// The keys and values of a call. The lengths may differ.
#[derive(Clone, Debug)]
pub struct CallValues {
    /// The keys, with repetitions.
    pub keys: Vec<String>,
    /// The values.
    pub values: Vec<Value>,
}

/// Like [`CallValues`], but some values are row-sparse.
#[derive(Clone, Debug)]
pub struct CallRows {
    /// The keys, with repetitions.
    pub keys: Vec<String>,
    /// The values.
    pub values: Vec<ValueOrRows>,
}

/// The keys and outputs of a call. The lengths may differ.
#[derive(Clone, Debug)]
pub struct CallOutputs {
    /// The keys, with repetitions.
    pub keys: Vec<String>,
    /// The index in `specs` of the array of each key. An array may appear more than once.
    pub slots: Vec<usize>,
    /// The arrays.
    pub specs: Vec<Spec>,
}

impl CallOutputs {
    /// Gives the outputs the keys of the values, in turn, because `broadcast` has one list of keys
    /// for both.
    fn for_keys_of(mut self, given: &CallValues) -> Self {
        if given.keys.is_empty() {
            return Self { keys: Vec::new(), slots: Vec::new(), specs: Vec::new() };
        }
        for (out, key) in self.keys.iter_mut().zip(given.keys.iter().cycle()) {
            if out != UNKNOWN_KEY {
                out.clone_from(key);
            }
        }
        self
    }
}

/// One call of a verb.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are those of the verbs")]
pub enum Operation {
    Init(CallValues),
    Push(CallValues, i32),
    /// Pushes values, some of them row-sparse.
    PushRows(CallRows, i32),
    Pull(CallOutputs, i32),
    PullNew(Vec<String>),
    PushPull(CallValues, CallOutputs, i32),
    /// Pushes, then pulls into the pushed arrays.
    PushPullInPlace(CallValues, i32),
    Broadcast(CallValues, CallOutputs, i32),
    SetPolicy(Policy),
    SetCompression(Option<Compression>),
    SetClipGlobalNorm(Option<f64>),
    Remove(Vec<String>),
    /// Takes a snapshot and keeps it.
    Snapshot,
    /// Rolls back to a kept snapshot, given by its index modulo their number, directly or through a
    /// file.
    Rollback(usize, bool),
    /// Restores the current state from a checkpoint of it.
    Reload,
}

/// Returns programs that begin with the initialisation of some keys, and often with a policy. In
/// about half of them all keys have floating-point dtypes, so that optimizers can run.
pub fn program() -> impl Strategy<Value = Vec<Operation>> {
    let floats = float_dtypes().collect();
    let specs =
        prop_oneof![vec(spec(DType::ALL.to_vec()), KEYS.len()), vec(spec(floats), KEYS.len()),];
    specs.prop_flat_map(|specs| {
        let first = (4..=KEYS.len())
            .prop_flat_map(|count| subsequence((0..KEYS.len()).collect::<Vec<_>>(), count))
            .prop_shuffle();
        let specs_of_first = specs.clone();
        let first = first.prop_flat_map(move |chosen| given_each(&specs_of_first, &chosen));
        let policy = proptest::option::of(policy().prop_map(Operation::SetPolicy));
        (first, policy, vec(operation(specs), 1..20)).prop_map(|(first, policy, rest)| {
            [Operation::Init(first)].into_iter().chain(policy).chain(rest).collect()
        })
    })
}

/// Returns specs of small values, including a scalar and a value larger than a cache line.
pub fn spec(dtypes: Vec<DType>) -> impl Strategy<Value = Spec> {
    let shapes =
        select(vec![vec![1], vec![2, 3], vec![3, 2], vec![4], vec![], vec![2, 1, 2], vec![67]]);
    (shapes, select(dtypes)).prop_map(|(shape, dtype)| Spec { shape, dtype })
}

/// Returns values of a spec.
pub fn value(spec: Spec) -> impl Strategy<Value = Value> {
    vec(number(spec.dtype), spec.num_elements())
        .prop_map(move |numbers| Value { spec: spec.clone(), numbers })
}

/// Returns numbers of a dtype: small numbers, difficult numbers and arbitrary bits.
pub fn number(dtype: DType) -> impl Strategy<Value = Number> {
    let any_bits = any::<i64>().prop_map(move |bits| Number::from_bits(dtype, bits));
    prop_oneof![
        4 => (-9_i64..10).prop_map(Number::Int),
        3 => select(nasty_numbers()),
        2 => (-3.0..3.0).prop_map(Number::Float),
        3 => any_bits,
    ]
    .prop_map(move |number| number.cast(dtype))
}

/// Returns numbers that are difficult for arithmetic. The caller casts them to a dtype.
pub fn nasty_numbers() -> Vec<Number> {
    let floats = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        -0.0,
        5e-324,
        -1e-310,
        1e-40,
        -6e-8,
        65504.0,
        65520.0,
        2049.0,
        3.4e38,
        -1.7e308,
        1e8,
        0.1,
        1.0 + f64::EPSILON,
        // Slightly above half-way between two half-precision numbers, where rounding twice goes
        // wrong.
        1.0 + 1.0 / 2048.0 + 1e-12,
        1.0 + 1.0 / 256.0 + 1e-12,
    ];
    let ints = [
        i64::MIN,
        i64::MAX,
        -1,
        127,
        128,
        255,
        i32::MAX.into(),
        i32::MIN.into(),
        (1 << 30) + (1 << 22) + 1,
    ];
    floats.into_iter().map(Number::Float).chain(ints.into_iter().map(Number::Int)).collect()
}

fn operation(specs: Vec<Spec>) -> impl Strategy<Value = Operation> {
    let priority = || prop_oneof![4 => Just(0), 1 => any::<i32>()];
    let init = prop_oneof![given_once(specs.clone()), given(specs.clone())];
    prop_oneof![
        2 => init.prop_map(Operation::Init),
        10 => (given(specs.clone()), priority()).prop_map(|(given, p)| Operation::Push(given, p)),
        12 => (given_rows(specs.clone()), priority())
            .prop_map(|(given, p)| Operation::PushRows(given, p)),
        5 => (outs(specs.clone()), priority()).prop_map(|(outs, p)| Operation::Pull(outs, p)),
        1 => any_keys().prop_map(Operation::PullNew),
        3 => (given(specs.clone()), outs(specs.clone()), priority())
            .prop_map(|(given, outs, p)| Operation::PushPull(given, outs, p)),
        2 => (given(specs.clone()), priority())
            .prop_map(|(given, p)| Operation::PushPullInPlace(given, p)),
        2 => (given_once(specs.clone()), outs(specs), priority())
            .prop_map(|(given, outs, p)| {
                let outs = outs.for_keys_of(&given);
                Operation::Broadcast(given, outs, p)
            }),
        3 => policy().prop_map(Operation::SetPolicy),
        1 => compression().prop_map(Operation::SetCompression),
        1 => clip_global_norm().prop_map(Operation::SetClipGlobalNorm),
        1 => keys_once().prop_map(Operation::Remove),
        2 => Just(Operation::Snapshot),
        2 => any::<(usize, bool)>().prop_map(|(n, is_file)| Operation::Rollback(n, is_file)),
        1 => Just(Operation::Reload),
    ]
}

fn compression() -> impl Strategy<Value = Option<Compression>> {
    let some = (any::<bool>(), select(vec![0.5, 0.1, 3.0]));
    let some = some.prop_map(|(has_two_bits, threshold)| Compression { has_two_bits, threshold });
    prop_oneof![1 => Just(None), 2 => some.prop_map(Some)]
}

/// Returns bounds below and above the norms of most pushes, and an invalid one.
fn clip_global_norm() -> impl Strategy<Value = Option<f64>> {
    select(vec![None, None, Some(0.7), Some(3.0), Some(40.0), Some(-1.0)])
}

fn policy() -> impl Strategy<Value = Policy> {
    let sgd = (
        select(vec![0.01, 0.1, 1.0]),
        select(vec![0.0, 0.9]),
        select(vec![0.0, 0.01]),
        select(vec![1.0, 0.5]),
        select(vec![0.0, 0.3]),
    );
    let sgd =
        sgd.prop_map(|(learning_rate, momentum, weight_decay, rescale_grad, clip_gradient)| {
            Policy::Sgd(Sgd { learning_rate, momentum, weight_decay, rescale_grad, clip_gradient })
        });
    prop_oneof![
        1 => Just(Policy::Assign),
        3 => select(NamedUpdater::ALL.to_vec()).prop_map(Policy::Updater),
        8 => sgd,
    ]
}

/// Returns the index of a key in [`KEYS`], or sometimes `None` for an unknown key.
fn key() -> impl Strategy<Value = Option<usize>> {
    prop_oneof![30 => (0..KEYS.len()).prop_map(Some), 1 => Just(None)]
}

fn text(key: Option<usize>) -> String {
    key.map_or(UNKNOWN_KEY, |index| KEYS[index]).to_owned()
}

fn any_keys() -> impl Strategy<Value = Vec<String>> {
    vec(key().prop_map(text), 0..4)
}

fn keys_once() -> impl Strategy<Value = Vec<String>> {
    subsequence(KEYS.to_vec(), 0..3).prop_map(|keys| keys.into_iter().map(str::to_owned).collect())
}

/// Returns the spec of the key, or sometimes another one, or one without elements.
fn spec_for(specs: &[Spec], key: Option<usize>) -> impl Strategy<Value = Spec> + use<> {
    let own = specs[key.unwrap_or(0)].clone();
    let empty = Spec::new(&[2, 0], own.dtype);
    prop_oneof![80 => Just(own), 1 => spec(DType::ALL.to_vec()), 1 => Just(empty)]
}

fn given_each(specs: &[Spec], chosen: &[usize]) -> impl Strategy<Value = CallValues> + use<> {
    let keys: Vec<String> = chosen.iter().map(|index| text(Some(*index))).collect();
    let values: Vec<_> = chosen.iter().map(|index| value(specs[*index].clone())).collect();
    values.prop_map(move |values| CallValues { keys: keys.clone(), values })
}

/// Returns some keys, each once, with values of their own specs: valid arguments of `init`.
fn given_once(specs: Vec<Spec>) -> impl Strategy<Value = CallValues> {
    subsequence((0..KEYS.len()).collect::<Vec<_>>(), 0..3)
        .prop_shuffle()
        .prop_flat_map(move |chosen| given_each(&specs, &chosen))
}

/// Returns keys with repetitions and a value for each, sometimes with one value too many or too
/// few.
fn given(specs: Vec<Spec>) -> impl Strategy<Value = CallValues> {
    let pair = key().prop_flat_map(move |key| {
        let value = spec_for(&specs, key).prop_flat_map(value);
        (Just(text(key)), value)
    });
    (vec(pair, 0..5), length_change()).prop_map(|(pairs, change)| {
        let (mut keys, mut values): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        change_length(change, &mut keys, &mut values);
        CallValues { keys, values }
    })
}

/// Works like [`given`], but most values with rows are row-sparse.
fn given_rows(specs: Vec<Spec>) -> impl Strategy<Value = CallRows> {
    given(specs).prop_flat_map(|given| {
        let values: Vec<_> = given.values.into_iter().map(value_or_rows).collect();
        (Just(given.keys), values).prop_map(|(keys, values)| CallRows { keys, values })
    })
}

/// Returns some rows of the value, or sometimes the dense value.
fn value_or_rows(value: Value) -> impl Strategy<Value = ValueOrRows> {
    let num_rows = if value.numbers.is_empty() {
        0
    } else {
        value.spec.shape.first().map_or(0, |length| *length)
    };
    let is_there = vec(any::<bool>(), num_rows);
    (prop::bool::weighted(0.8), is_there).prop_map(move |(is_rows, is_there)| {
        if num_rows == 0 || !is_rows {
            return ValueOrRows::Value(value.clone());
        }
        ValueOrRows::Rows(NaiveRows::of(&value, |row| is_there[row]))
    })
}

/// Returns keys with repetitions and an array for each, of any dtype, sometimes of another shape,
/// and sometimes the array of the pair before.
fn outs(specs: Vec<Spec>) -> impl Strategy<Value = CallOutputs> {
    let dtype = prop_oneof![2 => Just(None), 1 => select(DType::ALL.to_vec()).prop_map(Some)];
    let is_new = prop::bool::weighted(0.8);
    let pair = (key(), dtype, is_new).prop_flat_map(move |(key, dtype, is_new)| {
        let spec = spec_for(&specs, key).prop_map(move |spec| match dtype {
            Some(dtype) => Spec { dtype, ..spec },
            None => spec,
        });
        (Just(text(key)), spec, Just(is_new))
    });
    (vec(pair, 0..5), length_change()).prop_map(|(pairs, change)| {
        let mut outs = CallOutputs { keys: Vec::new(), slots: Vec::new(), specs: Vec::new() };
        for (key, spec, is_new) in pairs {
            let is_last_fit = outs.specs.last().is_some_and(|last| last.shape == spec.shape);
            if is_new || !is_last_fit {
                outs.specs.push(spec);
            }
            outs.keys.push(key);
            outs.slots.push(outs.specs.len() - 1);
        }
        change_length(change, &mut outs.keys, &mut outs.slots);
        outs
    })
}

/// A fault in the lengths of a call.
#[derive(Clone, Copy, Debug)]
enum LengthChange {
    None,
    KeyMissing,
    ValueMissing,
}

fn length_change() -> impl Strategy<Value = LengthChange> {
    prop_oneof![
        40 => Just(LengthChange::None),
        1 => Just(LengthChange::KeyMissing),
        1 => Just(LengthChange::ValueMissing),
    ]
}

fn change_length<T>(change: LengthChange, keys: &mut Vec<String>, values: &mut Vec<T>) {
    match change {
        LengthChange::None => {}
        LengthChange::KeyMissing => drop(keys.pop()),
        LengthChange::ValueMissing => drop(values.pop()),
    }
}
