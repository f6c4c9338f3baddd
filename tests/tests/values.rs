//! Every store of one process passes the suite of stores on values.

use kvstore_core::{Backends, KvStore, LocalStore};
use kvstore_tests::place;
use kvstore_tests::suite::values as suite;

fn on_every_store(check: impl Fn(&dyn KvStore, &Backends)) {
    let (_, backends) = place::backends(&[2]).remove(0);
    for name in LocalStore::NAMES {
        println!("store `{name}`");
        check(&LocalStore::new(name, backends.clone()).expect("a name that is listed"), &backends);
    }
}

#[test]
fn lists_run_in_parallel() {
    on_every_store(suite::lists_run_in_parallel);
}

#[test]
fn keys_that_exist() {
    on_every_store(suite::keys_that_exist);
}

#[test]
fn values_are_snapshots() {
    on_every_store(suite::values_are_snapshots);
}

#[test]
fn a_failed_updater_has_written_nothing() {
    on_every_store(suite::a_failed_updater_has_written_nothing);
}

#[test]
fn an_updater_keeps_the_spec() {
    on_every_store(suite::an_updater_keeps_the_spec);
}
