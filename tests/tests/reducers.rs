//! Every way to sum on one machine passes the suite of reducers.

use kvstore_core::{Backends, CpuBackend, DeviceReducer, HostReducer, Reducer};
use kvstore_tests::suite::reducer as suite;

fn on_every_reducer(check: impl Fn(&dyn Reducer, &Backends)) {
    let backends = Backends::new(vec![CpuBackend::with_threads(3)]);
    check(&HostReducer, &backends);
    check(&DeviceReducer, &backends);
}

#[test]
fn groups_become_their_sums() {
    on_every_reducer(suite::groups_become_their_sums);
}

#[test]
fn gathering_moves_and_keeps_values() {
    on_every_reducer(suite::gathering_moves_and_keeps_values);
}
