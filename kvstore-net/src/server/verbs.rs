//! Makes the calls of members on the store of the server.

use std::collections::BTreeMap;

use kvstore_core::{
    Backends, Compression, DType, Error, Key, KvStore, OnExisting, Optimizer, OptimizerState,
    Result, Tensor, TensorSpec, Value, fallible,
};

use super::access::Permission;
use crate::accounts::Charge;
#[cfg(test)]
use crate::faults::Fault;
use crate::proto::request::Verb;
use crate::proto::{self, change_settings};
use crate::wire::{
    Elements, divide_indices, failure_of, keys_of, parse_keys, parse_spec, spec_of, to_compression,
    value_of,
};

/// A reply with the elements of its values.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) reply: proto::Reply,
    pub(crate) elements: Elements,
    /// What the answer counts until it is sent.
    pub(crate) charge: Option<Charge>,
}

impl Answer {
    /// Returns an answer without elements.
    pub(crate) fn of(reply: proto::Reply) -> Self {
        Self { reply, ..Self::default() }
    }

    /// Returns the answer to a call that used another layout or compression than the server.
    pub(crate) fn out_of_date() -> Self {
        let error = Error::Internal("the call uses another layout or compression".to_owned());
        let failure = Some(proto::Failure { out_of_date: true, ..failure_of(&error) });
        Self::of(proto::Reply { failure, ..proto::Reply::default() })
    }
}

/// The data of a request.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    Values(Vec<Value>),
    /// The bytes of a file, or row indices.
    Tensor(Tensor),
}

/// The pull that follows a push in one call.
#[derive(Debug)]
pub(crate) struct FollowingPull {
    pub(crate) pull: proto::Pull,
    keys: Vec<Key>,
    expected: Vec<TensorSpec>,
}

impl FollowingPull {
    /// Returns whether the pulled values have the types that the caller expects.
    ///
    /// # Errors
    /// - [`Error::KeyNotFound`] if a key is not initialised.
    pub(crate) fn is_as_expected(&self, store: &dyn KvStore) -> Result<bool> {
        let found = store.describe(&self.keys)?;
        Ok(found.iter().map(|description| &description.spec).eq(&self.expected))
    }
}

/// Separates the push and the pull of a call with both.
pub(crate) fn split(verb: Verb) -> Result<(Verb, Option<FollowingPull>)> {
    let Verb::PushPull(both) = verb else { return Ok((verb, None)) };
    let pull = both.pull.unwrap_or_default();
    let keys = parse_keys(&pull.keys)?;
    let expected = fallible::try_collect(both.expected.iter().map(|spec| parse_spec(Some(spec))))?;
    let following = FollowingPull { pull, keys, expected };
    Ok((Verb::Push(both.push.unwrap_or_default()), Some(following)))
}

/// Returns whether a request is a push to a round.
pub(crate) fn is_in_round(verb: &Verb) -> bool {
    matches!(verb, Verb::Push(push) if push.round.is_some())
}

/// Returns the values whose elements a request contains.
pub(crate) fn values_in(verb: &Verb) -> &[proto::Value] {
    match verb {
        Verb::Init(init) => &init.values,
        Verb::Push(push) => &push.values,
        _ => &[],
    }
}

/// Returns the compression of the values that a request contains.
pub(crate) fn compression_in(verb: &Verb) -> Result<Option<Compression>> {
    let Verb::Push(push) = verb else { return Ok(None) };
    push.compression.as_ref().map_or(Ok(None), to_compression)
}

/// Returns the type of the file or of the row indices that a request contains.
pub(crate) fn tensor_in(verb: &Verb) -> Option<TensorSpec> {
    let sum = |lens: &mut dyn Iterator<Item = u64>| lens.fold(0, u64::saturating_add);
    let (len, dtype) = match verb {
        Verb::Rollback(rollback) => (rollback.num_bytes, DType::U8),
        Verb::SetStates(states) => {
            (sum(&mut states.states.iter().map(|state| state.num_bytes)), DType::U8)
        }
        Verb::PullRows(pull) => (sum(&mut pull.num_rows.iter().copied()), DType::I64),
        _ => return None,
    };
    Some(TensorSpec::new([usize::try_from(len).unwrap_or(usize::MAX)], dtype))
}

/// What the server knows about a verb before it makes the call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VerbKind {
    /// The name in metrics, traces and errors.
    pub(crate) name: &'static str,
    /// What the caller must be permitted to do.
    pub(crate) needs: Permission,
    /// Whether the call changes what members see of the store or the group.
    pub(crate) changes: bool,
}

/// Returns the kind of a verb.
pub(crate) fn kind(verb: &Verb) -> VerbKind {
    use Permission::{Administer, Read, Work};
    let (name, needs, changes) = match verb {
        Verb::Init(_) => ("init", Work, true),
        Verb::FinishInit(_) => ("finish_init", Work, true),
        Verb::Push(_) => ("push", Work, true),
        Verb::PushPull(_) => ("push_pull", Work, true),
        // A failed `init` and `set_optimizer` remove keys that no member will finish. The call
        // checks which ones a worker may remove.
        Verb::Remove(keys) if keys.only_present => ("remove", Work, true),
        Verb::Remove(_) => ("remove", Administer, true),
        Verb::ChangeSettings(_) => ("change_settings", Work, true),
        Verb::SetHyperParameters(_) => ("set_hyper_parameters", Work, true),
        Verb::SetStates(_) => ("set_states", Work, true),
        Verb::Rollback(_) => ("rollback", Administer, true),
        Verb::Barrier(_) => ("barrier", Work, true),
        Verb::Command(_) => ("command", Administer, true),
        Verb::Checkpoint(_) => ("checkpoint", Work, false),
        Verb::Reserve(_) => ("reserve", Work, false),
        Verb::Sweep(_) => ("sweep", Work, false),
        Verb::Pull(_) => ("pull", Read, false),
        Verb::PullRows(_) => ("pull_rows", Read, false),
        Verb::Describe(_) => ("describe", Read, false),
        Verb::ListKeys(_) => ("list_keys", Read, false),
        Verb::Stats(_) => ("stats", Read, false),
        Verb::Settings(_) => ("settings", Read, false),
        Verb::TakeSnapshot(_) => ("take_snapshot", Read, false),
        Verb::ReadSnapshot(_) => ("read_snapshot", Read, false),
        Verb::KeepSnapshots(_) => ("keep_snapshots", Read, false),
        Verb::Versions(_) => ("versions", Read, false),
        Verb::Status(_) => ("status", Read, false),
    };
    VerbKind { name, needs, changes }
}

/// Returns whether a call may change the keys or the settings, which pushes do not.
pub(crate) fn changes_more_than_values(verb: &Verb) -> bool {
    matches!(
        verb,
        Verb::Init(_)
            | Verb::FinishInit(_)
            | Verb::Remove(_)
            | Verb::ChangeSettings(_)
            | Verb::SetStates(_)
            | Verb::Rollback(_)
    )
}

/// The most layouts that a call may reserve, so that the numbers do not overflow.
const MOST_LAYOUTS: u64 = 1 << 32;

/// # Errors
/// - [`Error::InvalidArgument`] if a call reserves too many layouts.
pub(super) fn check_layouts(count: u64) -> Result<()> {
    if count <= MOST_LAYOUTS {
        return Ok(());
    }
    Err(Error::invalid(format!("{count} keys: expected at most {MOST_LAYOUTS} in a call")))
}

/// Returns the keys that a request pushes.
pub(crate) fn pushed_keys(verb: &Verb) -> Result<Vec<Key>> {
    let Verb::Push(push) = verb else { return Ok(Vec::new()) };
    let mut keys =
        push.values.iter().map(|value| Key::new(&value.key)).collect::<Result<Vec<_>>>()?;
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

/// Makes a call on the store. Other functions make the calls about the group: barriers, commands
/// and the status.
pub(crate) fn make(
    store: &dyn KvStore,
    backends: &Backends,
    verb: Verb,
    payload: Payload,
) -> Result<Answer> {
    let mut answer = Answer::default();
    match (verb, payload) {
        (Verb::Init(init), Payload::Values(values)) => {
            let existing = match init.on_existing() {
                proto::OnExisting::Reject => OnExisting::Reject,
                proto::OnExisting::Keep => OnExisting::Keep,
                proto::OnExisting::Replace => OnExisting::Replace,
            };
            store.init_with(&keys_in(&init.values)?, &values, existing)?;
        }
        (Verb::Push(push), Payload::Values(values)) => {
            store.push(&keys_in(&push.values)?, &values, push.priority)?;
        }
        (Verb::SetStates(states), Payload::Tensor(bytes)) => {
            let optimizer = parse_optimizer(&states.optimizer)?;
            let states = states_in(backends, &states.states, bytes.host_bytes()?)?;
            store.set_optimizer_states(optimizer, states)?;
        }
        (Verb::Pull(pull), _) => {
            let keys = parse_keys(&pull.keys)?;
            let mut pulled = Vec::new();
            store.pull_into(&keys, 0, &mut pulled)?;
            for (key, pulled) in keys.iter().zip(pulled) {
                let mut value = value_of(key, &pulled.value.into(), &mut answer.elements)?;
                value.order = pulled.order;
                answer.reply.values.push(value);
            }
            answer.reply.has_elements = true;
        }
        (Verb::PullRows(pull), Payload::Tensor(indices)) => {
            let keys = parse_keys(&pull.keys)?;
            let ids = divide_indices(indices.as_slice()?, &pull.num_rows, keys.len())?;
            for (key, rows) in keys.iter().zip(store.pull_rows(&keys, &ids, 0)?) {
                answer.reply.values.push(value_of(key, &Value::Rows(rows), &mut answer.elements)?);
            }
            answer.reply.has_elements = true;
        }
        (Verb::Describe(described), _) => {
            let keys = parse_keys(&described.keys)?;
            for (key, description) in described.keys.into_iter().zip(store.describe(&keys)?) {
                let (order, spec) = (description.order, Some(spec_of(&description.spec)));
                answer.reply.values.push(proto::Value { key, spec, order, ..Default::default() });
            }
        }
        (Verb::Versions(asked), _) => {
            let versions = store.versions(&parse_keys(&asked.keys)?)?;
            #[cfg(test)]
            let versions = versions.into_iter().map(|version| {
                if Fault::OldVersion.is_planted() { version.saturating_sub(1) } else { version }
            });
            for (key, version) in asked.keys.into_iter().zip(versions) {
                answer.reply.values.push(proto::Value {
                    key,
                    version: Some(version),
                    ..Default::default()
                });
            }
        }
        (Verb::Remove(removed), _) => {
            store.remove(&parse_keys(&removed.keys)?)?;
            answer.reply.keys = removed.keys;
        }
        (Verb::ListKeys(_), _) => answer.reply.keys = keys_of(&store.keys()?),
        (Verb::Stats(_), _) => {
            answer.reply.stats = store.stats()?.iter().map(stats_of).collect();
        }
        (Verb::ChangeSettings(change), _) => change_settings(store, change)?,
        (Verb::SetHyperParameters(changed), _) => {
            let parameters = changed.parameters.iter();
            let parameters: Vec<(&str, f64)> =
                parameters.map(|parameter| (parameter.name.as_str(), parameter.value)).collect();
            store.set_hyper_parameters(&parameters)?;
        }
        (
            Verb::PushPull(_)
            | Verb::FinishInit(_)
            | Verb::Barrier(_)
            | Verb::Command(_)
            | Verb::Status(_)
            | Verb::Reserve(_)
            | Verb::Sweep(_)
            | Verb::Settings(_)
            | Verb::TakeSnapshot(_)
            | Verb::ReadSnapshot(_)
            | Verb::KeepSnapshots(_)
            | Verb::Rollback(_)
            | Verb::Checkpoint(_),
            _,
        )
        | (Verb::Init(_) | Verb::Push(_), Payload::Tensor(_))
        | (Verb::SetStates(_) | Verb::PullRows(_), Payload::Values(_)) => {
            return Err(wrong_payload());
        }
    }
    Ok(answer)
}

/// The error for a request whose data are of the wrong kind.
pub(crate) fn wrong_payload() -> Error {
    Error::Internal("a request with the wrong data".to_owned())
}

pub(crate) fn keys_in(values: &[proto::Value]) -> Result<Vec<Key>> {
    values.iter().map(|value| Key::new(&value.key)).collect()
}

fn states_in(
    backends: &Backends,
    heads: &[proto::KeyState],
    mut bytes: &[u8],
) -> Result<BTreeMap<Key, OptimizerState>> {
    let mut states = BTreeMap::new();
    for head in heads {
        let len = usize::try_from(head.num_bytes).unwrap_or(usize::MAX);
        let (state, rest) = bytes.split_at_checked(len).ok_or_else(|| Error::Corrupt {
            subject: "the message".to_owned(),
            reason: "a state is missing".to_owned(),
        })?;
        bytes = rest;
        states.insert(Key::new(&head.key)?, OptimizerState::from_bytes(backends, state)?);
    }
    Ok(states)
}

fn parse_optimizer(json: &str) -> Result<Option<Optimizer>> {
    if json.is_empty() {
        return Ok(None);
    }
    Optimizer::from_json(json).map(Some)
}

fn change_settings(store: &dyn KvStore, change: proto::ChangeSettings) -> Result<()> {
    use change_settings::Change;
    match change.change {
        Some(Change::Optimizer(json)) => match parse_optimizer(&json)? {
            Some(optimizer) => store.set_optimizer(optimizer),
            None => store.set_updater(None),
        },
        Some(Change::ClipGlobalNorm(clip)) => store.set_clip_global_norm(clip.bound),
        Some(Change::Compression(_)) | None => {
            Err(Error::invalid("a change of settings without a setting"))
        }
    }
}

pub(super) fn stats_of(stats: &kvstore_core::KeyStats) -> proto::KeyStats {
    proto::KeyStats {
        key: stats.key.as_str().to_owned(),
        spec: Some(spec_of(&stats.spec)),
        device: stats.device.to_string(),
        value_bytes: stats.value_bytes as u64,
        num_pushes: stats.num_pushes,
        state_bytes: stats.state_bytes as u64,
        placement: None,
    }
}
