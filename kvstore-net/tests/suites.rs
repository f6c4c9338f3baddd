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
use kvstore_net::rules::placement;
use kvstore_net::{NetStore, NetStoreOptions, Server, ServerOptions};
use kvstore_tests::json::text;
use kvstore_tests::operations::{Operation, program};
use kvstore_tests::policy::Policy;
use kvstore_tests::recorded::{ALSO_ON_EVERY_STORE, ON_EVERY_STORE};
use kvstore_tests::suite::bits::{self, Place};
use kvstore_tests::suite::table::{
    AT_ONCE, Checks, IN_ANY_ORDER, ON_INVALID_ROWS, ON_PANICS, ON_ROWS, ON_STORES, ON_VALUES,
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

/// Checks that set updaters in threads of their own, so that the text of a panic is lost.
const IN_THREADS: [&str; 1] = ["concurrency::the_updater_may_change_during_pushes"];

/// Why several servers do not pass a check.
#[derive(Clone, Copy)]
enum Reason {
    /// Each server makes its part of a call in an order and at a moment of its own. So the check
    /// passes sometimes, and is not run.
    OneOrder,
    OneMoment,
    /// They do not support a feature, and the error has this text.
    Unsupported(&'static str),
}

/// The checks that several servers do not pass.
const NOT_ON_SEVERAL: [(&str, Reason); 12] = [
    ("updaters::each_key_is_updated_once_in_init_order", Reason::OneOrder),
    ("updaters::a_failed_updater_keeps_the_old_value", Reason::OneOrder),
    ("updaters::a_pull_in_an_updater_returns_committed_values", Reason::OneOrder),
    ("updaters::a_call_with_a_poisoned_key_changes_nothing", Reason::OneMoment),
    ("races::a_panic_during_pushes_poisons_only_its_key", Reason::OneMoment),
    ("races::hyper_parameters_change_between_pushes", Reason::OneMoment),
    ("races::rules_change_between_pushes", Reason::OneMoment),
    ("races::a_key_may_be_initialised_again_with_another_shape", Reason::OneMoment),
    ("store_snapshots::a_snapshot_is_a_state_that_the_store_had", Reason::OneMoment),
    ("store_snapshots::a_rollback_restores_all_keys_together", Reason::OneMoment),
    ("store_snapshots::a_snapshot_waits_for_updaters_but_a_pull_does_not", Reason::OneMoment),
    (
        "row_sparse::clipped_rows_equal_clipped_dense_values",
        Reason::Unsupported("no server knows the norm over the keys of all servers"),
    ),
];

/// The number of checks in [`ON_STORES`] and the other lists that run on several servers.
const NUM_ON_SEVERAL: usize = 65;

/// Runs a check on servers that may be in other processes. Returns whether it sets an updater, so
/// that it must run with servers in this process.
fn needs_server_here(check: &str, run: impl FnOnce()) -> bool {
    if IN_THREADS.contains(&check) {
        return true;
    }
    let Err(panic) = catch_unwind(AssertUnwindSafe(run)) else { return false };
    panic_text(&*panic).contains(NEEDS_THE_SERVER) || resume_unwind(panic)
}

/// Checks that a check fails because of an unsupported feature, and for no other reason.
fn is_unsupported(check: &str, text: &str, run: impl FnOnce()) {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err(check);
    let found = panic_text(&*panic);
    assert!(found.contains(text), "{check}: expected `{text}`, found `{found}`");
}

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
        if needs_server_here(check, || run(*act, &connected)) {
            num_again += 1;
            println!("{check} on a server in this process");
            run(*act, &|| net_store(name));
        }
    }
    println!("{num_again} of {} checks set updaters", checks.len());
}

/// Values of more bytes are divided among several servers.
const DIVIDE_ABOVE: usize = 8;

/// Checks whose threads pull while others push. The parts of a divided value are read at different
/// moments, so they run with complete values.
const WITH_COMPLETE_VALUES: [&str; 3] = [
    "races::readers_never_see_older_states_with_an_optimizer",
    "races::readers_never_see_older_states_with_sums",
    "row_sparse::readers_see_complete_steps",
];

/// How many servers a group of several has.
const NUM_SERVERS: usize = 3;

/// Starts several servers and returns a worker.
fn on_several(name: &str, divide_above: usize) -> (Vec<Arc<Server>>, NetStore) {
    let servers: Vec<_> = (0..NUM_SERVERS).map(|_| start(name)).collect();
    let addresses = servers.iter().map(|server| server.address().to_string());
    let options = NetStoreOptions::of_servers(addresses).divide_above(divide_above);
    (servers, NetStore::connect(backends(), &options).unwrap())
}

/// Starts several servers in this process and returns their only worker, which can set updaters.
/// The servers have complete values, as updaters expect.
fn several_here(name: &str) -> NetStore {
    let servers: Vec<_> = (0..NUM_SERVERS).map(|_| start(name)).collect();
    let options = NetStoreOptions::new("").divide_above(usize::MAX);
    NetStore::connect_to(backends(), &servers, &options).unwrap()
}

/// Runs each check on several servers. A check that sets an updater runs again with
/// [`several_here`]. Returns how many have run, and how many of [`NOT_ON_SEVERAL`] have not.
fn each_on_several<F: Copy>(
    checks: Checks<F>,
    run: impl Fn(F, &dyn Fn() -> NetStore),
) -> [usize; 2] {
    let [mut num_run, mut num_left_out] = [0; 2];
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
        if let Some((_, reason)) = NOT_ON_SEVERAL.iter().find(|(other, _)| other == check) {
            num_left_out += 1;
            if let Reason::Unsupported(text) = reason {
                is_unsupported(check, text, || run(*act, &connected));
            }
        } else {
            num_run += 1;
            if needs_server_here(check, || run(*act, &connected)) {
                println!("{check} on three servers in this process");
                run(*act, &|| several_here(name));
            }
        }
    }
    println!("{num_run} of {} checks on several servers", checks.len());
    [num_run, num_left_out]
}

fn boxed(store: NetStore) -> Box<dyn KvStore> {
    Box::new(store)
}

#[test]
fn passes_the_suites_of_stores() {
    let store_of = |create: &dyn Fn() -> NetStore| Store::new(Arc::new(create()));
    each(ON_STORES, |check, create| check(&store_of(create)));
}

#[test]
fn passes_the_suites_of_threads() {
    let store_of = |create: &dyn Fn() -> NetStore| Store::new(Arc::new(create()));
    for checks in [IN_ANY_ORDER, AT_ONCE, ON_PANICS] {
        each(checks, |check, create| check(&store_of(create)));
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
    let of_stores =
        |checks| each_on_several(checks, |check: fn(&Store), create| check(&store_of(create)));
    let counts = [
        of_stores(ON_STORES),
        of_stores(IN_ANY_ORDER),
        of_stores(AT_ONCE),
        of_stores(ON_PANICS),
        each_on_several(ON_VALUES, |check, create| check(&create(), backends())),
        each_on_several(ON_ROWS, |check, create| check(&|| boxed(create()))),
        each_on_several(ON_INVALID_ROWS, |check, create| {
            check(&|| boxed(create()), backends());
        }),
    ];
    let total = counts.into_iter().fold([0; 2], |[a, b], [run, left_out]| [a + run, b + left_out]);
    assert_eq!(total, [NUM_ON_SEVERAL, NOT_ON_SEVERAL.len()]);
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

fn replay_on(case: &serde_json::Value, store: NetStore) -> Option<String> {
    recorded::replay_on(case, NetStore::NAME, Ok(Store::new(Arc::new(store)))).err()
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
        match replay_on(case, connected) {
            Some(failure) if failure.contains(NEEDS_THE_SERVER) => {
                num_again += 1;
                failures.extend(replay_on(case, net_store("local")));
            }
            failure => failures.extend(failure),
        }
    }
    let len = programs.len();
    println!("{len} recorded programs, {} failures, {num_again} set updaters", failures.len());
    assert!(failures.is_empty() && len >= 285, "{len}\n{}", failures.join("\n"));
    assert!(num_again < len / 2, "{num_again}");
}

/// Returns the number of the server that has the value of a key.
fn home_of(key: &str) -> usize {
    placement::home(key, NUM_SERVERS)
}

/// All recorded programs run on several servers. Each server updates its keys in the order of
/// `init`, and the logs of the updaters are compared server by server.
#[test]
fn several_servers_replay_the_recorded_programs() {
    let (mut num_again, mut failures) = (0, Vec::new());
    let programs = recorded_programs();
    let replay_on = |case, store| {
        let store = Ok(Store::new(Arc::new(store)));
        recorded::replay_on_parts(case, NetStore::NAME, store, &home_of).err()
    };
    for case in &programs {
        let (_servers, store) = on_several("local", DIVIDE_ABOVE);
        let mut failure = replay_on(case, store);
        if failure.as_ref().is_some_and(|failure| failure.contains(NEEDS_THE_SERVER)) {
            num_again += 1;
            failure = replay_on(case, several_here("local"));
        }
        failures.extend(failure);
    }
    let len = programs.len();
    println!("{len} recorded programs on several servers, {num_again} set updaters");
    assert!(failures.is_empty() && len >= 285, "{len}\n{}", failures.join("\n"));
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

    /// Runs each program on a server that cannot run updaters, without them, and then completely.
    #[test]
    fn agrees_with_the_model(program in program()) {
        let has_updater = |operation: &Operation| {
            matches!(operation, Operation::SetPolicy(Policy::Updater(..)))
        };
        let mut without = program.clone();
        without.retain(|operation| !has_updater(operation));
        let server = start("local");
        let options = NetStoreOptions::new(server.address().to_string());
        let connected = NetStore::connect(backends(), &options).unwrap();
        replay::run(&Store::new(Arc::new(connected)), &without).map_err(TestCaseError::fail)?;
        if program.iter().any(has_updater) {
            replay::run(&store("local"), &program).map_err(TestCaseError::fail)?;
        }
    }
}
