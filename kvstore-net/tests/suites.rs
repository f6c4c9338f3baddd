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

/// Errors of features that several servers do not support, and the features.
const NOT_ON_SEVERAL: [(&str, &str); 3] = [
    (NEEDS_THE_SERVER, "updaters"),
    ("with several servers", "the global norm"),
    ("needs complete values", "a layer-wise optimizer for values that are divided"),
];

/// Values of more bytes are divided among several servers.
const DIVIDE_ABOVE: usize = 8;

/// Checks whose threads pull while others push. The parts of a divided value are read at different
/// moments, so they run with complete values.
const WITH_COMPLETE_VALUES: [&str; 3] = [
    "races::readers_never_see_older_states_with_an_optimizer",
    "races::readers_never_see_older_states_with_sums",
    "row_sparse::readers_see_complete_steps",
];

/// Starts three servers and returns a worker.
fn on_several(name: &str, divide_above: usize) -> (Vec<Arc<Server>>, NetStore) {
    let servers: Vec<_> = (0..3).map(|_| start(name)).collect();
    let addresses = servers.iter().map(|server| server.address().to_string());
    let options = NetStoreOptions::of_servers(addresses).divide_above(divide_above);
    (servers, NetStore::connect(backends(), &options).unwrap())
}

/// Runs each check on several servers. Skips checks that need unsupported features. Returns how
/// many have run.
fn each_on_several<F: Copy>(checks: Checks<F>, run: impl Fn(F, &dyn Fn() -> NetStore)) -> usize {
    let mut num_run = 0;
    for ((check, act), name) in checks.iter().zip(["local", "device"].into_iter().cycle()) {
        println!("{check} on three servers with `{name}`");
        let is_divided = !WITH_COMPLETE_VALUES.contains(check);
        let divide_above = if is_divided { DIVIDE_ABOVE } else { usize::MAX };
        let all = RefCell::new(Vec::new());
        let connected = || {
            let (servers, store) = on_several(name, divide_above);
            all.borrow_mut().push(servers);
            store
        };
        match catch_unwind(AssertUnwindSafe(|| run(*act, &connected))) {
            Ok(()) => num_run += 1,
            Err(panic) => {
                let text = panic_text(&*panic);
                let known = NOT_ON_SEVERAL.iter().find(|(part, _)| text.contains(part));
                let Some((_, what)) = known else { resume_unwind(panic) };
                println!("left out, because it needs {what}");
            }
        }
    }
    println!("{num_run} of {} checks on several servers", checks.len());
    num_run
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
fn several_servers_pass_the_suites() {
    let store_of = |create: &dyn Fn() -> NetStore| Store::new(Arc::new(create()));
    let num_run = each_on_several(ON_STORES, |check, create| check(&store_of(create)))
        + each_on_several(ON_VALUES, |check, create| check(&create(), backends()))
        + each_on_several(ON_ROWS, |check, create| check(&|| boxed(create())))
        + each_on_several(ON_INVALID_ROWS, |check, create| {
            check(&|| boxed(create()), backends());
        });
    assert!(num_run >= 33, "{num_run}");
}

/// The recorded programs for every store.
fn recorded_programs() -> Vec<serde_json::Value> {
    let mut programs = recorded::load();
    programs.retain(|case| {
        let name = text(&case["group"]);
        ON_EVERY_STORE.contains(&name) || ALSO_ON_EVERY_STORE.contains(&name)
    });
    programs
}

/// Replays each program with a worker that knows only the address of its server. A program that
/// sets an updater runs again with [`net_store`].
#[test]
fn replays_the_recorded_programs() {
    let (mut num_again, mut failures) = (0, Vec::new());
    let programs = recorded_programs();
    for case in &programs {
        let server = start("local");
        let options = NetStoreOptions::new(server.address().to_string());
        let connected = NetStore::connect(backends(), &options).unwrap();
        let connected = Ok(Store::new(Arc::new(connected)));
        match recorded::replay_on(case, NetStore::NAME, connected) {
            Err(failure) if failure.contains(NEEDS_THE_SERVER) => {
                num_again += 1;
                failures
                    .extend(recorded::replay_on(case, NetStore::NAME, Ok(store("local"))).err());
            }
            replayed => failures.extend(replayed.err()),
        }
    }
    let len = programs.len();
    println!("{len} recorded programs, {} failures, {num_again} set updaters", failures.len());
    assert!(failures.is_empty() && len >= 285, "{len}\n{}", failures.join("\n"));
    assert!(num_again < len / 2, "{num_again}");
}

#[test]
fn several_servers_replay_the_recorded_programs() {
    let (mut num_run, mut failures) = (0, Vec::new());
    let programs = recorded_programs();
    for case in &programs {
        let (_servers, store) = on_several("local", DIVIDE_ABOVE);
        let created = Ok(Store::new(Arc::new(store)));
        let Err(failure) = recorded::replay_on(case, NetStore::NAME, created) else {
            num_run += 1;
            continue;
        };
        match NOT_ON_SEVERAL.iter().find(|(part, _)| failure.contains(part)) {
            Some((_, what)) => {
                println!("left out, because it needs {what}: {}", text(&case["name"]));
            }
            None => failures.push(failure),
        }
    }
    println!("{num_run} of {} recorded programs on several servers", programs.len());
    assert!(failures.is_empty() && num_run >= 166, "{num_run}\n{}", failures.join("\n"));
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
