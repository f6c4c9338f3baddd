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
fn one_init_of_a_key_wins() {
    on_every_store(concurrency::one_init_of_a_key_wins);
}

#[test]
fn readers_see_complete_updates() {
    on_every_store(concurrency::readers_see_complete_updates);
}

#[test]
fn opposite_orders_do_not_deadlock() {
    on_every_store(concurrency::opposite_orders_do_not_deadlock);
}

#[test]
fn updaters_may_pull_each_others_keys() {
    on_every_store(concurrency::updaters_may_pull_each_others_keys);
}

#[test]
fn an_updater_blocks_no_readers_of_other_keys() {
    on_every_store(concurrency::an_updater_blocks_no_readers_of_other_keys);
}

#[test]
fn tasks_of_a_thread_pool_may_push() {
    on_every_store(concurrency::tasks_of_a_thread_pool_may_push);
}

#[test]
fn tasks_of_the_common_pool_may_push() {
    on_every_store(concurrency::tasks_of_the_common_pool_may_push);
}

#[test]
fn keys_may_come_and_go() {
    on_every_store(concurrency::keys_may_come_and_go);
}

#[test]
fn the_updater_may_change_under_pushes() {
    on_every_store(concurrency::the_updater_may_change_under_pushes);
}

#[test]
fn arrays_may_meet_in_any_order() {
    on_every_store(concurrency::arrays_may_meet_in_any_order);
}
