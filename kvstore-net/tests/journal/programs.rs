//! Random and recorded programs: a replay gives the bits of the server.

use std::thread;

use kvstore::Store;
use kvstore_core::{Compression, Optimizer, RowSparse, Shape};
use kvstore_net::ReplayedKey;
use kvstore_tests::json::text;
use kvstore_tests::operations::{Operation, program};
use kvstore_tests::policy::Policy;
use kvstore_tests::recorded::{ALSO_ON_EVERY_STORE, ON_EVERY_STORE};
use kvstore_tests::{recorded, replay as programs};
use proptest::prelude::*;

use super::*;

/// Returns a configuration with 64 programs, or with `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() {
        ProptestConfig::default().cases
    } else {
        64
    };
    ProptestConfig { cases, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn random_programs_are_replayed(mut program in program()) {
        let has_updater = |operation: &Operation| {
            matches!(operation, Operation::SetPolicy(Policy::Updater(..)))
        };
        program.retain(|operation| !has_updater(operation));
        let recorded = Recorded::start(JournalMode::Full);
        let store = Store::new(Arc::new(recorded.connect("worker")));
        programs::run(&store, &program).map_err(TestCaseError::fail)?;
        drop(store);
        recorded.end_and_replay();
    }
}

/// All optimizers, dtypes and forms of values of the recorded programs.
#[test]
fn recorded_programs_are_replayed() {
    let mut num_replayed = 0;
    for case in recorded::load() {
        let group = text(&case["group"]);
        if !ON_EVERY_STORE.contains(&group) && !ALSO_ON_EVERY_STORE.contains(&group) {
            continue;
        }
        let recorded = Recorded::start(JournalMode::Full);
        let store = Store::new(Arc::new(recorded.connect("worker")));
        // Fails if the program sets an updater, which only a member in the server's process may.
        if recorded::replay_on(&case, NetStore::NAME, Ok(store)).is_err() {
            continue;
        }
        recorded.end_and_replay();
        num_replayed += 1;
    }
    println!("{num_replayed} recorded programs replayed");
    assert!(num_replayed >= 140, "{num_replayed}");
}

/// Three members push to the same keys and change the settings at the same time.
#[test]
fn the_calls_of_several_members_are_replayed() {
    const ROUNDS: usize = 40;
    for compression in [None, Some(Compression::new("2bit", 0.5).unwrap())] {
        let recorded = Recorded::start(JournalMode::Full);
        let first = recorded.connect("first");
        let keys = ["a", "b", "large"].map(key);
        let values = [value(&[1.0; 3]), value(&[2.0; 70]), value(&vec![0.5; 100_000])];
        first.init(&keys, &values).unwrap();
        first.set_optimizer(Optimizer::new("adam").unwrap()).unwrap();
        first.set_compression(compression).unwrap();
        thread::scope(|scope| {
            for member in 0..3_u8 {
                let (recorded, keys, values) = (&recorded, &keys, &values);
                scope.spawn(move || {
                    let store = recorded.connect(&format!("member {member}"));
                    for round in 0..ROUNDS {
                        // In different orders, and a key twice.
                        let order = [[0, 1, 2, 0], [2, 1, 0, 2], [1, 0, 2, 1]];
                        let picked = order[(usize::from(member) + round) % 3];
                        let num_keys = 1 + round % 4;
                        let pushed: Vec<_> =
                            picked[..num_keys].iter().map(|index| keys[*index].clone()).collect();
                        let gradients: Vec<_> =
                            picked[..num_keys].iter().map(|index| values[*index].clone()).collect();
                        store.push(&pushed, &gradients, 0).unwrap();
                        let rate = 0.001 * (1.0 + f64::from(member));
                        match (round + usize::from(member)) % 7 {
                            0 => store.set_hyper_parameters(&[("learning_rate", rate)]).unwrap(),
                            1 => store.set_optimizer(Optimizer::new("sgd").unwrap()).unwrap(),
                            2 if compression.is_none() => {
                                store.set_clip_global_norm(Some(1.0 + rate)).unwrap();
                            }
                            3 if compression.is_none() => {
                                let rows = RowSparse::new(
                                    Shape::from(vec![3]),
                                    vec![0, 2],
                                    tensor(&[1.0, 3.0]),
                                );
                                store.push(&keys[..1], &[rows.unwrap().into()], 0).unwrap();
                            }
                            4 => drop(store.snapshot().unwrap()),
                            5 => {
                                let snapshot = store.snapshot().unwrap();
                                store.rollback(&snapshot).unwrap();
                            }
                            6 => {
                                // They fail if another member rolls back meanwhile.
                                let own = [key(&format!("own {member}"))];
                                let _ = store.init(&own, &values[..1]);
                                let _ = store.push(&own, &values[..1], 0);
                                let _ = store.init(&own, &values[1..2]);
                                store.push(&[key("unknown")], &values[..1], 0).unwrap_err();
                                store.set_hyper_parameters(&[("unknown", 1.0)]).unwrap_err();
                                let _ = store.remove(&own);
                            }
                            _ => {}
                        }
                    }
                });
            }
        });
        drop(first);
        let report = recorded.end_and_replay();
        println!("{report:?}");
        for member in 0..3 {
            let num_steps = report.members[&format!("member {member}")];
            assert!(num_steps >= ROUNDS as u64, "{report:?}");
        }
        assert!(!report.members.contains_key("first"));
        assert!(report.num_compared_values > 0 && report.num_failed > 0, "{report:?}");
        let ReplayedKey { num_steps, .. } = report.keys["large"];
        assert!(num_steps > 0, "{report:?}");
    }
}

/// Each server has a journal of its parts of the values.
#[test]
fn each_of_several_servers_is_replayed() {
    let servers = [Recorded::start(JournalMode::Full), Recorded::start(JournalMode::Full)];
    let addresses = servers.each_ref().map(|recorded| recorded.server.address().to_string());
    let connect = |name: &str| {
        let options = NetStoreOptions::of_servers(addresses.clone());
        let options = options.name(name).timeout(LONG).divide_above(100);
        NetStore::connect(backends(), &options).unwrap()
    };
    let store = connect("first");
    store.set_optimizer(Optimizer::new("adagrad").unwrap()).unwrap();
    let keys = ["a", "b", "c", "divided"].map(key);
    let values = [value(&[1.0]), value(&[2.0]), value(&[3.0]), value(&[4.0; 1000])];
    store.init(&keys, &values).unwrap();
    thread::scope(|scope| {
        for member in 0..2 {
            let (connect, keys, values) = (&connect, &keys, &values);
            scope.spawn(move || {
                let store = connect(&format!("member {member}"));
                for _ in 0..20 {
                    store.push(keys, values, 0).unwrap();
                }
            });
        }
    });
    let earlier = store.snapshot().unwrap();
    store.remove(&keys[..1]).unwrap();
    store.push(&keys[1..], &values[1..], 0).unwrap();
    store.rollback(&earlier).unwrap();
    drop(earlier);
    store.push(&keys, &values, 0).unwrap();
    drop(store);
    for recorded in &servers {
        let report = recorded.end_and_replay();
        assert_eq!(report.keys["divided"].num_steps, 42, "{report:?}");
    }
}
