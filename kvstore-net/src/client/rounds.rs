//! Pushes of a [`NetStore`] to rounds.

use std::collections::BTreeMap;

use kvstore_core::key::describe_call;
use kvstore_core::{BinaryOp, Error, Key, Result, Scalar, Value, fallible};

use super::connection::Call;
use super::round_options::Rounds;
use super::store::NetStore;
use crate::proto;
use crate::proto::request::Verb;

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
        let round = rounds.round(weight);
        if let Some(sharded) = &self.sharded {
            return sharded.push_to_round((&keys, &sums), priority, round);
        }
        let (what, round) = (describe_call("push", &keys), Some(round));
        let verb = |push| Ok(Verb::Push(proto::Push { round, ..push }));
        self.push_as(&what, (&keys, &sums), priority, verb).map(drop)
    }
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
