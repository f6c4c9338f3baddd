//! Random programs on every store and on the model. Compares every result, every error code, and
//! all stored values after every call.

use kvstore::ErrorCode;
use kvstore_tests::operations::{Operation, program};
use kvstore_tests::policy::Policy;
use kvstore_tests::{STORE_NAMES, replay};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

type Outcomes = Vec<Option<ErrorCode>>;

fn agrees(name: &str, program: &[Operation]) -> Result<Outcomes, TestCaseError> {
    let store = kvstore::create(name).expect("a store of this machine can be created");
    replay::run(&store, program)
        .map_err(|what| TestCaseError::fail(format!("store `{name}`: {what}")))
}

/// `PROPTEST_CASES` increases the number of programs.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig { cases: default.cases.max(3000), ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn stores_agree_with_the_model(program in program()) {
        for name in STORE_NAMES {
            agrees(name, &program)?;
        }
    }
}

/// Programs that only fail would agree with any store.
#[test]
fn programs_mostly_succeed_and_make_every_mistake() {
    let mut runner = TestRunner::deterministic();
    let (mut outcomes, mut lazy_steps) = (Vec::new(), 0);
    for _ in 0..500 {
        let program = program().new_tree(&mut runner).expect("nothing is rejected").current();
        let outcomes_now = agrees("local", &program).expect("store and model agree");
        lazy_steps += num_lazy_steps(&program, &outcomes_now);
        outcomes.extend(outcomes_now);
    }
    println!("{lazy_steps} steps of some rows");
    assert!(lazy_steps >= 50, "{lazy_steps} steps of some rows");
    let succeeded = outcomes.iter().filter(|outcome| outcome.is_none()).count();
    println!("{succeeded} of {} calls succeeded", outcomes.len());
    assert!(succeeded * 10 > outcomes.len() * 6, "{succeeded} of {}", outcomes.len());
    for code in [
        ErrorCode::KeyNotFound,
        ErrorCode::KeyExists,
        ErrorCode::LengthMismatch,
        ErrorCode::SpecMismatch,
        ErrorCode::InvalidArgument,
        ErrorCode::Updater,
    ] {
        assert!(outcomes.contains(&Some(code)), "no call failed with {code}");
    }
}

/// Returns the number of calls that stepped some rows of a key, before the first rollback, which
/// may restore another policy.
fn num_lazy_steps(program: &[Operation], outcomes: &[Option<ErrorCode>]) -> usize {
    let is_kept = |operation: &Operation| !matches!(operation, Operation::Rollback(..));
    let (mut has_sgd, mut count) = (false, 0);
    for (operation, outcome) in program.iter().zip(outcomes).take_while(|(it, _)| is_kept(it)) {
        match operation {
            Operation::SetPolicy(policy) => has_sgd = matches!(policy, Policy::Sgd(_)),
            Operation::PushRows(given, _) if has_sgd && outcome.is_none() => {
                count += usize::from(given.values.iter().any(|value| value.rows().is_some()));
            }
            _ => {}
        }
    }
    count
}
