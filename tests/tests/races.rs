//! Every store passes the suite of racing verbs.

use kvstore_tests::suite::{on_every_store, races};

#[test]
fn readers_never_see_older_states_with_an_updater() {
    on_every_store(races::readers_never_see_older_states_with_an_updater);
}

#[test]
fn readers_never_see_older_states_with_an_optimizer() {
    on_every_store(races::readers_never_see_older_states_with_an_optimizer);
}

#[test]
fn readers_never_see_older_states_with_sums() {
    on_every_store(races::readers_never_see_older_states_with_sums);
}

#[test]
fn a_key_may_be_initialised_again_with_another_shape() {
    on_every_store(races::a_key_may_be_initialised_again_with_another_shape);
}

#[test]
fn hyper_parameters_change_between_pushes() {
    on_every_store(races::hyper_parameters_change_between_pushes);
}

#[test]
fn rules_change_between_pushes() {
    on_every_store(races::rules_change_between_pushes);
}

#[test]
fn a_panic_during_pushes_poisons_only_its_key() {
    on_every_store(races::a_panic_during_pushes_poisons_only_its_key);
}
