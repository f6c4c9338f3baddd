//! Joint calls of processes that leave, or whose name another one takes.

use std::time::Duration;

use kvstore_core::ErrorCode;

use super::points::Admission;
use super::*;
use crate::proto::JointCall;
use crate::rules::{JointId, Role};

const LEASE: Duration = Duration::from_secs(10);

fn join(group: &Group, now: Duration, process: u64) -> Caller {
    let joined = group.change(|state| state.members.join(now, "a", process, Role::Worker));
    Caller { name: "a".to_owned(), incarnation: joined.unwrap().incarnation, sequence: 1 }
}

fn call(number: u64) -> JointCall {
    JointCall { number, ended_below: 1, servers: [0, 1].into(), ..JointCall::default() }
}

fn admitted(group: &Group, caller: &Caller, number: u64) -> Option<JointId> {
    match group.admits(caller, Some(&call(number))).unwrap() {
        Admission::Now(id) => id,
        Admission::Later => panic!("the call waits"),
    }
}

fn made(group: &Group) -> Vec<(u64, u64)> {
    group.state().joint.made().map(|(id, _)| (id.process, id.number)).collect()
}

#[test]
fn the_calls_of_a_process_that_has_left_are_made_but_not_recorded() {
    let group = Group::new(LEASE, 0);
    let caller = join(&group, Duration::ZERO, 7);
    let first = admitted(&group, &caller, 1).unwrap();
    group.leave("a", caller.incarnation);
    group.make_joint(first, &call(1));
    assert_eq!(made(&group), []);
    assert_eq!(admitted(&group, &caller, 2), None, "the rest of its push is made");
}

#[test]
fn calls_of_a_replaced_process_do_not_forget_those_of_the_later_one() {
    let group = Group::new(LEASE, 0);
    let earlier = join(&group, Duration::ZERO, 7);
    let (first, second) =
        (admitted(&group, &earlier, 1).unwrap(), admitted(&group, &earlier, 2).unwrap());
    let later = join(&group, LEASE * 2, 8);
    let error = group.admits(&earlier, Some(&call(3))).err().unwrap();
    assert_eq!(error.code(), ErrorCode::Closed);
    // Another server may still wait for it.
    group.make_joint(first, &call(1));
    assert_eq!(made(&group), [(7, 1)]);
    group.make_joint(admitted(&group, &later, 1).unwrap(), &call(1));
    group.make_joint(second, &call(2));
    assert_eq!(made(&group), [(8, 1)]);
}
