//! [`Residuals`]: what the compression of this member has not sent yet, and the codes of a push.

use std::collections::HashMap;

use kvstore_core::{
    Backends, Compression, Error, Key, Result, Snapshot, Tensor, Value, check_compressed, fallible,
};

/// The residuals of a value: one for each server that has a part of it.
type Parts = Vec<Option<Tensor>>;

/// What the compression has not sent yet, by key and by the position of the value among those of
/// the key.
#[derive(Debug, Default)]
pub(super) struct Residuals(HashMap<Key, Vec<Parts>>);

impl Residuals {
    /// Returns an encoder for the values of a push. The residuals change only when it is committed.
    pub(super) fn encoder(&self, compression: Compression, keys: &[Key]) -> Result<Encoder> {
        let mut changed = fallible::hash_map(keys.len())?;
        for key in keys {
            if !changed.contains_key(key) {
                changed.insert(key.clone(), self.0.get(key).cloned().unwrap_or_default());
            }
        }
        Ok(Encoder { compression, changed })
    }

    /// Keeps the residuals of the keys whose push has taken effect.
    pub(super) fn commit(&mut self, encoder: Encoder, is_pushed: impl Fn(&Key) -> bool) {
        self.0.extend(encoder.changed.into_iter().filter(|(key, _)| is_pushed(key)));
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

    /// Returns the snapshot with these residuals.
    pub(super) fn add_to(&self, snapshot: &Snapshot) -> Result<Snapshot> {
        let mut joined = fallible::hash_map(self.0.len())?;
        for (key, values) in &self.0 {
            let complete = values.iter().map(|parts| {
                let parts: Vec<Value> = parts.iter().flatten().map(Value::from).collect();
                Value::concatenate(&parts)?.to_dense()
            });
            joined.insert(key.clone(), fallible::try_collect(complete)?);
        }
        snapshot.with_residuals(snapshot.store_name(), snapshot.compression(), &joined)
    }

    /// Replaces the residuals with those of a snapshot. `split` divides a residual of a key among
    /// its servers.
    pub(super) fn restore(
        &mut self,
        snapshot: &Snapshot,
        split: impl Fn(&Key, &Tensor) -> Result<Parts>,
    ) -> Result<()> {
        let mut restored = HashMap::new();
        for key in snapshot.keys().filter(|key| !snapshot.residuals(key).is_empty()) {
            let residuals = snapshot.residuals(key).iter().map(|residual| split(key, residual));
            restored.insert(key.clone(), fallible::try_collect(residuals)?);
        }
        self.0 = restored;
        Ok(())
    }
}

/// Encodes the values of a push.
#[derive(Debug)]
pub(super) struct Encoder {
    compression: Compression,
    changed: HashMap<Key, Vec<Parts>>,
}

impl Encoder {
    pub(super) fn compression(&self) -> Compression {
        self.compression
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
        let lost = || Error::Internal("a value without a place for its residual".to_owned());
        let values = self.changed.get_mut(key).ok_or_else(lost)?;
        while values.len() <= position {
            fallible::push(values, Parts::new())?;
        }
        let parts = values.get_mut(position).ok_or_else(lost)?;
        while parts.len() <= part {
            fallible::push(parts, None)?;
        }
        let residual = parts.get_mut(part).ok_or_else(lost)?;
        let value = value.to_dense()?;
        if residual.as_ref().is_some_and(|left| left.shape() != value.shape()) {
            // Another worker has replaced the key, or the server will reject the value.
            *residual = None;
        }
        self.compression.encode(backends, &value, residual)
    }
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
