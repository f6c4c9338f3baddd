//! Runs a program on a store and on the model, and compares all observable state after every call.

use kvstore::{
    Error, ErrorCode, NDArray, OnExisting, Optimizer, Pairs, Result, Scalar, Snapshot, Store,
    backends,
};

use crate::arrays::{
    UpdaterLog, from_array, from_tensor, key, keys, set_updater, to_array, to_arrays,
};
use crate::compare::difference;
use crate::model::{Faults, Model, SlotWrites};
use crate::naive_rows::{NaiveRows, ValueOrRows};
use crate::operations::{CallOutputs, CallRows, CallValues, KEYS, Operation, UNKNOWN_KEY};
use crate::policy::{Policy, Sgd};
use crate::value::{Number, Spec, Value};

/// A description of a difference between store and model.
pub type Disagreement = String;

/// The error code of a call that failed on both sides, or `None` if it succeeded on both.
pub type Outcome = Result<Option<ErrorCode>, Disagreement>;

/// Runs the program on both, and returns the outcome of each call. Stops at the first difference.
pub fn run(store: &Store, program: &[Operation]) -> Result<Vec<Option<ErrorCode>>, Disagreement> {
    run_beside(Model::default(), store, program)
}

/// Works like [`run`], with another model.
pub fn run_beside(
    model: Model,
    store: &Store,
    program: &[Operation],
) -> Result<Vec<Option<ErrorCode>>, Disagreement> {
    run_watched(model, store, program, |_| Ok(()))
}

/// Works like [`run_beside`], and calls `watch` with the model after each call.
pub fn run_watched(
    mut model: Model,
    store: &Store,
    program: &[Operation],
    mut watch: impl FnMut(&Model) -> Result<(), Disagreement>,
) -> Result<Vec<Option<ErrorCode>>, Disagreement> {
    let mut kept = Vec::new();
    let mut outcomes = Vec::with_capacity(program.len());
    for (step, operation) in program.iter().enumerate() {
        let outcome = call(store, &mut model, &mut kept, operation).and_then(|outcome| {
            compare_contents(store, &model)?;
            watch(&model)?;
            Ok(outcome)
        });
        outcomes.push(outcome.map_err(|what| format!("step {step}, {operation:?}: {what}"))?);
    }
    Ok(outcomes)
}

fn call(
    store: &Store,
    model: &mut Model,
    kept: &mut Vec<(Model, Snapshot)>,
    operation: &Operation,
) -> Outcome {
    match operation {
        Operation::Init(given) => give(
            given,
            |pairs| model.init(pairs),
            |pairs| store.init_pairs(pairs, OnExisting::Reject),
        ),
        Operation::Push(given, priority) => {
            give(given, |pairs| model.push(pairs), |pairs| store.push_pairs(pairs, *priority))
        }
        Operation::PushRows(given, priority) => push_rows(store, model, given, *priority),
        Operation::Pull(outs, priority) => take(
            &PullArrays::new(outs),
            |pairs| model.pull(pairs, &outs.specs),
            |pairs| store.pull_pairs(pairs, *priority),
        ),
        Operation::PullNew(texts) => pull_new(store, model, texts),
        Operation::PushPull(given, outs, priority) => give_and_take(
            given,
            outs,
            |values, slots| model.pushpull(values, slots, &outs.specs),
            |values, outs| store.pushpull_pairs(values, outs, *priority),
        ),
        Operation::PushPullInPlace(given, priority) => {
            push_pull_in_place(store, model, given, *priority)
        }
        Operation::Broadcast(given, outs, priority) => give_and_take(
            given,
            outs,
            |values, slots| model.broadcast(values, slots, &outs.specs),
            |values, outs| store.broadcast_pairs(values, outs, *priority),
        ),
        Operation::SetPolicy(policy) => {
            model.set_policy(policy.clone());
            compare_results(set_policy(store, policy), Ok(()), |(), ()| Ok(()))
        }
        Operation::SetCompression(compression) => {
            let found = match compression {
                None => store.clear_gradient_compression(),
                Some(compression) => {
                    store.set_gradient_compression(compression.name(), compression.threshold)
                }
            };
            compare_results(found, model.set_compression(*compression), |(), ()| Ok(()))
        }
        Operation::SetClipGlobalNorm(bound) => {
            let found = match bound {
                None => store.clear_clip_global_norm(),
                Some(bound) => store.set_clip_global_norm(*bound),
            };
            compare_results(found, model.set_clip_global_norm(*bound), |(), ()| Ok(()))
        }
        Operation::Remove(texts) => {
            compare_results(store.remove(keys(texts)), model.remove(texts), |(), ()| Ok(()))
        }
        Operation::Snapshot => {
            kept.push((model.clone(), store.snapshot().map_err(|error| error.chain())?));
            Ok(None)
        }
        Operation::Rollback(number, is_file) => {
            let Some(index) = number.checked_rem(kept.len()) else { return Ok(None) };
            let (earlier, snapshot) = &kept[index];
            let found = if *is_file {
                through_a_file(snapshot).and_then(|snapshot| store.rollback(&snapshot))
            } else {
                store.rollback(snapshot)
            };
            compare_results(found, model.rollback(earlier, *is_file), |(), ()| Ok(()))
        }
        Operation::Reload => {
            let now = store.snapshot().and_then(|snapshot| through_a_file(&snapshot));
            let found = now.and_then(|now| store.rollback(&now));
            compare_results(found, Ok(()), |(), ()| Ok(()))
        }
    }
}

/// Pushes values, some of them row-sparse. Checks that the call does not change them, and that
/// later writes to arrays do not reach the store.
fn push_rows(store: &Store, model: &mut Model, given: &CallRows, priority: i32) -> Outcome {
    let value = |value: &ValueOrRows| match value {
        ValueOrRows::Value(value) => {
            let array = to_array(value);
            (kvstore::Value::from(&array), Some(array))
        }
        ValueOrRows::Rows(rows) => (rows.to_rows().into(), None),
    };
    let (values, arrays): (Vec<_>, Vec<_>) = given.values.iter().map(value).unzip();
    let pairs = Pairs::new(keys(&given.keys), values.clone());
    let found = pairs.and_then(|pairs| store.push_pairs(&pairs, priority));
    let expected = zip(&given.keys, &given.values).and_then(|pairs| model.push_rows(&pairs));
    let outcome = compare_results(found, expected, |(), ()| Ok(()))?;
    // The arguments must be unchanged, even if the call failed.
    for ((value, array), given) in values.iter().zip(&arrays).zip(&given.values) {
        let found = match (value, array) {
            (_, Some(array)) => from_array(array),
            (kvstore::Value::Dense(value), None) => from_tensor(value),
            (kvstore::Value::Rows(rows), None) => NaiveRows::from_rows(rows).to_dense(),
        };
        compare_values(&[given.to_dense()], &[found])
            .map_err(|what| format!("pushed value changed: {what}"))?;
        if let Some(array) = array {
            spoil(std::slice::from_ref(array))?;
        }
    }
    Ok(outcome)
}

/// Returns the snapshot after writing it to a file and reading it again.
fn through_a_file(snapshot: &Snapshot) -> Result<Snapshot> {
    let bytes = snapshot.to_bytes()?;
    let read = Snapshot::from_bytes(backends(), &bytes)?;
    assert_eq!(read.to_bytes()?, bytes, "what is read is written as it was");
    Ok(read)
}

/// Runs a call that reads arrays.
fn give(
    given: &CallValues,
    on_model: impl FnOnce(&[(String, Value)]) -> Result<(), Faults>,
    on_store: impl FnOnce(&Pairs) -> Result<()>,
) -> Outcome {
    let pushed = PushArrays::new(given);
    let expected = given.pairs().and_then(|pairs| on_model(&pairs));
    let found = pushed.pairs().and_then(|pairs| on_store(&pairs));
    let outcome = compare_results(found, expected, |(), ()| Ok(()))?;
    pushed.check_and_spoil()?;
    Ok(outcome)
}

/// Runs a call that writes arrays.
fn take(
    pulled: &PullArrays<'_>,
    on_model: impl FnOnce(&[(String, usize)]) -> Result<SlotWrites, Faults>,
    on_store: impl FnOnce(&Pairs) -> Result<()>,
) -> Outcome {
    let expected = pulled.outs.pairs().and_then(|pairs| on_model(&pairs));
    let found = pulled.pairs().and_then(|pairs| on_store(&pairs));
    pulled.check_and_spoil(found, expected)
}

/// Runs a call that reads some arrays and writes others.
fn give_and_take(
    given: &CallValues,
    outs: &CallOutputs,
    on_model: impl FnOnce(&[(String, Value)], &[(String, usize)]) -> Result<SlotWrites, Faults>,
    on_store: impl FnOnce(&Pairs, &Pairs) -> Result<()>,
) -> Outcome {
    let (pushed, pulled) = (PushArrays::new(given), PullArrays::new(outs));
    let values = given.pairs();
    let outcome =
        take(&pulled, |slots| on_model(&values?, slots), |outs| on_store(&pushed.pairs()?, outs))?;
    pushed.check_and_spoil()?;
    Ok(outcome)
}

/// Runs a call that writes the arrays that it has read.
fn push_pull_in_place(
    store: &Store,
    model: &mut Model,
    given: &CallValues,
    priority: i32,
) -> Outcome {
    let outs = CallOutputs {
        keys: given.keys.clone(),
        slots: (0..given.values.len()).collect(),
        specs: given.values.iter().map(|value| value.spec.clone()).collect(),
    };
    let (arrays, before) = (to_arrays(&given.values), given.values.clone());
    take(
        &PullArrays { arrays, before, outs: &outs },
        |slots| model.pushpull(&given.pairs()?, slots, &outs.specs),
        |pairs| store.pushpull_pairs(pairs, pairs, priority),
    )
}

fn pull_new(store: &Store, model: &Model, texts: &[String]) -> Outcome {
    let found = store.pull_new(keys(texts));
    compare_results(found, model.pull_new(texts), |found, expected| {
        compare_values(expected, &found.iter().map(from_array).collect::<Vec<_>>())
    })
}

fn set_policy(store: &Store, policy: &Policy) -> Result<()> {
    match policy {
        Policy::Assign => store.clear_updater(),
        Policy::Updater(updater) => set_updater(store, *updater, &UpdaterLog::default()),
        Policy::Sgd(sgd) => store.set_optimizer(optimizer(sgd)?),
    }
}

/// Returns the optimizer for the store with the same hyper-parameters.
pub fn optimizer(sgd: &Sgd) -> Result<Optimizer> {
    let options = [
        ("learning_rate", sgd.learning_rate),
        ("momentum", sgd.momentum),
        ("wd", sgd.weight_decay),
        ("rescale_grad", sgd.rescale_grad),
        ("clip_gradient", sgd.clip_gradient),
    ];
    Optimizer::from_options("sgd", &options.map(|(name, value)| (name.to_owned(), value)))
}

/// Compares the keys, their order and every stored value. So a failed call must have changed
/// nothing.
pub fn compare_contents(store: &Store, model: &Model) -> Result<(), Disagreement> {
    let keys = store.keys().map_err(|error| error.chain())?;
    let found: Vec<String> = keys.iter().map(ToString::to_string).collect();
    if found != model.keys() {
        return Err(format!("keys: expected {:?}, found {found:?}", model.keys()));
    }
    for text in KEYS.into_iter().chain([UNKNOWN_KEY]) {
        let is_there = store.contains(&key(text)).map_err(|error| error.chain())?;
        if is_there != model.value(text).is_some() {
            return Err(format!("contains({text:?}) is wrong"));
        }
        let Some(expected) = model.value(text) else { continue };
        let found = store.pull_new(text).map_err(|error| error.chain())?;
        compare_values(std::slice::from_ref(expected), &[from_array(&found[0])])
            .map_err(|what| format!("stored for {text:?}: {what}"))?;
    }
    Ok(())
}

/// The values of a call as arrays.
struct PushArrays<'a> {
    given: &'a CallValues,
    arrays: Vec<NDArray>,
}

impl<'a> PushArrays<'a> {
    fn new(given: &'a CallValues) -> Self {
        Self { given, arrays: to_arrays(&given.values) }
    }

    fn pairs(&self) -> Result<Pairs> {
        Pairs::new(keys(&self.given.keys), self.arrays.clone())
    }

    /// Checks that the call has not changed its arguments, then overwrites them. The comparison of
    /// the store's contents afterwards shows that later writes do not reach the store.
    fn check_and_spoil(&self) -> Result<(), Disagreement> {
        let found: Vec<_> = self.arrays.iter().map(from_array).collect();
        compare_values(&self.given.values, &found)
            .map_err(|what| format!("pushed array changed: {what}"))?;
        spoil(&self.arrays)
    }
}

/// The arrays that a call writes.
struct PullArrays<'a> {
    outs: &'a CallOutputs,
    before: Vec<Value>,
    arrays: Vec<NDArray>,
}

impl<'a> PullArrays<'a> {
    fn new(outs: &'a CallOutputs) -> Self {
        let before: Vec<_> = outs.specs.iter().map(sevens).collect();
        Self { outs, arrays: to_arrays(&before), before }
    }

    fn pairs(&self) -> Result<Pairs> {
        let arrays: Vec<_> =
            self.outs.slots.iter().map(|slot| self.arrays[*slot].clone()).collect();
        Pairs::new(keys(&self.outs.keys), arrays)
    }

    /// Compares the written arrays, then overwrites them, so that the next comparison shows that
    /// later writes do not reach the store.
    fn check_and_spoil(&self, found: Result<()>, expected: Result<SlotWrites, Faults>) -> Outcome {
        let mut after = self.before.clone();
        for (slot, value) in expected.iter().flatten() {
            after[*slot] = value.clone();
        }
        let outcome = compare_results(found, expected, |(), _| Ok(()))?;
        let found: Vec<_> = self.arrays.iter().map(from_array).collect();
        compare_values(&after, &found).map_err(|what| format!("out: {what}"))?;
        spoil(&self.arrays)?;
        Ok(outcome)
    }
}

impl CallValues {
    fn pairs(&self) -> Result<Vec<(String, Value)>, Faults> {
        zip(&self.keys, &self.values)
    }
}

impl CallOutputs {
    fn pairs(&self) -> Result<Vec<(String, usize)>, Faults> {
        zip(&self.keys, &self.slots)
    }
}

fn zip<T: Clone>(keys: &[String], values: &[T]) -> Result<Vec<(String, T)>, Faults> {
    if keys.len() != values.len() {
        return Err(vec![ErrorCode::LengthMismatch]);
    }
    Ok(keys.iter().cloned().zip(values.iter().cloned()).collect())
}

fn sevens(spec: &Spec) -> Value {
    Value::new(spec.clone(), &vec![Number::Int(7); spec.num_elements()])
}

fn spoil(arrays: &[NDArray]) -> Result<(), Disagreement> {
    arrays.iter().try_for_each(|array| array.fill(Scalar::Int(99))).map_err(|error| error.chain())
}

/// Compares the results if both sides succeed, otherwise the error codes.
fn compare_results<A, B>(
    found: Result<A, Error>,
    expected: Result<B, Faults>,
    compare: impl FnOnce(&A, &B) -> Result<(), Disagreement>,
) -> Outcome {
    match (found, expected) {
        (Ok(found), Ok(expected)) => compare(&found, &expected).map(|()| None),
        (Err(error), Err(faults)) if faults.contains(&error.code()) => Ok(Some(error.code())),
        (Err(error), Err(faults)) => {
            Err(format!("expected one of {faults:?}, found {}: {}", error.code(), error.chain()))
        }
        (Ok(_), Err(faults)) => Err(format!("expected one of {faults:?}, but the call succeeded")),
        (Err(error), Ok(_)) => Err(format!("failed with {}: {}", error.code(), error.chain())),
    }
}

fn compare_values(expected: &[Value], found: &[Value]) -> Result<(), Disagreement> {
    if expected.len() != found.len() {
        return Err(format!("expected {} values, found {}", expected.len(), found.len()));
    }
    let mut pairs = expected.iter().zip(found).enumerate();
    match pairs.find_map(|(index, (a, b))| Some((index, difference(a, b)?))) {
        Some((index, difference)) => Err(format!("value {index}: {difference}")),
        None => Ok(()),
    }
}
