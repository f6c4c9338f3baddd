//! Replays recorded programs on every store: what is not replayed yet is listed, not hidden.

use std::collections::BTreeMap;

use kvstore_tests::{STORE_NAMES, recorded};
use serde_json::Value as Json;

/// Runs on the store that the program names.
const AS_WRITTEN: [&str; 1] = ["types"];

/// Run on every store.
const ON_EVERY_STORE: [&str; 11] = [
    "basic_local",
    "basic_device",
    "order",
    "pushpull",
    "dtype",
    "sum_order",
    "updater",
    "errors_local",
    "errors_device",
    "crash",
    "bug",
];

/// Programs of other groups that need nothing but the verbs of these: run where the file has them.
const ALSO_ON_EVERY_STORE: [&str; 1] = ["random"];

/// Of the group of optimizers those that need files of optimizer state, which do not exist yet.
const LEFT_OUT: [&str; 2] = ["opt_save_load_states", "save_states_without_updater"];

fn groups() -> BTreeMap<String, Vec<Json>> {
    let mut groups: BTreeMap<String, Vec<Json>> = BTreeMap::new();
    for case in recorded::load() {
        let group = case["group"].as_str().expect("every program has a group").to_owned();
        groups.entry(group).or_default().push(case);
    }
    groups
}

/// Replays each program on each store and fails with every disagreement, not only the first.
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
fn programs_about_types_run_as_written() {
    for group in AS_WRITTEN {
        for case in cases_of(group) {
            let store =
                case["store_type"].as_str().expect("every program names its store").to_owned();
            replay_all(group, &[case], &[&store]);
        }
    }
}

#[test]
fn programs_run_on_every_store() {
    for group in ON_EVERY_STORE {
        replay_all(group, &cases_of(group), &STORE_NAMES);
    }
}

#[test]
fn random_programs_run_on_every_store() {
    let mut groups = groups();
    for group in ALSO_ON_EVERY_STORE {
        replay_all(group, &groups.remove(group).unwrap_or_default(), &STORE_NAMES);
    }
}

#[test]
fn optimizer_programs_run_on_every_store() {
    let mut cases = groups().remove("optimizer_python").unwrap_or_default();
    cases.retain(|case| !LEFT_OUT.iter().any(|name| case["name"] == *name));
    replay_all("optimizer_python", &cases, &STORE_NAMES);
}

/// Prints what is left out, by group, and fails for a group that nobody decided about.
#[test]
fn what_is_left_out_is_known() {
    let replayed = [&AS_WRITTEN[..], &ON_EVERY_STORE, &ALSO_ON_EVERY_STORE].concat();
    let later = ["grad_compression", "optimizer_python"];
    for (group, cases) in groups() {
        if replayed.contains(&group.as_str()) {
            continue;
        }
        let is_left_out = |case: &&Json| LEFT_OUT.iter().any(|name| case["name"] == *name);
        let left_out = match group.as_str() {
            "optimizer_python" => cases.iter().filter(is_left_out).count(),
            _ => cases.len(),
        };
        println!("left out of group `{group}`: {left_out} of {} programs", cases.len());
        assert!(
            later.contains(&group.as_str()),
            "group `{group}` is neither replayed nor left out"
        );
    }
}
