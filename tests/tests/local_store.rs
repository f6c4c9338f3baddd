//! Random programs on every store and on the model: every result, every error code, and all that is
//! stored after every call.

use kvstore_tests::operations::{Operation, program};
use kvstore_tests::{STORE_NAMES, replay};
use proptest::prelude::*;

fn agrees(name: &str, program: &[Operation]) -> Result<(), TestCaseError> {
    let store = kvstore::create(name).expect("a store of this machine can be created");
    replay::run(&store, program)
        .map_err(|what| TestCaseError::fail(format!("store `{name}`: {what}")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn stores_agree_with_the_model(program in program()) {
        for name in STORE_NAMES {
            agrees(name, &program)?;
        }
    }
}
