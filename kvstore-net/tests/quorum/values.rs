//! The bits of rounds, which are those of one local store.

use std::thread;
use std::time::Duration;

use kvstore::backends;
use kvstore_core::{Compression, DType, Key, KvStore, LocalStore, Value, WorkerGroup};
use kvstore_net::NetStore;

use super::network::pushes::{
    check_equal, initial, model, momentum, pushed, varied, weighted_mean,
};
use super::network::{connect, key};
use super::{in_rounds, initialise, member, start};

/// Pushes of each store at the same time.
fn push_all(stores: &[NetStore], values: impl Fn(usize) -> (Vec<Key>, Vec<Value>) + Sync) {
    thread::scope(|scope| {
        for (index, store) in stores.iter().enumerate() {
            let values = &values;
            scope.spawn(move || {
                let (keys, values) = values(index);
                store.push(&keys, &values, 0).unwrap();
            });
            thread::sleep(Duration::from_millis(5));
        }
    });
}

fn push_to_model(model: &LocalStore, pushes: impl IntoIterator<Item = (Vec<Key>, Vec<Value>)>) {
    let (keys, values): (Vec<_>, Vec<_>) = pushes.into_iter().unzip();
    model.push(&keys.concat(), &values.concat(), 0).unwrap();
}

#[test]
fn a_round_is_one_step_with_the_sum_in_the_order_of_names() {
    for num_servers in [2, 3] {
        let servers = start(num_servers);
        // They arrive in another order than that of their names.
        let stores = ["b", "d", "a", "c"].map(|name| member(&servers, name, 4));
        initialise(&stores[0]);
        let model = model();
        for round in 0..4 {
            let seed = |index: usize| 10 * round + u32::try_from(index).unwrap();
            push_all(&stores, |index| pushed(seed(index)));
            push_to_model(&model, [2, 0, 3, 1].map(|index| pushed(seed(index))));
            check_equal(&stores[1], &model);
        }
        assert_eq!(stores[0].versions(&initial().0).unwrap(), [4; 4]);
    }
}

#[test]
fn weights_give_the_weighted_mean() {
    let servers = start(3);
    let stores = ["a", "b", "c"].map(|name| connect(&in_rounds(&servers, name, 3).weight(1.0)));
    initialise(&stores[0]);
    let model = model();
    let mut weights = [1.0; 3];
    for round in 0..4 {
        let seed = |index: usize| 10 * round + u32::try_from(index).unwrap();
        push_all(&stores, |index| pushed(seed(index)));
        let pushes = [0, 1, 2].map(|index| (seed(index), weights[index]));
        let (keys, means) = weighted_mean(&pushes);
        model.push(&keys, &means, 0).unwrap();
        check_equal(&stores[1], &model);
        weights = [0.1, 0.7, 0.35].map(|weight: f64| weight / f64::from(round + 1));
        for (store, weight) in stores.iter().zip(weights) {
            store.set_weight(weight).unwrap();
        }
    }
}

#[test]
fn compressed_pushes_have_the_bits_of_a_local_store() {
    for num_servers in [2, 3] {
        let servers = start(num_servers);
        let stores = ["a", "b"].map(|name| member(&servers, name, 2));
        let model = LocalStore::new("local", backends().clone()).unwrap();
        let compression = Compression::new("2bit", 0.5).unwrap();
        // The rows of a long value are divided, but not those of a short one.
        let keys = [key("long"), key("short")];
        let values = |seed: u32| -> Vec<Value> {
            [vec![40, 3], vec![8]]
                .map(|shape| varied(&shape, DType::F32, seed).into())
                .into_iter()
                .collect()
        };
        for store in [&stores[0] as &dyn KvStore, &model] {
            store.init(&keys, &values(0)).unwrap();
            store.set_compression(Some(compression)).unwrap();
            store.set_optimizer(momentum()).unwrap();
        }
        for round in 0..5 {
            let seed = |index: usize| round + 100 * u32::try_from(index).unwrap();
            let of = |index| (keys.to_vec(), values(seed(index)));
            push_all(&stores, of);
            push_to_model(&model, [of(0), of(1)]);
            for key in &keys {
                let [found, expected] = [&stores[1] as &dyn KvStore, &model].map(|store| {
                    store.pull(std::slice::from_ref(key), 0).unwrap()[0].to_bytes().unwrap()
                });
                assert!(found == expected, "round {round}, key `{key}`");
            }
        }
    }
}
