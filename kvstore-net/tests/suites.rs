//! The suites for stores, the recorded programs and random programs, on a store that one worker
//! reaches over the network.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use kvstore::{Store, backends};
use kvstore_core::{Backends, KvStore, LocalStore, panic_text};
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

fn start(name: &str) -> Arc<Server> {
    let options = ServerOptions::new("127.0.0.1:0").store(name);
    Arc::new(Server::start(backends(), &options).unwrap())
}

/// Starts a server in this process and returns its only worker, which can set updaters.
fn net_store(name: &str) -> NetStore {
    NetStore::connect_to(backends(), &[start(name)], &NetStoreOptions::new("")).unwrap()
}

fn store(name: &str) -> Store {
    Store::new(Arc::new(net_store(name)))
}

/// A part of the error of `set_updater` if the server may be in another process.
const NEEDS_THE_SERVER: &str = "an updater is a function of this process";

/// Runs each check with a worker that knows only the address of its server, with one of the two
/// kinds of stores, alternately. A check that sets an updater runs again with [`net_store`].
fn each<F: Copy>(checks: Checks<F>, run: impl Fn(F, &dyn Fn() -> NetStore)) {
    let mut num_again = 0;
    for ((check, act), name) in checks.iter().zip(["local", "device"].into_iter().cycle()) {
        println!("{check} on a server with `{name}`");
        let servers = RefCell::new(Vec::new());
        let connected = || {
            let server = start(name);
            let options = NetStoreOptions::new(server.address().to_string());
            servers.borrow_mut().push(server);
            NetStore::connect(backends(), &options).unwrap()
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(*act, &connected))) {
            if !panic_text(&*panic).contains(NEEDS_THE_SERVER) {
                resume_unwind(panic);
            }
            num_again += 1;
            println!("{check} on a server in this process");
            run(*act, &|| net_store(name));
        }
    }
    println!("{num_again} of {} checks set updaters", checks.len());
    assert!(num_again < checks.len());
}

fn boxed(store: NetStore) -> Box<dyn KvStore> {
    Box::new(store)
}

#[test]
fn passes_the_suites_of_stores() {
    let store_of = |create: &dyn Fn() -> NetStore| Store::new(Arc::new(create()));
    each(ON_STORES, |check, create| check(&store_of(create)));
}

/// These checks set updaters in threads of their own.
#[test]
fn passes_the_suites_of_threads() {
    let checks = IN_ANY_ORDER.iter().chain(AT_ONCE);
    for ((check, act), name) in checks.zip(["local", "device"].into_iter().cycle()) {
        println!("{check} on a server with `{name}`");
        act(&store(name));
    }
}

#[test]
fn passes_the_suites_of_values_and_rows() {
    each(ON_VALUES, |check, create| check(&create(), backends()));
    each(ON_ROWS, |check, create| check(&|| boxed(create())));
    each(ON_INVALID_ROWS, |check, create| check(&|| boxed(create()), backends()));
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
