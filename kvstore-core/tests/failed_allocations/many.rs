//! Cases with long lists of keys, of values of one key, or of arrays.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use kvstore_allocators::{case, without_failures};
use kvstore_core::{
    ArrayList, Compression, DType, Device, Key, KvStore, LocalStore, NDArray, Optimizer,
    OptimizerStates, Result, RowSparse, Scalar, Shape, Snapshot, Tensor, TensorSpec, Value,
};

use super::{Case, LEN, assign, backends, change, key, store, tensor};

/// The number of keys. A list of this many pointers is a long allocation.
const NUM_KEYS: usize = 2800;

fn small() -> Tensor {
    Tensor::from_slice(&backends(), Device::cpu(0), [1, 2], &[0.25_f32; 2]).unwrap()
}

pub(super) fn many_keys(prefix: &str) -> Vec<Key> {
    (0..NUM_KEYS).map(|number| Key::new(&format!("{prefix}{number}")).unwrap()).collect()
}

/// Returns a store of many small keys, and one value per key.
fn many_stored(configure: &dyn Fn(&LocalStore) -> Result<()>) -> (LocalStore, Vec<Value>) {
    let values: Vec<Value> = (0..NUM_KEYS).map(|_| small().into()).collect();
    let store = LocalStore::new("local", backends()).unwrap();
    store.init(&many_keys("w"), &values).unwrap();
    configure(&store).unwrap();
    (store, values)
}

fn compress(store: &LocalStore) -> Result<()> {
    store.set_compression(Some(Compression::new("2bit", 0.5)?))
}

/// Returns a case that calls a store of many small keys, with one value per key.
fn many(
    name: &'static str,
    configure: impl Fn(&LocalStore) -> Result<()> + 'static,
    call: impl Fn(&LocalStore, &[Key], &[Value]) -> Result<()> + Clone + Send + 'static,
) -> Case {
    change(
        name,
        move || many_stored(&configure),
        move |store, values| {
            let keys = without_failures(|| many_keys("w"));
            call(store, &keys, values)
        },
    )
}

pub(super) fn cases_of_keys() -> Vec<Case> {
    let push = |store: &LocalStore, keys: &[Key], values: &[Value]| store.push(keys, values, 0);
    vec![
        many("push to many keys", |_| Ok(()), push),
        many(
            "push to many keys with an optimizer",
            |store| store.set_optimizer(Optimizer::sgd()),
            push,
        ),
        many("push to many keys with a compression", compress, push),
        many(
            "push to many keys with a compression and an optimizer",
            |store| {
                compress(store)?;
                store.set_optimizer(Optimizer::sgd())
            },
            push,
        ),
        many("pull of many keys", |_| Ok(()), |store, keys, _| store.pull(keys, 0).map(drop)),
        many(
            "init of many more keys",
            |_| Ok(()),
            |store, _, values| {
                // Arguments are made `without_failures`, so that only the store's allocations fail.
                let more = without_failures(|| many_keys("v"));
                store.init(&more, values)
            },
        ),
        many(
            "pull of rows of many keys",
            |_| Ok(()),
            |store, keys, _| {
                let rows = without_failures(|| vec![[0].as_slice(); keys.len()]);
                store.pull_rows(keys, &rows, 0).map(drop)
            },
        ),
        many(
            "has_specs of many keys, which allocates nothing",
            |_| Ok(()),
            |store, keys, values| {
                assert!(store.has_specs(keys, values));
                Ok(())
            },
        ),
        many("keys", |_| Ok(()), |store, _, _| store.keys().map(drop)),
        many("stats", |_| Ok(()), |store, _, _| store.stats().map(drop)),
        many("a snapshot of many keys", |_| Ok(()), |store, _, _| store.snapshot().map(drop)),
        many(
            "a rollback of many keys",
            |_| Ok(()),
            |store, _, _| {
                let snapshot = without_failures(|| store.snapshot())?;
                store.rollback(&snapshot)
            },
        ),
    ]
}

/// Returns a store of many keys with optimizer states. All cases of a process share it.
fn many_trained() -> &'static LocalStore {
    static STORE: OnceLock<LocalStore> = OnceLock::new();
    STORE.get_or_init(|| {
        let (store, values) =
            many_stored(&|store| store.set_optimizer(Optimizer::new("adam").unwrap()));
        store.push(&many_keys("w"), &values, 0).unwrap();
        store
    })
}

/// Returns the checkpoint of [`many_trained`].
fn checkpoint() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| many_trained().snapshot().unwrap().to_bytes().unwrap())
}

/// Returns the optimizer states of [`many_trained`].
fn states() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = || many_trained().snapshot().unwrap().optimizer_states_to_bytes(true).unwrap();
    BYTES.get_or_init(bytes)
}

pub(super) fn checkpoint_cases() -> Vec<Case> {
    let snapshot = || many_trained().snapshot().unwrap();
    vec![
        case("Snapshot::to_bytes of many keys", snapshot, |snapshot| snapshot.to_bytes()),
        case("Snapshot::write of many keys", snapshot, |snapshot| {
            let folder = tempfile::tempdir().unwrap();
            snapshot.write(folder.path().join("checkpoint"))
        }),
        case("Snapshot::from_bytes of many keys", checkpoint, |bytes| {
            Snapshot::from_bytes(&backends(), bytes)
        }),
        case("states of many keys", snapshot, |snapshot| snapshot.optimizer_states_to_bytes(true)),
        case("OptimizerStates::from_bytes of many keys", states, |bytes| {
            OptimizerStates::from_bytes(&backends(), bytes)
        }),
        case(
            "set_optimizer_states of many keys",
            || OptimizerStates::from_bytes(&backends(), states()).unwrap(),
            |found| many_trained().set_optimizer_states(found.optimizer, found.states),
        ),
        case(
            "changed_keys of many keys",
            move || (snapshot(), snapshot()),
            |(left, right)| left.changed_keys(&right),
        ),
        // Without memory for an index, `get` searches all keys and succeeds.
        case("Snapshot::get of many keys", snapshot, |snapshot| {
            let found = snapshot.get(&without_failures(|| many_keys("w"))[NUM_KEYS - 1]);
            assert!(found.unwrap().is_some());
            Ok(())
        }),
        case("Snapshot::part of many keys", snapshot, |snapshot| {
            snapshot.part(|_| Some((0, TensorSpec::new([1], DType::F32))))
        }),
        case("Snapshot::values of many keys", snapshot, |snapshot| snapshot.values()),
        case("Snapshot::with_residuals of many keys", snapshot, |snapshot| {
            snapshot.with_residuals("local", None, &HashMap::new())
        }),
    ]
}

/// Returns a case that pushes many values of one key.
fn many_values(
    name: &'static str,
    value: fn() -> Value,
    configure: impl Fn(&LocalStore) -> Result<()> + 'static,
) -> Case {
    let prepare = move || {
        let store = store(value());
        configure(&store).unwrap();
        (store, vec![value(); NUM_KEYS])
    };
    change(name, prepare, |store, values| {
        let keys = without_failures(|| vec![key()[0].clone(); NUM_KEYS]);
        store.push(&keys, values, 0)
    })
}

pub(super) fn cases_of_values() -> Vec<Case> {
    let dense = || small().into();
    let rows = || -> Value { RowSparse::new([9, 2], vec![7], small()).unwrap().into() };
    let lazy = |store: &LocalStore| store.set_optimizer(Optimizer::new("adam")?);
    let updater = |store: &LocalStore| store.set_updater(Some(Arc::new(assign)));
    let snapshot = |store: LocalStore| store.snapshot();
    vec![
        many_values("push of many values", dense, |_| Ok(())),
        many_values("push of many values to an optimizer", dense, lazy),
        many_values("push of many values to an updater", dense, updater),
        many_values("push of many values of rows to an updater", rows, updater),
        // The first key must not change if memory for the second is missing.
        change(
            "push of many values of rows of two keys to an optimizer",
            move || {
                let store = LocalStore::new("local", backends()).unwrap();
                store
                    .init(&["a", "b"].map(|key| Key::new(key).unwrap()), &[rows(), rows()])
                    .unwrap();
                lazy(&store).unwrap();
                (store, vec![rows(); 2 * NUM_KEYS])
            },
            |store, values| {
                let keys = without_failures(|| {
                    ["a", "b"].map(|key| vec![Key::new(key).unwrap(); NUM_KEYS]).concat()
                });
                store.push(&keys, values, 0)
            },
        ),
        many_values("compressed push of many values", dense, compress),
        many_values("compressed push of many values to an optimizer", dense, |store| {
            compress(store)?;
            store.set_optimizer(Optimizer::sgd())
        }),
        many_values("compressed push of many values to an updater", dense, |store| {
            compress(store)?;
            store.set_updater(Some(Arc::new(assign)))
        }),
        case("a snapshot of many residuals", many_residuals, snapshot),
        case(
            "a rollback of many residuals",
            || (many_residuals(), many_residuals().snapshot().unwrap()),
            |(store, snapshot)| store.rollback(&snapshot),
        ),
        case(
            "a checkpoint of many residuals",
            || many_residuals().snapshot().unwrap(),
            |snapshot| snapshot.to_bytes(),
        ),
        case(
            "Snapshot::from_bytes of many residuals",
            || many_residuals().snapshot().unwrap().to_bytes().unwrap(),
            |bytes| Snapshot::from_bytes(&backends(), &bytes),
        ),
        case(
            "Optimizer::update with many gradients",
            || (small(), vec![small(); NUM_KEYS]),
            |(mut weight, gradients)| {
                let optimizer = Optimizer::sgd();
                let mut state = optimizer.create_state(&weight)?;
                optimizer.update(&key()[0], &mut weight, &gradients, &mut state)
            },
        ),
    ]
}

/// Returns a store with many residuals of one key.
fn many_residuals() -> LocalStore {
    let store = store(small());
    compress(&store).unwrap();
    store.push(&vec![key()[0].clone(); NUM_KEYS], &vec![small().into(); NUM_KEYS], 0).unwrap();
    store
}

pub(super) fn cases_of_arrays() -> Vec<Case> {
    let array = || NDArray::new(small());
    let unnamed = move || ArrayList::unnamed((0..NUM_KEYS).map(|_| array())).unwrap();
    let named =
        move || ArrayList::named((0..NUM_KEYS).map(|at| (at.to_string(), array()))).unwrap();
    let write = |list: ArrayList| {
        let folder = tempfile::tempdir().unwrap();
        list.write(folder.path().join("arrays"))
    };
    // The preparation of a case writes the file, so that only reading it can fail.
    let bytes = |list: ArrayList| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("arrays");
        list.write(&path).unwrap();
        std::fs::read(path).unwrap()
    };
    vec![
        case("ArrayList::write of many arrays", unnamed, write),
        case(
            "ArrayList::from_bytes of many arrays",
            move || bytes(unnamed()),
            |bytes| ArrayList::from_bytes(&backends(), &bytes),
        ),
        case(
            "ArrayList::from_bytes of many named arrays",
            move || bytes(named()),
            |bytes| ArrayList::from_bytes(&backends(), &bytes),
        ),
        case(
            "NDArray::deserialize of many axes",
            || {
                let shape = Shape::from(vec![1; NUM_KEYS]);
                let spec = TensorSpec::new(shape, DType::F32);
                let tensor = Tensor::full(&backends(), Device::cpu(0), spec, Scalar::Float(1.0));
                NDArray::new(tensor.unwrap()).serialize().unwrap()
            },
            |bytes| NDArray::deserialize(&backends(), &bytes),
        ),
        case(
            "NDArray::land_all of many parts",
            || {
                let array = NDArray::new(tensor());
                let part = |at| array.slice(at % (LEN / 4), at % (LEN / 4) + 1).unwrap();
                let parts: Vec<NDArray> = (0..NUM_KEYS).map(part).collect();
                let value = parts[0].tensor();
                parts.into_iter().map(|part| (part, value.clone())).collect::<Vec<_>>()
            },
            |landing| NDArray::land_all(landing.iter().map(|(part, value)| (part, value.clone()))),
        ),
        case(
            "Tensor::concatenate of many tensors",
            || vec![small(); NUM_KEYS],
            |tensors| Tensor::concatenate(&tensors, 0),
        ),
    ]
}
