//! Checks of arguments: the forms of keys and values, the names of stores, and error messages.

use kvstore::{DType, ErrorCode, Key, NDArray, Pairs, Store};

use super::{array, assert_code, floats, stored};
use crate::arrays::key;
use crate::place::device;

fn ones(count: usize) -> Vec<NDArray> {
    (0..count).map(|_| array(&[1.0])).collect()
}

/// The four forms are key and value, key and values, keys and values, keys and lists of values.
pub fn keys_and_values_have_four_forms(store: &Store) {
    store.init("a", &array(&[0.0])).unwrap();
    store.init(["b", "c"], ones(2)).unwrap();
    store.push("a", &array(&[5.0])).unwrap();
    assert_eq!(stored(store, "a"), [5.0]);
    store.push("a", ones(3)).unwrap();
    assert_eq!(stored(store, "a"), [3.0]);
    store.push(["b", "a"], vec![array(&[7.0]), array(&[8.0])]).unwrap();
    assert_eq!((stored(store, "a"), stored(store, "b")), (vec![8.0], vec![7.0]));
    store.push(["a", "b"], vec![ones(2), ones(1)]).unwrap();
    assert_eq!((stored(store, "a"), stored(store, "b")), (vec![2.0], vec![1.0]));
}

/// A push sums the values of a repeated key, and a pull fills each of its outputs.
pub fn values_of_a_repeated_key_are_summed(store: &Store) {
    store.init("3", &array(&[0.0])).unwrap();
    let three = || ["3", "3", "3"];
    store.push(three(), vec![array(&[1.0]), array(&[10.0]), array(&[100.0])]).unwrap();
    let outs = ones(3);
    store.pull(three(), outs.clone()).unwrap();
    assert_eq!(outs.iter().map(|out| floats(out)[0]).collect::<Vec<_>>(), [111.0; 3]);
    let new = store.pull_new(three()).unwrap();
    assert_eq!(new.len(), 3);
}

/// A call with empty lists does nothing.
pub fn empty_lists_do_nothing(store: &Store) {
    let (no_keys, no_arrays) = (Vec::<Key>::new, Vec::<NDArray>::new);
    store.init(no_keys(), no_arrays()).unwrap();
    store.push(no_keys(), no_arrays()).unwrap();
    store.pull(no_keys(), no_arrays()).unwrap();
    store.pushpull(no_keys(), no_arrays(), no_arrays()).unwrap();
    store.broadcast(no_keys(), no_arrays(), no_arrays()).unwrap();
    store.remove(no_keys()).unwrap();
    assert!(store.pull_new(no_keys()).unwrap().is_empty());
    assert!(store.keys().unwrap().is_empty());
}

/// Lists of different lengths are an error. It is reported before an unknown key.
pub fn lists_of_different_lengths_are_rejected(store: &Store) {
    let two = || ["a", "b"];
    store.init(two(), ones(2)).unwrap();
    assert_code(store.init(["c", "d"], ones(1)), ErrorCode::LengthMismatch);
    assert_code(store.push(two(), ones(1)), ErrorCode::LengthMismatch);
    assert_code(store.push(two(), ones(3)), ErrorCode::LengthMismatch);
    assert_code(store.pull(two(), ones(1)), ErrorCode::LengthMismatch);
    assert_code(store.push(two(), Vec::<NDArray>::new()), ErrorCode::LengthMismatch);
    assert_code(store.pushpull(two(), ones(2), ones(1)), ErrorCode::LengthMismatch);
    let error = Pairs::new(two(), ones(3)).unwrap_err();
    assert_eq!((error.expected().as_deref(), error.found().as_deref()), (Some("2"), Some("3")));
    assert_eq!(store.keys().unwrap(), two().map(key));
}

/// Any UTF-8 string without NUL is a key, also the empty string.
pub fn any_string_without_nul_is_a_key(store: &Store) {
    for text in ["", " ", "é漢", "🦀", "a\nb", "4294967298", "2"] {
        store.init(text, &array(&[1.0])).unwrap();
        store.push(text, &array(&[2.0])).unwrap();
        assert_eq!(stored(store, text), [2.0], "{text:?}");
    }
    assert_code(Key::new("nul\0"), ErrorCode::InvalidArgument);
    assert_eq!(store.keys().unwrap().len(), 7);
}

/// Keys are in the order of initialisation. A key that is removed and initialised again is last.
pub fn keys_are_in_init_order(store: &Store) {
    store.init(["z", "a", "m"], ones(3)).unwrap();
    assert_eq!(store.keys().unwrap(), ["z", "a", "m"].map(key));
    store.remove("z").unwrap();
    assert!(!store.contains(&key("z")).unwrap() && store.contains(&key("a")).unwrap());
    assert_code(store.push("z", &array(&[1.0])), ErrorCode::KeyNotFound);
    assert_code(store.remove("z"), ErrorCode::KeyNotFound);
    store.init("z", &array(&[4.0])).unwrap();
    assert_eq!(store.keys().unwrap(), ["a", "m", "z"].map(key));
}

/// If one key of several is bad, the call changes nothing.
pub fn a_call_with_an_invalid_item_changes_nothing(store: &Store) {
    store.init(["a", "b"], ones(2)).unwrap();
    let values = || vec![array(&[5.0]), array(&[6.0])];
    assert_code(store.push(["a", "x"], values()), ErrorCode::KeyNotFound);
    assert_code(store.init(["n", "a"], values()), ErrorCode::KeyExists);
    assert_code(store.init(["n", "n"], values()), ErrorCode::KeyExists);
    assert_code(store.init("n", values()), ErrorCode::KeyExists);
    assert_code(store.remove(["a", "x"]), ErrorCode::KeyNotFound);
    let wrong = vec![array(&[5.0]), array(&[6.0, 7.0])];
    assert_code(store.push("a", wrong.clone()), ErrorCode::SpecMismatch);
    assert_code(store.push(["a", "b"], wrong.clone()), ErrorCode::SpecMismatch);
    assert_code(store.pull(["a", "b"], wrong.clone()), ErrorCode::SpecMismatch);
    assert_code(store.pushpull(["a", "b"], values(), wrong.clone()), ErrorCode::SpecMismatch);
    assert_code(store.broadcast("n", &array(&[1.0]), &wrong[1]), ErrorCode::SpecMismatch);
    assert_eq!((stored(store, "a"), stored(store, "b")), (vec![1.0], vec![1.0]));
    assert_eq!(
        (floats(&wrong[0]), store.keys().unwrap()),
        (vec![5.0], ["a", "b"].map(key).to_vec())
    );
}

/// Errors name the key, what was expected and what was found.
pub fn errors_name_key_expected_and_found(store: &Store) {
    store.init("w1", &kvstore::ones([2, 3], DType::F32, device(0)).unwrap()).unwrap();
    let turned = kvstore::ones([3, 2], DType::F32, device(0)).unwrap();
    let error = store.push("w1", &turned).unwrap_err();
    assert_eq!(error.to_string(), "key `w1`: expected [2, 3] f32, found [3, 2] f32");
    assert_eq!(error.key(), Some(&key("w1")));
    assert_eq!(error.expected().as_deref(), Some("[2, 3] f32"));
    assert_eq!(error.found().as_deref(), Some("[3, 2] f32"));
    let other_type = kvstore::ones([2, 3], DType::Bf16, device(0)).unwrap();
    let error = store.push("w1", &other_type).unwrap_err();
    assert_eq!(error.to_string(), "key `w1`: expected [2, 3] f32, found [2, 3] bf16");
    let error = store.pull("w2", &turned).unwrap_err();
    assert_eq!((error.code(), error.key()), (ErrorCode::KeyNotFound, Some(&key("w2"))));
    assert!(error.to_string().contains("`w2`"), "{error}");
}

/// The store rejects arrays without elements, but accepts a scalar without axes.
pub fn empty_arrays_are_rejected_and_scalars_are_accepted(store: &Store) {
    let empty = kvstore::zeros([2, 0], DType::F32, device(0)).unwrap();
    assert_code(store.init("w", &empty), ErrorCode::InvalidArgument);
    assert_code(store.broadcast("w", &empty, &empty), ErrorCode::InvalidArgument);
    assert!(store.keys().unwrap().is_empty());
    let scalar = kvstore::full([], 3.0, DType::F64, device(0)).unwrap();
    store.init("s", &scalar).unwrap();
    store.push("s", vec![scalar.clone(), scalar]).unwrap();
    let pulled = &store.pull_new("s").unwrap()[0];
    assert_eq!((pulled.shape().dims().len(), pulled.to_vec::<f64>().unwrap()), (0, vec![6.0]));
}

/// `cpu(3)` is the same host. Values and outputs may have different ordinals and keep them.
pub fn values_may_be_on_several_devices(store: &Store) {
    let on = |ordinal, value: f32| kvstore::array(&[value], [1], device(ordinal)).unwrap();
    store.init("w", &on(1, 0.0)).unwrap();
    store.push("w", vec![on(2, 1.0), on(0, 2.0), on(3, 3.0)]).unwrap();
    let outs = vec![on(3, 0.0), on(0, 0.0)];
    store.pull("w", outs.clone()).unwrap();
    assert_eq!((floats(&outs[0]), floats(&outs[1])), (vec![6.0], vec![6.0]));
    assert_eq!((outs[0].device(), outs[1].device()), (device(3), device(0)));
}

/// An optimizer accepts only float weights. A rejected push changes nothing.
pub fn an_optimizer_rejects_integer_weights(store: &Store) {
    let count = kvstore::array(&[1_i32], [1], device(0)).unwrap();
    store.init(["w", "n"], vec![array(&[1.0]), count.clone()]).unwrap();
    store.set_optimizer(kvstore::Optimizer::sgd().with("learning_rate", 1.0).unwrap()).unwrap();
    let both = vec![array(&[1.0]), count];
    assert_code(store.push(["w", "n"], both), ErrorCode::InvalidArgument);
    assert_eq!(stored(store, "w"), [1.0]);
    store.push("w", &array(&[1.0])).unwrap();
    assert_eq!(stored(store, "w"), [0.0]);
}

/// A store on one machine has one worker.
pub fn a_store_on_one_machine_has_one_worker(store: &Store) {
    assert_eq!((store.rank().unwrap(), store.num_workers().unwrap()), (0, 1));
    store.barrier().unwrap();
    store.set_barrier_before_exit(true).unwrap();
    assert_eq!(store.num_dead_node(0).unwrap(), 0);
    store.send_command_to_servers(1, "anything").unwrap();
}

/// Names must match completely, in upper or lower case. The error lists the known names and the
/// nearest one.
pub fn store_names_must_match_completely() {
    for name in crate::STORE_NAMES {
        for given in [name.to_owned(), name.to_uppercase()] {
            assert_eq!(kvstore::create(&given).unwrap().name(), name);
        }
    }
    for name in ["", "foo", "locall", "my_device", "local ", "dist_local"] {
        let error = kvstore::create(name).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{name:?}");
        assert!(
            crate::STORE_NAMES.iter().all(|valid| error.to_string().contains(valid)),
            "{error}"
        );
    }
    for name in ["nccl", "p3"] {
        assert_code(kvstore::create(name), ErrorCode::Unsupported);
    }
}
