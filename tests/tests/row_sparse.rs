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
fn row_sparse_sums_equal_dense_sums() {
    on_every_store(|create, _| suite::row_sparse_sums_equal_dense_sums(create));
}

#[test]
fn clipped_rows_equal_clipped_dense_values() {
    on_every_store(|create, _| suite::clipped_rows_equal_clipped_dense_values(create));
}

#[test]
fn updates_that_are_not_lazy_receive_the_dense_sum() {
    on_every_store(|create, _| suite::updates_that_are_not_lazy_receive_the_dense_sum(create));
}

#[test]
fn lazy_steps_change_only_their_rows() {
    on_every_store(|create, _| suite::lazy_steps_change_only_their_rows(create));
}

#[test]
fn pulled_rows_equal_the_rows_of_the_dense_value() {
    on_every_store(|create, _| suite::pulled_rows_equal_the_rows_of_the_dense_value(create));
}

#[test]
fn rows_with_equal_indices_are_summed_in_call_order() {
    suite::rows_with_equal_indices_are_summed_in_call_order();
}

#[test]
fn invalid_rows_are_rejected() {
    on_every_store(suite::invalid_rows_are_rejected);
}

#[test]
fn readers_see_complete_steps() {
    on_every_store(suite::readers_see_complete_steps);
}
