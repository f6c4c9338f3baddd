//! Every store passes the suite of concurrent calls.

use kvstore_tests::suite::{concurrency, on_every_store};

#[test]
fn pushes_of_one_key_are_not_lost() {
    on_every_store(concurrency::pushes_of_one_key_are_not_lost);
}

#[test]
fn different_keys_are_independent() {
    on_every_store(concurrency::different_keys_are_independent);
}

#[test]
fn only_one_concurrent_init_of_a_key_succeeds() {
    on_every_store(concurrency::only_one_concurrent_init_of_a_key_succeeds);
}

#[test]
fn readers_see_complete_updates() {
    on_every_store(concurrency::readers_see_complete_updates);
}

#[test]
fn opposite_orders_of_keys_do_not_deadlock() {
    on_every_store(concurrency::opposite_orders_of_keys_do_not_deadlock);
}

#[test]
fn updaters_may_pull_each_others_keys() {
    on_every_store(concurrency::updaters_may_pull_each_others_keys);
}

#[test]
fn a_running_updater_does_not_block_pulls_of_other_keys() {
    on_every_store(concurrency::a_running_updater_does_not_block_pulls_of_other_keys);
}

#[test]
fn tasks_of_a_thread_pool_may_push() {
    on_every_store(concurrency::tasks_of_a_thread_pool_may_push);
}

#[test]
fn tasks_of_the_global_pool_may_push() {
    on_every_store(concurrency::tasks_of_the_global_pool_may_push);
}

#[test]
fn keys_may_be_removed_during_pushes_and_pulls() {
    on_every_store(concurrency::keys_may_be_removed_during_pushes_and_pulls);
}

#[test]
fn the_updater_may_change_during_pushes() {
    on_every_store(concurrency::the_updater_may_change_during_pushes);
}

#[test]
fn arrays_may_be_operands_in_any_order() {
    on_every_store(concurrency::arrays_may_be_operands_in_any_order);
}
