//! The suites for stores, the recorded programs and random programs, on a store that one worker
//! reaches over the network.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

use std::sync::Arc;

use kvstore::{Store, backends};
use kvstore_core::{Backends, KvStore, LocalStore};
use kvstore_net::{NetStore, NetStoreOptions, Server, ServerOptions};
use kvstore_tests::json::text;
use kvstore_tests::operations::program;
use kvstore_tests::recorded::{ALSO_ON_EVERY_STORE, ON_EVERY_STORE};
use kvstore_tests::suite::bits::{self, Place};
use kvstore_tests::suite::table::{
    AT_ONCE, Checks, IN_ANY_ORDER, ON_INVALID_ROWS, ON_ROWS, ON_STORES, ON_VALUES,
};
use kvstore_tests::{recorded, replay};
use proptest::prelude::*;

/// Starts a server in this process and returns its only worker.
fn net_store(name: &str) -> NetStore {
    net_store_on(1, name)
}

/// Starts servers in this process and returns their only worker. Values of more than 8 bytes are
/// divided among several servers.
fn net_store_on(num_servers: usize, name: &str) -> NetStore {
    let options = ServerOptions::new("127.0.0.1:0").store(name);
    let start = |_| Arc::new(Server::start(backends(), &options).unwrap());
    let servers: Vec<_> = (0..num_servers).map(start).collect();
    let options = NetStoreOptions::new("").divide_above(8);
    NetStore::connect_to(backends(), &servers, &options).unwrap()
}

fn store(name: &str) -> Store {
    Store::new(Arc::new(net_store(name)))
}

/// Runs each check on a server with one of the two kinds of stores, alternately.
fn each<F: Copy>(checks: Checks<F>, run: impl Fn(F, &str)) {
    for ((check, act), name) in checks.iter().zip(["local", "device"].into_iter().cycle()) {
        println!("{check} on a server with `{name}`");
        run(*act, name);
    }
}

#[test]
fn passes_the_suites_of_stores() {
    each(ON_STORES, |check, name| check(&store(name)));
    each(IN_ANY_ORDER, |check, name| check(&store(name)));
    each(AT_ONCE, |check, name| check(&store(name)));
}

#[test]
fn passes_the_suites_of_values_and_rows() {
    let create = |name: &str| Box::new(net_store(name)) as Box<dyn KvStore>;
    each(ON_VALUES, |check, name| check(&net_store(name), backends()));
    each(ON_ROWS, |check, name| check(&|| create(name)));
    each(ON_INVALID_ROWS, |check, name| check(&|| create(name), backends()));
}

#[test]
fn replays_the_recorded_programs() {
    let (mut num_replayed, mut failures) = (0, Vec::new());
    for case in recorded::load() {
        let name = text(&case["group"]);
        if !ON_EVERY_STORE.contains(&name) && !ALSO_ON_EVERY_STORE.contains(&name) {
            continue;
        }
        num_replayed += 1;
        failures.extend(recorded::replay_on(&case, NetStore::NAME, Ok(store("local"))).err());
    }
    println!("{num_replayed} recorded programs, {} failures", failures.len());
    assert!(failures.is_empty() && num_replayed >= 285, "{num_replayed}\n{}", failures.join("\n"));
}

/// Runs a check that compares the bits of a local store and of one on a server.
fn same_bits(check: fn(&[Place])) {
    let local = |name: &str, backends: &Backends| -> Box<dyn KvStore> {
        Box::new(LocalStore::new(name, backends.clone()).unwrap())
    };
    let net = |name: &str, _: &Backends| -> Box<dyn KvStore> { Box::new(net_store(name)) };
    check(&[Place::on_host("local", local), Place::on_host("local", net)]);
}

#[test]
fn sums_have_the_bits_of_a_local_store() {
    same_bits(bits::sums_have_the_same_bits);
}

#[test]
fn steps_have_the_bits_of_a_local_store() {
    same_bits(bits::steps_have_the_same_bits);
}

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
    fn agrees_with_the_model(program in program()) {
        replay::run(&store("local"), &program).map_err(TestCaseError::fail)?;
    }
}
