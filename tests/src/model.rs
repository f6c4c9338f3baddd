//! The simplest possible store: a list of keys in the order of initialisation, with their values.

use kvstore::ErrorCode;

use crate::arithmetic::sum;
use crate::clip::clip;
use crate::compression::{Compression, no_residual};
use crate::naive_rows::ValueOrRows;
use crate::policy::{Policy, SgdState};
use crate::spread::sums_of_workers;
use crate::value::{Spec, Value};

/// The codes of all errors of a call. A store may return any of them.
pub type Faults = Vec<ErrorCode>;

/// Keys with values. The values of a repeated key are in call order.
pub type Pairs<T> = [(String, T)];

/// The values that a pull writes to slots, in the order of writing. If a slot appears twice, the
/// last value wins.
pub type SlotWrites = Vec<(usize, Value)>;

/// A naive store.
#[derive(Clone, Debug)]
pub struct Model {
    entries: Vec<Entry>,
    policy: Policy,
    compression: Option<Compression>,
    clip_global_norm: Option<f64>,
    /// The number of workers over which the values of a push are spread, or `None` for a store of
    /// one process.
    num_workers: Option<usize>,
}

#[derive(Clone, Debug)]
struct Entry {
    key: String,
    value: Value,
    state: Option<SgdState>,
    residuals: Vec<Value>,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            policy: Policy::Assign,
            compression: None,
            clip_global_norm: None,
            num_workers: None,
        }
    }
}

impl Model {
    /// Returns the model of a store that workers share. The values of each push are spread over the
    /// workers, and the store receives the sum of each worker.
    pub fn of_workers(num_workers: usize) -> Self {
        Self { num_workers: Some(num_workers), ..Self::default() }
    }

    /// Stores a value per key.
    pub fn init(&mut self, pairs: &Pairs<Value>) -> Result<(), Faults> {
        none_of(self.faults_of_init(pairs))?;
        for (key, value) in pairs {
            self.entries.push(Entry::new(key, value));
        }
        Ok(())
    }

    /// Sums the values of each key and applies the policy to the sum, in the order of
    /// initialisation.
    pub fn push(&mut self, pairs: &Pairs<Value>) -> Result<(), Faults> {
        none_of(self.faults_of_push(pairs))?;
        self.push_checked(pairs, |_| None)
    }

    /// Works like [`Model::push`], but some values are row-sparse. If all values of a key are, an
    /// optimizer changes only their rows.
    pub fn push_rows(&mut self, pairs: &Pairs<ValueOrRows>) -> Result<(), Faults> {
        let dense = pairs.iter().map(|(key, value)| (key.clone(), value.to_dense()));
        let dense: Vec<_> = dense.collect();
        let mut faults = self.faults_of_push(&dense);
        if self.compression.is_some() && pairs.iter().any(|(_, value)| value.rows().is_some()) {
            faults.push(ErrorCode::InvalidArgument);
        }
        none_of(faults)?;
        self.push_checked(&dense, |key| {
            let values = pairs.iter().filter(|(other, _)| other == key);
            let rows: Option<Vec<_>> = values.map(|(_, value)| value.rows()).collect();
            Some(rows?.into_iter().flat_map(|rows| rows.indices.clone()).collect())
        })
    }

    /// Pushes valid arguments. `rows_of` returns the rows of a key whose values are all row-sparse.
    fn push_checked(
        &mut self,
        pairs: &Pairs<Value>,
        rows_of: impl Fn(&str) -> Option<Vec<i64>>,
    ) -> Result<(), Faults> {
        let (mut sums, mut left) = (Vec::new(), Vec::new());
        for (index, entry) in self.entries.iter().enumerate() {
            let addends = values_of(&entry.key, pairs);
            if addends.is_empty() {
                continue;
            }
            let addends = match self.num_workers {
                None => addends,
                Some(num_workers) => sums_of_workers(&entry.key, &addends, num_workers),
            };
            let mut residuals = entry.residuals.clone();
            let addends = match &self.compression {
                None => addends,
                Some(compression) => sent(compression, &addends, &mut residuals),
            };
            sums.push(sum(&addends));
            left.push((index, rows_of(&entry.key), residuals));
        }
        // All sums first, because the norm is over all keys of the push.
        if let Some(bound) = self.clip_global_norm {
            clip(&mut sums, bound);
        }
        for ((index, rows, residuals), sum) in left.into_iter().zip(sums) {
            let entry = &mut self.entries[index];
            entry.update(&self.policy, &sum, rows.as_deref())?;
            // Only now, because a failed updater must leave the residuals.
            entry.residuals = residuals;
        }
        Ok(())
    }

    /// Returns the value that each slot receives, cast to the slot's dtype, in the order of
    /// writing. If a slot appears twice, the last value wins.
    pub fn pull(&self, outs: &Pairs<usize>, slots: &[Spec]) -> Result<SlotWrites, Faults> {
        none_of(faults_of_pull(outs, slots, |key| self.value(key)))?;
        let mut written = Vec::new();
        for entry in &self.entries {
            for slot in values_of(&entry.key, outs) {
                written.push((slot, entry.value.cast(slots[slot].dtype)));
            }
        }
        Ok(written)
    }

    /// Returns the value of each key.
    pub fn pull_new(&self, keys: &[String]) -> Result<Vec<Value>, Faults> {
        keys.iter()
            .map(|key| Ok(self.value(key).ok_or([ErrorCode::KeyNotFound])?.clone()))
            .collect()
    }

    /// Pushes, then pulls. Pushes nothing if the pull has a fault.
    pub fn pushpull(
        &mut self,
        pairs: &Pairs<Value>,
        outs: &Pairs<usize>,
        slots: &[Spec],
    ) -> Result<SlotWrites, Faults> {
        none_of(
            [self.faults_of_push(pairs), faults_of_pull(outs, slots, |key| self.value(key))]
                .concat(),
        )?;
        self.push(pairs)?;
        self.pull(outs, slots)
    }

    /// Initialises, then pulls the same keys. Initialises nothing if the pull has a fault.
    pub fn broadcast(
        &mut self,
        pairs: &Pairs<Value>,
        outs: &Pairs<usize>,
        slots: &[Spec],
    ) -> Result<SlotWrites, Faults> {
        let given =
            |key: &str| pairs.iter().find(|(other, _)| other == key).map(|(_, value)| value);
        none_of([self.faults_of_init(pairs), faults_of_pull(outs, slots, given)].concat())?;
        self.init(pairs)?;
        self.pull(outs, slots)
    }

    /// Sets the policy of later pushes. States start anew.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        for entry in &mut self.entries {
            entry.state = None;
        }
    }

    /// Sets the compression of later pushes. Residuals stay.
    pub fn set_compression(&mut self, compression: Option<Compression>) -> Result<(), Faults> {
        if compression.is_some() && self.clip_global_norm.is_some() {
            return Err(vec![ErrorCode::InvalidArgument]);
        }
        self.compression = compression;
        Ok(())
    }

    /// Sets the bound of the global norm of later pushes.
    pub fn set_clip_global_norm(&mut self, bound: Option<f64>) -> Result<(), Faults> {
        if bound.is_some_and(|bound| self.compression.is_some() || bound <= 0.0) {
            return Err(vec![ErrorCode::InvalidArgument]);
        }
        self.clip_global_norm = bound;
        Ok(())
    }

    /// Rolls back to an earlier model. A file cannot contain an updater, so the current one stays,
    /// if there is one.
    pub fn rollback(&mut self, earlier: &Self, is_file: bool) -> Result<(), Faults> {
        let policy = match (&earlier.policy, &self.policy) {
            (Policy::Updater(_), Policy::Updater(_)) if is_file => self.policy.clone(),
            (Policy::Updater(_), _) if is_file => return Err(vec![ErrorCode::InvalidArgument]),
            (earlier, _) => earlier.clone(),
        };
        *self = Self { policy, ..earlier.clone() };
        Ok(())
    }

    /// Removes keys.
    pub fn remove(&mut self, keys: &[String]) -> Result<(), Faults> {
        let faults = keys.iter().filter(|key| self.value(key).is_none());
        none_of(faults.map(|_| ErrorCode::KeyNotFound).collect())?;
        self.entries.retain(|entry| !keys.contains(&entry.key));
        Ok(())
    }

    /// Returns the keys in the order of initialisation.
    pub fn keys(&self) -> Vec<String> {
        self.entries.iter().map(|entry| entry.key.clone()).collect()
    }

    /// Returns the stored value of a key.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    fn faults_of_init(&self, pairs: &Pairs<Value>) -> Faults {
        let mut faults = Vec::new();
        for (position, (key, value)) in pairs.iter().enumerate() {
            let is_repeated = pairs[..position].iter().any(|(earlier, _)| earlier == key);
            if is_repeated || self.value(key).is_some() {
                faults.push(ErrorCode::KeyExists);
            }
            if value.numbers.is_empty() {
                faults.push(ErrorCode::InvalidArgument);
            }
        }
        faults
    }

    fn faults_of_push(&self, pairs: &Pairs<Value>) -> Faults {
        let mut faults = Vec::new();
        for (key, pushed) in pairs {
            match self.value(key) {
                None => faults.push(ErrorCode::KeyNotFound),
                Some(stored) if stored.spec != pushed.spec => faults.push(ErrorCode::SpecMismatch),
                Some(stored)
                    if !stored.spec.dtype.is_float()
                        && (self.compression.is_some()
                            || self.clip_global_norm.is_some()
                            || matches!(self.policy, Policy::Sgd(_))) =>
                {
                    faults.push(ErrorCode::InvalidArgument);
                }
                Some(_) => {}
            }
            if pushed.numbers.is_empty() {
                faults.push(ErrorCode::InvalidArgument);
            }
        }
        faults
    }
}

/// Returns the faults of a pull. `value_of` looks up the stored values.
fn faults_of_pull<'a>(
    outs: &Pairs<usize>,
    slots: &[Spec],
    value_of: impl Fn(&str) -> Option<&'a Value>,
) -> Faults {
    let mut faults = Vec::new();
    for (key, slot) in outs {
        match value_of(key) {
            None => faults.push(ErrorCode::KeyNotFound),
            Some(value) if value.spec.shape != slots[*slot].shape => {
                faults.push(ErrorCode::SpecMismatch);
            }
            Some(_) => {}
        }
    }
    faults
}

/// Returns the decoded values of a key. Values without a residual start with zeros.
fn sent(compression: &Compression, values: &[Value], residuals: &mut Vec<Value>) -> Vec<Value> {
    while residuals.len() < values.len() {
        residuals.push(no_residual(&values[0].spec));
    }
    let pairs = values.iter().zip(residuals);
    pairs.map(|(value, residual)| compression.send(value, residual)).collect()
}

impl Entry {
    fn new(key: &str, value: &Value) -> Self {
        Self { key: key.to_owned(), value: value.clone(), state: None, residuals: Vec::new() }
    }

    /// Updates the value. A failing updater leaves its key unchanged and ends the call.
    fn update(
        &mut self,
        policy: &Policy,
        merged: &Value,
        rows: Option<&[i64]>,
    ) -> Result<(), Faults> {
        self.value = match policy {
            Policy::Assign => merged.clone(),
            Policy::Updater(updater) if updater.fails_for(&self.key) => {
                return Err(vec![ErrorCode::Updater]);
            }
            Policy::Updater(updater) => updater.apply(&self.value, merged),
            Policy::Sgd(sgd) => {
                let state = self.state.get_or_insert_with(|| SgdState::new(&self.value));
                let row_len: usize = merged.spec.shape.iter().skip(1).product();
                let is_touched = |index: usize| {
                    let row = i64::try_from(index / row_len).expect("a small value");
                    rows.is_none_or(|rows| rows.contains(&row))
                };
                sgd.apply_where(state, merged, is_touched)
            }
        };
        Ok(())
    }
}

fn values_of<T: Clone>(key: &str, pairs: &Pairs<T>) -> Vec<T> {
    pairs.iter().filter(|(other, _)| other == key).map(|(_, value)| value.clone()).collect()
}

fn none_of(faults: Faults) -> Result<(), Faults> {
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}
