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
fn keys_and_values_are_parallel_lists() {
    on_every_store(suite::keys_and_values_are_parallel_lists);
}

#[test]
fn existing_keys_are_rejected_kept_or_replaced() {
    on_every_store(suite::existing_keys_are_rejected_kept_or_replaced);
}

#[test]
fn later_changes_of_tensors_do_not_change_the_store() {
    on_every_store(suite::later_changes_of_tensors_do_not_change_the_store);
}

#[test]
fn a_failed_updater_changes_nothing() {
    on_every_store(suite::a_failed_updater_changes_nothing);
}

#[test]
fn an_updater_cannot_change_the_spec() {
    on_every_store(suite::an_updater_cannot_change_the_spec);
}
