//! Every store of one process passes the suite of rows, with few threads and with many.

use kvstore_core::{Backends, CpuBackend, KvStore, LocalStore};
use kvstore_tests::reduced;
use kvstore_tests::suite::rows as suite;

fn on_every_store(check: impl Fn(suite::Create<'_>, &Backends)) {
    for num_threads in reduced::threads(&[1, 2, 7]) {
        let backends = Backends::new(vec![CpuBackend::with_threads(num_threads)]);
        // Stores of one kind under several names differ in nothing but the name.
        for name in ["local", "device"] {
            println!("store `{name}`, {num_threads} threads");
            let new = || LocalStore::new(name, backends.clone()).expect("a name that is listed");
            check(&|| Box::new(new()) as Box<dyn KvStore>, &backends);
        }
    }
}

#[test]
fn sums_are_those_of_whole_values() {
    on_every_store(|create, _| suite::sums_are_those_of_whole_values(create));
}

#[test]
fn whole_steps_are_those_of_whole_values() {
    on_every_store(|create, _| suite::whole_steps_are_those_of_whole_values(create));
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
fn readers_see_whole_steps() {
    on_every_store(suite::readers_see_whole_steps);
}
