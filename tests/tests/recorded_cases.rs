//! Replays recorded programs on every store.

use std::collections::BTreeMap;

use kvstore_tests::STORE_NAMES;
use kvstore_tests::recorded::{self, ALSO_ON_EVERY_STORE, ON_EVERY_STORE};
use serde_json::Value as Json;

/// Groups that run on the store that the program names.
const AS_WRITTEN: [&str; 1] = ["types"];

fn groups() -> BTreeMap<String, Vec<Json>> {
    let mut groups: BTreeMap<String, Vec<Json>> = BTreeMap::new();
    for case in recorded::load() {
        let group = case["group"].as_str().expect("every program has a group").to_owned();
        groups.entry(group).or_default().push(case);
    }
    groups
}

/// Replays each program on each store, then panics with all differences.
fn replay_all(what: &str, cases: &[Json], stores: &[&str]) {
    let runs = cases.iter().flat_map(|case| stores.iter().map(move |store| (case, store)));
    let failures: Vec<String> =
        runs.filter_map(|(case, store)| recorded::replay(case, store).err()).collect();
    println!(
        "{what}: {} programs on {} stores, {} failures",
        cases.len(),
        stores.len(),
        failures.len()
    );
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn cases_of(group: &str) -> Vec<Json> {
    groups().remove(group).unwrap_or_else(|| panic!("there are no programs of group `{group}`"))
}

#[test]
fn programs_about_store_types_have_their_recorded_results() {
    for group in AS_WRITTEN {
        for case in cases_of(group) {
            let store =
                case["store_type"].as_str().expect("every program names its store").to_owned();
            replay_all(group, &[case], &[&store]);
        }
    }
}

#[test]
fn programs_have_their_recorded_results_on_every_store() {
    for group in ON_EVERY_STORE {
        replay_all(group, &cases_of(group), &STORE_NAMES);
    }
}

#[test]
fn random_programs_have_their_recorded_results_on_every_store() {
    let mut groups = groups();
    for group in ALSO_ON_EVERY_STORE {
        replay_all(group, &groups.remove(group).unwrap_or_default(), &STORE_NAMES);
    }
}

/// Panics if the file has a group that no test runs.
#[test]
fn every_group_is_replayed() {
    let replayed = [&AS_WRITTEN[..], &ON_EVERY_STORE, &ALSO_ON_EVERY_STORE].concat();
    for (group, cases) in groups() {
        let count = cases.len();
        assert!(
            replayed.contains(&group.as_str()),
            "{count} programs of `{group}` are not replayed"
        );
    }
}
