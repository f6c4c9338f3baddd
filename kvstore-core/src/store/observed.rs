//! Pushes with functions that the store calls on the way: [`LocalStore::push_parts`] and
//! [`LocalStore::push_observed`].

use super::hooks::{CompleteSums, Hooks, OnStart, PushedKeys, StartedPush};
use super::key_push::KeyPush;
use super::local::LocalStore;
use super::table::Entry;
use crate::rows::Value;
use crate::types::{Key, Result};

impl PushedKeys for Vec<KeyPush<'_>> {
    fn len(&self) -> usize {
        self.len()
    }

    fn entry(&self, index: usize) -> &Entry {
        self[index].entry()
    }
}

impl LocalStore {
    /// Pushes to a store whose values are parts of larger values. If the optimizer is layer-wise,
    /// its step needs norms of the larger values.
    ///
    /// Calls `complete` after the norms have been measured and before any value changes, with the
    /// sums of the parts' blocks in the order in which the keys were initialised. It replaces each
    /// key's sums with the sums of all blocks of the larger value, in order. A part must begin at a
    /// multiple of [`norm::BLOCK`](crate::norm::BLOCK) elements. `complete` is not called if no
    /// step needs norms.
    ///
    /// # Errors
    /// - The errors of [`KvStore::push`](super::KvStore::push) and of `complete`. No value has
    ///   changed then.
    pub fn push_parts(
        &self,
        keys: &[Key],
        values: &[Value],
        complete: &mut CompleteSums<'_>,
    ) -> Result<()> {
        let mut complete = |sums: &mut [_]| complete(sums);
        self.push_with(keys, values, Hooks { complete: Some(&mut complete), start: None })
    }

    /// Pushes, and calls `start` when the push has been checked and holds the locks of its keys,
    /// before it changes anything. For two pushes of a key, the order of these calls is the order
    /// of their steps. With an updater, this is not so, because it locks one key after the other.
    ///
    /// The push may still fail after `start`, for example with
    /// [`OutOfMemory`](crate::Error::OutOfMemory).
    ///
    /// # Errors
    /// - The errors of [`KvStore::push`](super::KvStore::push).
    /// - The error of `start`. Nothing has changed then.
    pub fn push_observed(
        &self,
        keys: &[Key],
        values: &[Value],
        start: &mut OnStart<'_>,
    ) -> Result<()> {
        let mut start = |push: &StartedPush<'_>| start(push);
        self.push_with(keys, values, Hooks { start: Some(&mut start), complete: None })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::backend::registry::Backends;
    use crate::cpu::CpuBackend;
    use crate::optimizer::Optimizer;
    use crate::store::KvStore;
    use crate::tensor::Tensor;
    use crate::types::{Device, Error};

    fn store() -> (Backends, LocalStore, [Key; 2]) {
        let backends = Backends::new(Vec::from([CpuBackend::with_threads(1)]));
        let store = LocalStore::new("local", backends.clone()).unwrap();
        let keys = ["a", "b"].map(|name| Key::new(name).unwrap());
        let value = value(&backends, 1.0);
        store.init(&keys, &[value.clone(), value]).unwrap();
        (backends, store, keys)
    }

    fn value(backends: &Backends, number: f32) -> Value {
        Tensor::from_slice(backends, Device::cpu(0), [1], &[number]).unwrap().into()
    }

    fn number(store: &LocalStore, key: &Key) -> f32 {
        store.pull(std::slice::from_ref(key), 0).unwrap()[0].to_vec().unwrap()[0]
    }

    #[test]
    fn the_start_sees_the_keys_before_the_push() {
        let (backends, store, [a, b]) = store();
        store.set_optimizer(Optimizer::sgd().with("learning_rate", 1.0).unwrap()).unwrap();
        let mut seen = Vec::new();
        let mut start = |push: &StartedPush<'_>| {
            assert!(!push.has_updater());
            let keys = push.keys().map(|(key, count)| (key.clone(), count));
            for ((key, count), value) in keys.zip(push.values()) {
                seen.push((key, count, value?.to_dense()?.to_vec::<f32>()?[0]));
            }
            Ok(())
        };
        let (one, two) = (value(&backends, 1.0), value(&backends, 2.0));
        // In the order of initialisation, each key once.
        store
            .push_observed(&[b.clone(), a.clone(), b.clone()], &[two.clone(), one, two], &mut start)
            .unwrap();
        store
            .push_observed(std::slice::from_ref(&b), &[value(&backends, 1.0)], &mut start)
            .unwrap();
        let expected = [(a.clone(), 0, 1.0), (b.clone(), 0, 1.0), (b.clone(), 1, -3.0)];
        assert_eq!(seen, expected);
        assert_eq!((number(&store, &a), number(&store, &b)), (0.0, -4.0));
    }

    #[test]
    fn a_push_that_must_not_start_changes_nothing() {
        let (backends, store, [a, b]) = store();
        let mut reject = |_: &StartedPush<'_>| Err(Error::invalid("no"));
        let values = [value(&backends, 5.0), value(&backends, 5.0)];
        for optimizer in [None, Some(Optimizer::new("adam").unwrap())] {
            if let Some(optimizer) = optimizer {
                store.set_optimizer(optimizer).unwrap();
            }
            let keys = [a.clone(), b.clone()];
            let error = store.push_observed(&keys, &values, &mut reject).unwrap_err();
            assert_eq!(error.to_string(), "no");
            assert_eq!((number(&store, &a), number(&store, &b)), (1.0, 1.0));
            assert!(store.stats().unwrap().iter().all(|key| key.num_pushes == 0));
        }
        store.push(std::slice::from_ref(&a), &values[..1], 0).unwrap();
    }

    #[test]
    fn a_push_that_is_not_valid_does_not_start() {
        let (backends, store, _) = store();
        let mut start = |_: &StartedPush<'_>| panic!("the key does not exist");
        let unknown = [Key::new("c").unwrap()];
        store.push_observed(&unknown, &[value(&backends, 1.0)], &mut start).unwrap_err();
    }
}
