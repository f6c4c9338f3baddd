//! What every store passes, on stores of 1, 2, 3 and 4 workers that are threads.

use kvstore_tests::operations::program;
use kvstore_tests::suite::bits;
use proptest::prelude::*;
use threads::as_workers;

mod checks;
mod threads;

/// Makes the tests of one number of workers.
macro_rules! workers {
    ($($name:ident: $size:literal;)*) => {
        $(
            mod $name {
                use crate::{as_workers, checks};

                #[test]
                fn pass_the_suites() {
                    as_workers($size, checks::suites);
                }

                #[test]
                fn replay_the_recorded_programs() {
                    as_workers($size, checks::recorded_programs);
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

/// These are many and long: one number of workers each will do, and random programs have the others.
#[test]
fn sums_have_the_bits_of_one_store() {
    as_workers(3, |group| checks::same_bits(group, bits::sums_have_the_same_bits));
}

#[test]
fn steps_have_the_bits_of_one_store() {
    as_workers(2, |group| checks::same_bits(group, bits::steps_have_the_same_bits));
}

/// `PROPTEST_CASES` asks for more programs than these.
fn config() -> ProptestConfig {
    let asked = ProptestConfig::default();
    ProptestConfig { cases: asked.cases.max(1000), ..asked }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn workers_agree_with_the_model(program in program(), size in 1_usize..5) {
        for found in as_workers(size, |group| checks::replay_program(group, &program)) {
            found.map_err(TestCaseError::fail)?;
        }
    }
}
