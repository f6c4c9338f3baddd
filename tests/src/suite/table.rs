//! Tables of the checks for stores that span processes. A store of another crate runs those that
//! apply to it.

use kvstore::Store;
use kvstore_core::{Backends, KvStore};

use super::row_sparse::Create;
use super::{calls, concurrency, races, row_sparse, snapshots, store_snapshots, updaters, values};

/// Returns a table of checks with their names.
macro_rules! checks {
    ($($suite:ident: $($check:ident),* $(,)?;)*) => {
        &[$($((concat!(stringify!($suite), "::", stringify!($check)), $suite::$check)),*),*]
    };
}

/// Checks with their names.
pub type Checks<F> = &'static [(&'static str, F)];

/// The checks for any number of workers. If several threads make calls, their order has no effect.
pub const ON_STORES: Checks<fn(&Store)> = checks! {
    calls: keys_and_values_have_four_forms, values_of_a_repeated_key_are_summed,
        empty_lists_do_nothing, lists_of_different_lengths_are_rejected,
        any_string_without_nul_is_a_key, keys_are_in_init_order,
        a_call_with_an_invalid_item_changes_nothing, errors_name_key_expected_and_found,
        empty_arrays_are_rejected_and_scalars_are_accepted, values_may_be_on_several_devices,
        an_optimizer_rejects_integer_weights;
    snapshots: writes_after_init_do_not_change_the_store,
        writes_after_a_push_do_not_change_the_store,
        writes_to_pulled_arrays_do_not_change_the_store, a_push_does_not_change_pulled_arrays,
        pulled_arrays_are_independent, writes_after_a_push_of_a_view_do_not_change_the_store,
        a_pull_into_a_view_writes_only_its_rows, overlapping_outputs_are_written_in_init_order,
        one_array_may_be_every_output, one_array_may_be_every_value,
        an_updater_cannot_change_the_array_of_the_caller, arrays_of_an_updater_are_private,
        writes_after_a_broadcast_do_not_change_the_store;
    updaters: each_key_is_updated_once_in_init_order, init_and_pull_do_not_run_the_updater,
        a_cleared_updater_does_not_run, a_failed_updater_keeps_the_old_value,
        push_returns_the_error_of_the_updater, an_updater_cannot_change_its_store,
        an_updater_may_change_another_store, a_pull_in_an_updater_returns_committed_values,
        a_thread_may_change_the_store_after_its_updater_failed, writes_of_every_kind_are_committed;
    store_snapshots: row_sparse_and_dense_values_with_equal_bits_are_identical,
        a_rollback_restores_values_states_and_settings, a_snapshot_never_changes,
        changed_keys_returns_the_keys_that_differ, an_updater_cannot_take_a_snapshot;
    concurrency: pushes_of_one_key_are_not_lost, readers_see_complete_updates,
        a_running_updater_does_not_block_pulls_of_other_keys;
    races: readers_never_see_older_states_with_an_updater,
        readers_never_see_older_states_with_an_optimizer, readers_never_see_older_states_with_sums;
};

/// The checks of panicking updaters, for a store whose pushes panic or return an error.
pub const ON_PANICS: Checks<fn(&Store)> = checks! {
    updaters: a_panic_poisons_one_key, a_call_with_a_poisoned_key_changes_nothing;
    store_snapshots: a_rollback_restores_a_poisoned_key;
    races: a_panic_during_pushes_poisons_only_its_key;
};

/// The checks whose threads make calls in any order.
pub const IN_ANY_ORDER: Checks<fn(&Store)> = checks! {
    concurrency: different_keys_are_independent, only_one_concurrent_init_of_a_key_succeeds,
        opposite_orders_of_keys_do_not_deadlock, the_updater_may_change_during_pushes;
    races: hyper_parameters_change_between_pushes, rules_change_between_pushes;
    store_snapshots: a_snapshot_is_a_state_that_the_store_had,
        a_snapshot_has_value_and_state_after_the_same_push, a_rollback_restores_all_keys_together;
};

/// The checks for any number of workers, with values of the core.
pub const ON_VALUES: Checks<fn(&dyn KvStore, &Backends)> = checks! {
    values: keys_and_values_are_parallel_lists, existing_keys_are_rejected_kept_or_replaced,
        later_changes_of_tensors_do_not_change_the_store, a_failed_updater_changes_nothing,
        an_updater_cannot_change_the_spec;
};

/// The checks of row-sparse values that create stores.
pub const ON_ROWS: Checks<fn(Create<'_>)> = checks! {
    row_sparse: row_sparse_sums_equal_dense_sums, updates_that_are_not_lazy_receive_the_dense_sum,
        clipped_rows_equal_clipped_dense_values, lazy_steps_change_only_their_rows,
        pulled_rows_equal_the_rows_of_the_dense_value;
};

/// The checks of row-sparse values that create stores and values of the core.
pub const ON_INVALID_ROWS: Checks<fn(Create<'_>, &Backends)> = checks! {
    row_sparse: invalid_rows_are_rejected, readers_see_complete_steps;
};

/// The checks for a store that runs updaters in several threads, and whose calls wait for their
/// effect.
pub const AT_ONCE: Checks<fn(&Store)> = checks! {
    concurrency: updaters_may_pull_each_others_keys, tasks_of_a_thread_pool_may_push,
        tasks_of_the_global_pool_may_push, keys_may_be_removed_during_pushes_and_pulls;
    races: a_key_may_be_initialised_again_with_another_shape;
    store_snapshots: a_snapshot_waits_for_updaters_but_a_pull_does_not,
        a_dropped_updater_may_call_the_store;
};
