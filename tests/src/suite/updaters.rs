//! Checks of updaters: their arguments, the verbs that they may call, and the effect of failures.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use kvstore::{ErrorCode, NDArray, Optimizer, Result, Scalar, Store};

use super::{array, assert_code, stored};
use crate::arrays::key;

fn init_abc(store: &Store) {
    let values = vec![array(&[1.0]), array(&[2.0]), array(&[3.0])];
    store.init(["a", "b", "c"], values).unwrap();
}

fn push_cba(store: &Store) -> Result<()> {
    let values = vec![array(&[30.0]), array(&[20.0]), array(&[10.0])];
    store.push(["c", "b", "a"], values)
}

fn contents(store: &Store) -> Vec<f32> {
    ["a", "b", "c"].into_iter().flat_map(|text| stored(store, text)).collect()
}

/// An updater runs once per key and call, in init order, on the sum.
pub fn each_key_is_updated_once_in_init_order(store: &Store) {
    let log: Arc<Mutex<Vec<(String, f32)>>> = Arc::default();
    let seen = Arc::clone(&log);
    init_abc(store);
    store
        .set_updater(move |key, pushed, _| {
            seen.lock().unwrap().push((key.to_string(), super::floats(pushed)[0]));
            Ok(())
        })
        .unwrap();
    let keys = ["c", "a", "b", "c"];
    store.push(keys, [1.0, 2.0, 4.0, 8.0].map(|x| array(&[x])).to_vec()).unwrap();
    let expected = [("a".to_owned(), 2.0), ("b".to_owned(), 4.0), ("c".to_owned(), 9.0)];
    assert_eq!(*log.lock().unwrap(), expected);
}

/// Only `push` runs the updater, not `init` or `pull`.
pub fn init_and_pull_do_not_run_the_updater(store: &Store) {
    store.set_updater(|_, _, _| Err("not a push".into())).unwrap();
    init_abc(store);
    store.pull("a", &array(&[0.0])).unwrap();
    store.broadcast("d", &array(&[4.0]), &array(&[0.0])).unwrap();
    assert_eq!(contents(store), [1.0, 2.0, 3.0]);
}

/// After `clear_updater`, sums replace stored values again.
pub fn a_cleared_updater_does_not_run(store: &Store) {
    init_abc(store);
    store.set_updater(|_, pushed, stored| Ok(stored.add_assign(pushed)?)).unwrap();
    push_cba(store).unwrap();
    store.clear_updater().unwrap();
    push_cba(store).unwrap();
    assert_eq!(contents(store), [10.0, 20.0, 30.0]);
}

/// If an updater fails, earlier keys are updated, its own key keeps its value even if `stored` was
/// written, and later keys are not reached.
pub fn a_failed_updater_keeps_the_old_value(store: &Store) {
    init_abc(store);
    store
        .set_updater(|key, pushed, stored| {
            stored.add_assign(pushed)?;
            if key.as_str() == "b" { Err("no b today".into()) } else { Ok(()) }
        })
        .unwrap();
    let error = push_cba(store).unwrap_err();
    assert_eq!((error.code(), error.key()), (ErrorCode::Updater, Some(&key("b"))));
    assert!(error.chain().ends_with("no b today"), "{}", error.chain());
    assert_eq!(contents(store), [11.0, 2.0, 3.0]);
    store.clear_updater().unwrap();
    push_cba(store).unwrap();
    assert_eq!(contents(store), [10.0, 20.0, 30.0]);
}

/// `push` returns the updater's error as its source.
pub fn push_returns_the_error_of_the_updater(store: &Store) {
    store.init("w", &array(&[1.0])).unwrap();
    store.set_updater(|_, _, _| Err(Box::new(std::fmt::Error))).unwrap();
    let error = store.push("w", &array(&[1.0])).unwrap_err();
    let source = std::error::Error::source(&error).expect("the updater's error is the cause");
    assert!(source.is::<std::fmt::Error>(), "{source:?}");
}

/// A panic poisons the key that was being updated. Other keys continue to work, and so does this
/// key after it is removed and initialised again.
pub fn a_panic_poisons_one_key(store: &Store) {
    init_abc(store);
    store
        .set_updater(|key, pushed, stored| {
            assert_ne!(key.as_str(), "b", "this panic is part of the test");
            Ok(stored.add_assign(pushed)?)
        })
        .unwrap();
    let pushed = catch_unwind(AssertUnwindSafe(|| push_cba(store)));
    assert!(!matches!(pushed, Ok(Ok(()))), "the panic went unnoticed");
    store.clear_updater().unwrap();
    let error = store.push("b", &array(&[5.0])).unwrap_err();
    assert_eq!((error.code(), error.key()), (ErrorCode::Poisoned, Some(&key("b"))));
    assert_code(store.pull("b", &array(&[0.0])), ErrorCode::Poisoned);
    assert_code(store.pull_new("b"), ErrorCode::Poisoned);
    store.push(["a", "c"], vec![array(&[7.0]), array(&[8.0])]).unwrap();
    assert_eq!((stored(store, "a"), stored(store, "c")), (vec![7.0], vec![8.0]));
    store.remove("b").unwrap();
    store.init("b", &array(&[6.0])).unwrap();
    assert_eq!(stored(store, "b"), [6.0]);
}

/// A call that names a poisoned key changes no other key.
pub fn a_call_with_a_poisoned_key_changes_nothing(store: &Store) {
    init_abc(store);
    store.set_updater(|_, _, _| panic!("this panic is part of the test")).unwrap();
    let pushed = catch_unwind(AssertUnwindSafe(|| store.push("c", &array(&[1.0]))));
    assert!(!matches!(pushed, Ok(Ok(()))), "the panic went unnoticed");
    store.clear_updater().unwrap();
    assert_code(push_cba(store), ErrorCode::Poisoned);
    let out = array(&[0.0]);
    let outs = vec![out.clone(), out.clone()];
    assert_code(store.pull(["a", "c"], outs), ErrorCode::Poisoned);
    assert_eq!((stored(store, "a"), stored(store, "b")), (vec![1.0], vec![2.0]));
    assert_eq!(super::floats(&out), [0.0]);
}

type Attempt = fn(&Store) -> Result<()>;

/// Inside an updater, the verbs that change the store fail, and the push continues.
pub fn an_updater_cannot_change_its_store(store: &Store) {
    let attempts: [Attempt; 10] = [
        |store| store.push("b", &array(&[0.0])),
        |store| store.push("a", &array(&[0.0])),
        |store| store.init("new", &array(&[0.0])),
        |store| store.remove("b"),
        |store| store.pushpull("b", &array(&[0.0]), &array(&[0.0])),
        |store| store.broadcast("new", &array(&[0.0]), &array(&[0.0])),
        |store| store.set_updater(|_, _, _| Ok(())),
        Store::clear_updater,
        |store| store.set_optimizer(Optimizer::sgd()),
        |store| store.push("unknown", &array(&[0.0])),
    ];
    init_abc(store);
    for (number, attempt) in attempts.into_iter().enumerate() {
        let codes: Arc<Mutex<Vec<Option<ErrorCode>>>> = Arc::default();
        let (inner, log) = (store.clone(), Arc::clone(&codes));
        store
            .set_updater(move |_, pushed, stored| {
                log.lock().unwrap().push(attempt(&inner).err().map(|error| error.code()));
                Ok(stored.assign(&pushed.tensor())?)
            })
            .unwrap();
        store.push("a", &array(&[9.0])).unwrap();
        assert_eq!(*codes.lock().unwrap(), [Some(ErrorCode::InvalidArgument)], "attempt {number}");
        assert_eq!(contents(store), [9.0, 2.0, 3.0]);
    }
}

/// An updater may change another store.
pub fn an_updater_may_change_another_store(store: &Store) {
    let other = kvstore::create("local").unwrap();
    other.init("w", &array(&[0.0])).unwrap();
    let inner = other.clone();
    store.set_updater(move |_, pushed, _| Ok(inner.push("w", pushed)?)).unwrap();
    store.init("a", &array(&[1.0])).unwrap();
    store.push("a", &array(&[5.0])).unwrap();
    assert_eq!((stored(&other, "w"), stored(store, "a")), (vec![5.0], vec![1.0]));
}

/// Inside an updater, a pull returns the last committed value: the new one for earlier keys of the
/// call, the old one for its own and later keys.
pub fn a_pull_in_an_updater_returns_committed_values(store: &Store) {
    let log: Arc<Mutex<Vec<f32>>> = Arc::default();
    let (inner, seen) = (store.clone(), Arc::clone(&log));
    init_abc(store);
    store
        .set_updater(move |key, pushed, stored| {
            stored.assign(&pushed.tensor())?;
            if key.as_str() == "b" {
                let out = array(&[0.0]);
                inner.pull("b", &out)?;
                seen.lock().unwrap().extend(super::floats(&out));
                seen.lock().unwrap().extend(contents(&inner));
            }
            Ok(())
        })
        .unwrap();
    push_cba(store).unwrap();
    assert_eq!(*log.lock().unwrap(), [2.0, 10.0, 2.0, 3.0]);
}

/// After an updater fails or panics, its thread may change the store again.
pub fn a_thread_may_change_the_store_after_its_updater_failed(store: &Store) {
    init_abc(store);
    store.set_updater(|_, _, _| Err("no".into())).unwrap();
    assert_code(push_cba(store), ErrorCode::Updater);
    store.init("d", &array(&[4.0])).unwrap();
    store.set_updater(|_, _, _| panic!("this panic is part of the test")).unwrap();
    let _ = catch_unwind(AssertUnwindSafe(|| store.push("d", &array(&[1.0]))));
    store.init("e", &array(&[5.0])).unwrap();
    store.clear_updater().unwrap();
}

/// The contents of `stored` are committed, no matter how the updater wrote them.
pub fn writes_of_every_kind_are_committed(store: &Store) {
    type Write = fn(&NDArray) -> Result<()>;
    let writes: [Write; 4] = [
        |stored| stored.fill(Scalar::Int(7)),
        |stored| stored.assign_slice(&[7_f32]),
        |stored| stored.reshape(&[1, 1])?.at(0)?.fill(Scalar::Int(7)),
        |stored| array(&[7.0]).copy_to(stored),
    ];
    for (number, write) in writes.into_iter().enumerate() {
        let name = number.to_string();
        store.init(&name, &array(&[1.0])).unwrap();
        store.set_updater(move |_, _, stored| Ok(write(stored)?)).unwrap();
        store.push(&name, &array(&[2.0])).unwrap();
        assert_eq!(stored(store, &name), [7.0], "write {number}");
    }
}
