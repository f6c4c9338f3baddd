//! Every store of one process passes the suite of row-sparse values, with few threads and with
//! many.

use kvstore_core::{Backends, KvStore, LocalStore};
use kvstore_tests::place;
use kvstore_tests::suite::row_sparse as suite;

fn on_every_store(check: impl Fn(suite::Create<'_>, &Backends)) {
    for (place, backends) in place::backends(&[1, 2, 7]) {
        // The other names create the same kinds of stores.
        for name in ["local", "device"] {
            println!("store `{name}`, {place}");
            let new = || LocalStore::new(name, backends.clone()).expect("a name that is listed");
            check(&|| Box::new(new()) as Box<dyn KvStore>, &backends);
        }
    }
}

#[test]
fn sums_are_those_of_dense_values() {
    on_every_store(|create, _| suite::sums_are_those_of_dense_values(create));
}

#[test]
fn clipped_rows_are_those_of_dense_values() {
    on_every_store(|create, _| suite::clipped_rows_are_those_of_dense_values(create));
}

#[test]
fn dense_steps_are_those_of_dense_values() {
    on_every_store(|create, _| suite::dense_steps_are_those_of_dense_values(create));
}

#[test]
fn lazy_steps_change_nothing_but_their_rows() {
    on_every_store(|create, _| suite::lazy_steps_change_nothing_but_their_rows(create));
}

#[test]
fn pulled_rows_are_those_of_the_value() {
    on_every_store(|create, _| suite::pulled_rows_are_those_of_the_value(create));
}

#[test]
fn ids_in_any_order() {
    suite::ids_in_any_order();
}

#[test]
fn wrong_rows_are_refused() {
    on_every_store(suite::wrong_rows_are_refused);
}

#[test]
fn readers_see_complete_steps() {
    on_every_store(suite::readers_see_complete_steps);
}
