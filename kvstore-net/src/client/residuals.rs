//! [`Residuals`]: what the compression of this member has not sent yet, and the codes of a push.

use std::collections::{HashMap, HashSet};

use kvstore_core::{
    Backends, Compression, Description, Error, Key, Result, Scalar, Snapshot, Tensor, Value,
    check_compressed, fallible,
};

use super::connection::Answer;

/// The residuals of a value: one for each server that has a part of it.
type Parts = Vec<Option<Tensor>>;

/// What the compression has not sent yet, by key and by the position of the value among those of
/// the key.
#[derive(Debug, Default)]
pub(super) struct Residuals(HashMap<Key, Vec<Parts>>);

impl Residuals {
    /// Returns an encoder for the values of a push. The residuals change only with
    /// [`Residuals::commit`].
    pub(super) fn encoder(&self, compression: Compression, keys: &[Key]) -> Result<Encoder> {
        let mut changed = fallible::hash_map(keys.len())?;
        for key in keys {
            if !changed.contains_key(key) {
                changed.insert(key.clone(), self.0.get(key).cloned().unwrap_or_default());
            }
        }
        Ok(Encoder { compression, changed, before: HashMap::new(), accepted: HashSet::new() })
    }

    /// Keeps the residuals of the parts that servers have accepted. Those of the other parts stay
    /// as they were before the push, or zeros.
    pub(super) fn commit(&mut self, encoder: Encoder) {
        let Encoder { changed, accepted, mut before, .. } = encoder;
        let accepted_keys: HashSet<&Key> = accepted.iter().map(|(key, _)| key).collect();
        for (key, mut values) in changed {
            if !accepted_keys.contains(&key) {
                continue;
            }
            for (position, parts) in values.iter_mut().enumerate() {
                let mut before = before.remove(&(key.clone(), position)).unwrap_or_default();
                for (part, residual) in parts.iter_mut().enumerate() {
                    if !accepted.contains(&(key.clone(), part)) {
                        *residual = before.get_mut(part).and_then(Option::take);
                    }
                }
            }
            self.0.insert(key, values);
        }
    }

    /// Removes the residuals of keys.
    pub(super) fn remove(&mut self, keys: &[Key]) {
        for key in keys {
            self.0.remove(key);
        }
    }

    /// Returns the number of bytes of the residuals of a key.
    pub(super) fn num_bytes(&self, key: &Key) -> usize {
        let tensors = self.0.get(key).into_iter().flatten().flatten().flatten();
        tensors.map(Tensor::num_bytes).sum()
    }

    /// Returns a copy of the residuals of some keys, which shares the tensors.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub(super) fn copied<'a>(&self, keys: impl Iterator<Item = &'a Key>) -> Result<Self> {
        let mut copy = HashMap::new();
        for (key, values) in keys.filter_map(|key| self.0.get_key_value(key)) {
            let values = values.iter().map(|parts| fallible::copied(parts));
            fallible::reserve_entries(&mut copy, 1)?;
            copy.insert(key.clone(), fallible::try_collect(values)?);
        }
        Ok(Self(copy))
    }

    /// Returns the snapshot with the residuals of its keys.
    pub(super) fn add_to(&self, snapshot: &Snapshot) -> Result<Snapshot> {
        let mut joined = fallible::hash_map(self.0.len().min(snapshot.len()))?;
        for (key, values) in snapshot.keys().filter_map(|key| self.0.get_key_value(key)) {
            let complete = values.iter().map(|parts| {
                let parts: Vec<Value> = parts.iter().flatten().map(Value::from).collect();
                Value::concatenate(&parts)?.to_dense()
            });
            joined.insert(key.clone(), fallible::try_collect(complete)?);
        }
        snapshot.with_residuals(snapshot.store_name(), snapshot.compression(), &joined)
    }

    /// Returns the residuals of a snapshot. `split` divides a residual of a key among its servers.
    pub(super) fn of(
        snapshot: &Snapshot,
        split: impl Fn(&Key, &Tensor) -> Result<Parts>,
    ) -> Result<Self> {
        let mut found = HashMap::new();
        for key in snapshot.keys() {
            let residuals = snapshot.residuals(key)?;
            if !residuals.is_empty() {
                let residuals = residuals.iter().map(|residual| split(key, residual));
                found.insert(key.clone(), fallible::try_collect(residuals)?);
            }
        }
        Ok(Self(found))
    }
}

/// Encodes the values of a push.
#[derive(Debug)]
pub(super) struct Encoder {
    compression: Compression,
    changed: HashMap<Key, Vec<Parts>>,
    /// The residuals before the push of the values that have been encoded, by key and position.
    before: HashMap<(Key, usize), Parts>,
    /// The keys and the numbers of the parts that servers have accepted.
    accepted: HashSet<(Key, usize)>,
}

impl Encoder {
    pub(super) fn compression(&self) -> Compression {
        self.compression
    }

    /// Notes that a server has accepted its part of a key.
    pub(super) fn accept(&mut self, key: &Key, part: usize) {
        self.accepted.insert((key.clone(), part));
    }

    /// Forgets that a server has accepted a part of a key, because the key has been replaced since.
    pub(super) fn withdraw(&mut self, key: &Key) {
        self.accepted.retain(|(accepted, _)| accepted != key);
    }

    /// Returns the codes of a value or of its part number `part`. `position` is that of the value
    /// among those of the key.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the value cannot be compressed.
    pub(super) fn encode(
        &mut self,
        backends: &Backends,
        (key, value): (&Key, &Value),
        position: usize,
        part: usize,
    ) -> Result<Tensor> {
        check_compressed(key, value, &self.compression)?;
        let values = self.changed.get_mut(key).ok_or_else(lost)?;
        while values.len() <= position {
            fallible::push(values, Parts::new())?;
        }
        let residual = place(values.get_mut(position).ok_or_else(lost)?, part)?;
        let value = value.to_dense()?;
        if residual.as_ref().is_some_and(|left| left.shape() != value.shape()) {
            // Another worker has replaced the key, or the server will reject the value.
            *residual = None;
        }
        let dtype = value.dtype().arithmetic().unwrap_or(value.dtype());
        let zeros = || {
            let spec = value.spec().with_dtype(dtype);
            Tensor::full(backends, value.device(), spec, Scalar::Float(0.0))
        };
        let before = residual.clone().map_or_else(zeros, Ok)?;
        let codes = self.compression.encode(backends, &value, residual)?;
        fallible::reserve_entries(&mut self.before, 1)?;
        let parts = self.before.entry((key.clone(), position)).or_default();
        *place(parts, part)? = Some(before);
        Ok(codes)
    }
}

/// Notes which keys a server has accepted in a push. `part` is the number of its parts. If an
/// updater fails, these are the keys before the failed one in the server's order, which `described`
/// returns.
pub(super) fn accept(
    encoder: &mut Encoder,
    (keys, part): (&[Key], usize),
    answer: &Result<Answer>,
    described: impl Fn(&[Key]) -> Result<Vec<Description>>,
) {
    match answer {
        Ok(answer) if answer.is_out_of_date() => {}
        Ok(_) => keys.iter().for_each(|key| encoder.accept(key, part)),
        Err(Error::Updater { key: failed, .. }) => {
            let Ok(described) = described(keys) else { return };
            let orders = || keys.iter().zip(described.iter().map(|described| described.order));
            let Some((_, end)) = orders().find(|(key, _)| *key == failed) else { return };
            for (key, _) in orders().filter(|(_, order)| *order < end) {
                encoder.accept(key, part);
            }
        }
        Err(_) => {}
    }
}

/// Returns the place of the residual of a part.
fn place(parts: &mut Parts, part: usize) -> Result<&mut Option<Tensor>> {
    while parts.len() <= part {
        fallible::push(parts, None)?;
    }
    parts.get_mut(part).ok_or_else(lost)
}

fn lost() -> Error {
    Error::Internal("a value without a place for its residual".to_owned())
}

/// Returns the position of each value among those of its key.
pub(super) fn positions(keys: &[Key]) -> Vec<usize> {
    let mut counts: HashMap<&Key, usize> = HashMap::new();
    let count = |key| {
        let count = counts.entry(key).or_default();
        *count += 1;
        *count - 1
    };
    keys.iter().map(count).collect()
}
