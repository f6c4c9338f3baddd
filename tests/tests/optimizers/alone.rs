//! Optimizer steps without a store: row-sparse steps agree with a store, and states survive
//! serialization.

use kvstore::{Device, Key, NDArray, Optimizer, OptimizerState, RowSparse, array, create};
use kvstore_core::{DType, ErrorCode};
use kvstore_tests::format::float_dtypes;

const SHAPE: [usize; 2] = [4, 3];

fn rows(indices: &[i64], dtype: DType) -> RowSparse {
    let numbers: Vec<f32> = [0.5, -1.0, 2.0].repeat(indices.len());
    let elements =
        array(&numbers, [indices.len(), SHAPE[1]], Device::cpu(0)).expect("complete rows");
    let elements = elements.as_type(dtype).expect("any dtype").tensor();
    RowSparse::new(SHAPE, indices.to_vec(), elements).expect("ascending rows")
}

fn weight(dtype: DType) -> NDArray {
    let numbers: Vec<f32> = [1.0, -2.0, 3.0].repeat(SHAPE[0]);
    let weight = array(&numbers, SHAPE, Device::cpu(0)).expect("a complete weight");
    weight.as_type(dtype).and_then(|array| array.copy()).expect("any dtype")
}

fn bytes(array: &NDArray) -> Vec<u8> {
    array.tensor().to_bytes().expect("a value of this machine")
}

/// Returns every optimizer. Lazy ones appear twice, with `lazy_update` on and off.
fn optimizers() -> Vec<Optimizer> {
    let all = Optimizer::names()
        .map(|name| (name, 1.0))
        .chain(Optimizer::names().map(|name| (name, 0.0)));
    all.filter_map(|(name, lazy)| {
        let optimizer = Optimizer::new(name)
            .and_then(|optimizer| optimizer.with("wd", 0.01))
            .expect("every one has it");
        match (optimizer.clone().with("lazy_update", lazy), lazy == 1.0) {
            (Ok(optimizer), _) => Some(optimizer),
            (Err(_), is_first) => is_first.then_some(optimizer),
        }
    })
    .collect()
}

#[test]
fn row_sparse_steps_agree_with_a_store() {
    let key = Key::new("w").expect("a key");
    for optimizer in optimizers() {
        for dtype in float_dtypes() {
            let (store, alone) = (create("local").expect("a store"), weight(dtype));
            store.init("w", &alone).expect("a new key");
            store.set_optimizer(optimizer.clone()).expect("any can be set");
            let mut state = optimizer.create_state(&alone.tensor()).expect("a float");
            for indices in [&[1][..], &[0, 3], &[1, 2]] {
                let gradient = rows(indices, dtype);
                store.push("w", &gradient).expect("a gradient");
                kvstore::update_rows(&optimizer, &key, &alone, &gradient, &mut state)
                    .expect("a gradient");
            }
            let pulled = store.pull_new("w").expect("a known key");
            assert_eq!(bytes(&alone), bytes(&pulled[0]), "{optimizer:?} of {dtype}");
            assert_eq!(state.num_updates(), 3);
        }
    }
}

#[test]
fn wrong_rows_change_neither_weight_nor_state() {
    let key = Key::new("w").expect("a key");
    for optimizer in optimizers() {
        let alone = weight(DType::F32);
        let mut state = optimizer.create_state(&alone.tensor()).expect("a float");
        let row = rows(&[1], DType::F32).rows().clone();
        let other_shape = RowSparse::new([9, 3], vec![1], row).expect("a row");
        for wrong in [other_shape, rows(&[1], DType::F64)] {
            let error = kvstore::update_rows(&optimizer, &key, &alone, &wrong, &mut state)
                .expect_err("another spec");
            assert_eq!(error.code(), ErrorCode::SpecMismatch, "{error}");
        }
        assert_eq!((bytes(&alone), state.num_updates()), (bytes(&weight(DType::F32)), 0));
    }
}

#[test]
fn states_survive_serialization() {
    let (key, backends) = (Key::new("w").expect("a key"), kvstore::backends());
    for optimizer in optimizers() {
        for dtype in [DType::F32, DType::Bf16] {
            let [one, other] = [weight(dtype), weight(dtype)];
            let mut state = optimizer.create_state(&one.tensor()).expect("a float");
            let again = |state: &OptimizerState| {
                let bytes = state.to_bytes(backends).expect("a state that was made");
                OptimizerState::from_bytes(backends, &bytes).expect("its own bytes")
            };
            let mut reread = again(&state);
            for _ in 0..3 {
                let gradient = NDArray::new(rows(&[0, 2], dtype).to_dense().expect("it fits"));
                kvstore::update(&optimizer, &key, &one, &gradient, &mut state).expect("a step");
                kvstore::update(&optimizer, &key, &other, &gradient, &mut reread).expect("a step");
                reread = again(&reread);
                assert_eq!(bytes(&one), bytes(&other), "{optimizer:?} of {dtype}");
                assert_eq!(reread.num_updates(), state.num_updates());
            }
            let (master, rest) = state.split_master();
            assert_eq!(master.is_some(), dtype == DType::Bf16);
            assert_eq!(rest.len() + usize::from(master.is_some()), state.tensors().len());
            assert_eq!(reread.optimizer_name(), Some(optimizer.name()));
        }
    }
}

#[test]
fn states_of_scalar_weights_survive_serialization() {
    let adam = Optimizer::new("adam").expect("a known name");
    let scalar = array(&[1f32], [0usize; 0], Device::cpu(0)).expect("one element");
    let state = adam.create_state(&scalar.tensor()).expect("a float");
    let bytes = state.to_bytes(kvstore::backends()).expect("a state that was made");
    let reread = OptimizerState::from_bytes(kvstore::backends(), &bytes).expect("its own bytes");
    assert_eq!(reread.tensors().len(), 2);
}

#[test]
fn damaged_state_bytes_are_rejected() {
    let backends = kvstore::backends();
    let state = Optimizer::new("adam")
        .expect("a known name")
        .create_state(&weight(DType::F32).tensor())
        .expect("a float");
    let bytes = state.to_bytes(backends).expect("a state that was made");
    for len in 0..bytes.len() {
        let error = OptimizerState::from_bytes(backends, &bytes[..len]).expect_err("too short");
        assert_eq!(error.code(), ErrorCode::Corrupt, "{len} bytes: {error}");
    }
    for index in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[index] ^= 0x10;
        let error = OptimizerState::from_bytes(backends, &damaged).expect_err("another checksum");
        assert_eq!(error.code(), ErrorCode::Corrupt, "byte {index}: {error}");
    }
    let empty = OptimizerState::default().to_bytes(backends).expect_err("an empty state");
    assert_eq!(empty.code(), ErrorCode::InvalidArgument);
}

#[test]
fn a_file_with_several_keys_is_rejected() {
    let store = create("local").expect("a store");
    store.init(["a", "b"], vec![weight(DType::F32), weight(DType::F32)]).expect("new keys");
    store.set_optimizer(Optimizer::new("adam").expect("a known name")).expect("any can be set");
    store.push(["a", "b"], vec![weight(DType::F32), weight(DType::F32)]).expect("gradients");
    let bytes = store.snapshot().and_then(|snapshot| snapshot.optimizer_states_to_bytes(false));
    let error = OptimizerState::from_bytes(kvstore::backends(), &bytes.expect("states"));
    assert_eq!(error.expect_err("two keys").code(), ErrorCode::Corrupt);
}
