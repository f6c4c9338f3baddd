//! Runs the suites for stores with 1, 2, 3 and 4 workers, which are threads.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::expect_used, reason = "a check fails by panicking")]

use std::cell::RefCell;
use std::sync::Arc;

use kvstore_core::{Backends, KvStore, LocalStore};
use kvstore_dist::Group;
use kvstore_tests::operations::program;
use kvstore_tests::suite::bits::{self, Place};
use proptest::prelude::*;
use threads::as_workers;

mod store_suite;
mod threads;

/// Defines the tests for each number of workers.
macro_rules! workers {
    ($($name:ident: $size:literal;)*) => {
        $(
            mod $name {
                use crate::{as_workers, store_suite};

                #[test]
                fn pass_the_suites() {
                    as_workers($size, store_suite::suites);
                }

                #[test]
                fn replay_the_recorded_programs() {
                    as_workers($size, store_suite::recorded_programs);
                }
            }
        )*
    };
}

workers! {
    one_worker: 1;
    two_workers: 2;
    three_workers: 3;
    four_workers: 4;
}

thread_local! {
    /// The group of this worker. The function that creates a store has no argument for it.
    static GROUP: RefCell<Option<Arc<Group>>> = const { RefCell::new(None) };
}

/// Runs a check that compares the bits of a single-process store and a distributed store.
fn same_bits(group: &Arc<Group>, check: fn(&[Place])) {
    GROUP.set(Some(Arc::clone(group)));
    let one_process = |name: &str, backends: &Backends| -> Box<dyn KvStore> {
        Box::new(LocalStore::new(name, backends.clone()).expect("a name that is listed"))
    };
    let all = |name: &str, _: &Backends| -> Box<dyn KvStore> {
        let group = GROUP.with_borrow(|group| group.clone().expect("it is set"));
        Box::new(store_suite::dist_store(&group, name))
    };
    check(&[Place::on_host("local", one_process), Place::on_host(store_suite::NAMES[0], all)]);
    GROUP.set(None);
}

/// The checks of bits are slow, so each runs with one number of workers. The random programs cover
/// the other numbers.
#[test]
fn sums_have_the_bits_of_one_store() {
    as_workers(3, |group| same_bits(group, bits::sums_have_the_same_bits));
}

#[test]
fn steps_have_the_bits_of_one_store() {
    as_workers(2, |group| same_bits(group, bits::steps_have_the_same_bits));
}

/// Returns a configuration with 1000 programs, or more if `PROPTEST_CASES` is larger.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig { cases: default.cases.max(1000), ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn workers_agree_with_the_model(program in program(), size in 1_usize..5) {
        for found in as_workers(size, |group| store_suite::replay_program(group, &program)) {
            found.map_err(TestCaseError::fail)?;
        }
    }
}
