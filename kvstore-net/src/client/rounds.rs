//! Pushes to rounds: [`Rounds`] and what a [`NetStore`] does with them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kvstore_core::key::describe_call;
use kvstore_core::{BinaryOp, Error, Key, Result, Scalar, Value, fallible};

use super::connection::Call;
use super::options::NetStoreOptions;
use super::store::NetStore;
use crate::proto;
use crate::proto::request::Verb;

/// How long a round waits by default for the workers that have not pushed.
const GRACE: Duration = Duration::from_secs(1);

/// What happens to a push that misses its round: one that is based on values from before the last
/// round, or that arrives after the round has closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatePush {
    /// It fails with [`Error::LatePush`].
    #[default]
    Reject,
    /// It belongs to the next round.
    Next,
}

/// How the rounds of a store work.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundOptions {
    min: Option<usize>,
    grace: Duration,
    late: LatePush,
    weight: Option<f64>,
}

impl RoundOptions {
    const NEW: Self = Self { min: None, grace: GRACE, late: LatePush::Reject, weight: None };
}

impl NetStoreOptions {
    fn rounds(&mut self) -> &mut RoundOptions {
        self.rounds.get_or_insert(RoundOptions::NEW)
    }

    /// Makes pushes take part in rounds, with at least `min` members. A round sums the pushes of
    /// several workers to the same keys, in the order of the workers' names, and then makes one
    /// push with the sum. It closes when all live workers have pushed, or when at least `min` have
    /// and the grace period is over. A push waits until its round is committed.
    ///
    /// All workers push the same keys together. The values of a key that occurs several times in a
    /// push are summed first.
    #[must_use]
    pub fn quorum(mut self, min: usize) -> Self {
        self.rounds().min = Some(min);
        self
    }

    /// Sets how long a round waits for further workers when the quorum has pushed, 1 second by
    /// default. Counts whole milliseconds.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.rounds().grace = grace;
        self
    }

    /// Sets what happens to late pushes, [`LatePush::Reject`] by default.
    #[must_use]
    pub fn late(mut self, late: LatePush) -> Self {
        self.rounds().late = late;
        self
    }

    /// Makes rounds compute the weighted mean of the pushes instead of their sum, and sets the
    /// weight of this worker. [`WorkerGroup::set_weight`](kvstore_core::WorkerGroup::set_weight)
    /// changes it. All workers need a weight.
    ///
    /// The worker multiplies its values by its weight. The server sums the products and the
    /// weights in the same order, and divides once. In half precision, the products must not
    /// overflow, so weights should be at most 1.
    #[must_use]
    pub fn weight(mut self, weight: f64) -> Self {
        self.rounds().weight = Some(weight);
        self
    }

    /// Checks the options of rounds. [`NetStore::connect`] does this, too.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if one is not valid, or the quorum is missing.
    pub fn check(&self) -> Result<()> {
        let Some(RoundOptions { min, weight, .. }) = self.rounds else {
            if self.kind == NetStore::QUORUM_NAME {
                let kind = &self.kind;
                let text = "expected the option `quorum`, the least number of members of a round";
                return Err(Error::invalid(format!("store type `{kind}`: {text}")));
            }
            return Ok(());
        };
        match min {
            None => Err(Error::invalid(
                "quorum: expected the least number of members of a round, because `grace`, `late` \
                 or `weight` is set",
            )),
            Some(0) => Err(Error::invalid("quorum: expected at least 1, found 0")),
            Some(_) => weight.map_or(Ok(()), check_weight),
        }
    }
}

/// The rounds of a store.
#[derive(Debug)]
pub(super) struct Rounds {
    options: RoundOptions,
    weight: Mutex<Option<f64>>,
}

impl Rounds {
    /// Returns the rounds of a store with these options, if it has any.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if an option is not valid.
    /// - [`Error::Unsupported`] if there are several servers.
    pub(super) fn of(options: &NetStoreOptions) -> Result<Option<Self>> {
        options.check()?;
        let Some(rounds) = options.rounds else { return Ok(None) };
        let num_servers = options.servers.len();
        if num_servers > 1 {
            let text = format!("quorum: expected one server, found {num_servers}");
            return Err(Error::Unsupported(text));
        }
        Ok(Some(Self { options: rounds, weight: Mutex::new(rounds.weight) }))
    }

    /// Returns the part of a push that makes it take part in a round.
    fn round(&self, weight: Option<f64>) -> proto::RoundPush {
        let RoundOptions { min, grace, late, .. } = self.options;
        let late = match late {
            LatePush::Reject => proto::LatePush::Reject,
            LatePush::Next => proto::LatePush::Next,
        };
        proto::RoundPush {
            min: min.unwrap_or_default() as u64,
            grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX),
            late: late.into(),
            weight,
        }
    }

    fn weight(&self) -> Option<f64> {
        *self.weight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the weight of the next pushes.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if the store was created without a weight.
    /// - [`Error::InvalidArgument`] if the weight is not valid.
    pub(super) fn set_weight(&self, weight: f64) -> Result<()> {
        check_weight(weight)?;
        let mut current = self.weight.lock().unwrap_or_else(PoisonError::into_inner);
        if current.is_none() {
            return Err(without_weight());
        }
        *current = Some(weight);
        Ok(())
    }
}

/// The error for the weight of a store whose rounds have none.
pub(super) fn without_weight() -> Error {
    let text = "set_weight: expected a store that was created with the option `weight`";
    Error::Unsupported(text.to_owned())
}

impl NetStore {
    /// The name of stores whose pushes take part in rounds.
    pub const QUORUM_NAME: &'static str = "dist_quorum";

    /// Takes part in a round, and waits until it is committed.
    pub(super) fn push_to_round(
        &self,
        rounds: &Rounds,
        (keys, values): (&[Key], &[Value]),
        priority: i32,
    ) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let mut by_key = BTreeMap::<&Key, Vec<Value>>::new();
        for (key, value) in keys.iter().zip(values) {
            fallible::push(by_key.entry(key).or_default(), value.clone())?;
        }
        let weight = rounds.weight();
        let mut keys = fallible::with_capacity(by_key.len())?;
        let mut sums = fallible::with_capacity(by_key.len())?;
        for (key, values) in by_key {
            let mut sum = Value::sum(&values).map_err(|error| match error {
                Error::SpecMismatch { expected, found, .. } => {
                    Error::spec_mismatch(key, &expected, &found)
                }
                error => error,
            })?;
            if let Some(weight) = weight
                && sum.spec().dtype().is_float()
            {
                sum = sum.binary_scalar(BinaryOp::Mul, Scalar::from(weight), false)?;
            }
            keys.push(key.clone());
            sums.push(sum);
        }
        let what = describe_call("push", &keys);
        let round = Some(rounds.round(weight));
        let verb = |push| Ok(Verb::Push(proto::Push { round, ..push }));
        self.push_as(&what, (&keys, &sums), priority, verb).map(drop)
    }
}

/// # Errors
/// - [`Error::InvalidArgument`] if the weight is not a finite number above 0.
fn check_weight(weight: f64) -> Result<()> {
    if weight.is_finite() && weight > 0.0 {
        return Ok(());
    }
    Err(Error::invalid(format!("weight: expected a finite number above 0, found {weight}")))
}

impl Call {
    /// Returns whether the server asks for the data.
    pub(super) fn is_supplied(&self) -> bool {
        match &self.verb {
            Verb::Push(push) | Verb::PushPull(proto::PushPull { push: Some(push), .. }) => {
                push.round.is_some()
            }
            _ => false,
        }
    }
}
