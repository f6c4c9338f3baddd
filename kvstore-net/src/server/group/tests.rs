//! Joint calls of processes that leave, or whose name another one takes.

use std::collections::BTreeSet;
use std::time::Duration;

use kvstore_core::ErrorCode;

use super::points::{Admission, Cut};
use super::running::Running;
use super::*;
use crate::proto::JointCall;
use crate::rules::{JointId, Role};

const LEASE: Duration = Duration::from_secs(10);

fn join(group: &Group, now: Duration, process: u64) -> Caller {
    let joined = group.change(|state| {
        state.calls.insert("a".to_owned(), Calls::new(MOST_CALLS));
        state.members.join(now, "a", process, Role::Worker)
    });
    Caller { name: "a".to_owned(), incarnation: joined.unwrap().incarnation, sequence: 1 }
}

/// Returns a group with the member `a`, whose process has the number 7.
fn group_of_one() -> (Group, Caller) {
    let group = Group::new(LEASE, 0);
    let caller = join(&group, Duration::ZERO, 7);
    (group, caller)
}

fn call(number: u64) -> JointCall {
    JointCall { number, ended_below: 1, servers: [0, 1].into(), ..JointCall::default() }
}

async fn begin<'a>(group: &'a Group, caller: &Caller) -> Running<'a> {
    group.begin(caller, true, Instant::now() + LEASE).await.unwrap().unwrap()
}

fn admitted(group: &Group, caller: &Caller, number: u64) -> JointId {
    match group.admits(caller, Some(&call(number))).unwrap() {
        Admission::Now(id) => id.unwrap(),
        Admission::Later => panic!("the call waits"),
    }
}

fn made(group: &Group) -> Vec<(u64, u64)> {
    group.state().joint.made().map(|(id, _)| (id.process, id.number)).collect()
}

/// Begins a cut for which this call was made at another server.
fn cut(group: &Group, id: JointId) {
    let made_elsewhere = Some(BTreeSet::from([id]));
    group.change(|state| state.cut = Some(Cut { made_elsewhere, ..Cut::new(1) }));
}

#[tokio::test]
async fn a_member_leaves_when_its_joint_calls_have_ended() {
    let (group, caller) = group_of_one();
    let running = begin(&group, &caller).await;
    group.leave("a", caller.incarnation);
    assert_eq!(group.members().0.members, []);
    assert!(group.role_of("a").is_some());
    // A cut that begins now waits for the call, and lets it take effect.
    cut(&group, JointId { name: "a".to_owned(), process: 7, number: 1 });
    let waits = tokio::time::timeout(Duration::from_millis(20), group.joint_calls_made(1));
    assert!(waits.await.is_err());
    let id = admitted(&group, &caller, 1);
    group.make_joint(id.clone(), &call(1));
    group.joint_calls_made(1).await.unwrap();
    assert_eq!(made(&group), [(7, 1)]);
    running.finish(None, &[]);
    assert!(group.role_of("a").is_none());
    assert_eq!(made(&group), []);
    // The next cut neither waits for it nor remembers it.
    cut(&group, id.clone());
    group.joint_calls_made(1).await.unwrap();
    assert!(!group.state().joint.is_given_up(&id));
    let error = group.admits(&caller, Some(&call(2))).err().unwrap();
    assert_eq!(error.code(), ErrorCode::Closed);
}

#[tokio::test]
async fn another_process_may_take_the_name_of_a_member_that_leaves() {
    let (group, caller) = group_of_one();
    let running = begin(&group, &caller).await;
    group.leave("a", caller.incarnation);
    let later = join(&group, Duration::ZERO, 8);
    running.finish(None, &[]);
    assert!(group.process_of(&later) == Some(8));
}

#[test]
fn a_call_that_ends_after_its_process_is_forgotten_is_not_recorded() {
    let (group, caller) = group_of_one();
    let id = admitted(&group, &caller, 1);
    group.leave("a", caller.incarnation);
    group.make_joint(id, &call(1));
    assert_eq!(made(&group), []);
}

#[test]
fn calls_of_a_replaced_process_do_not_forget_those_of_the_later_one() {
    let (group, earlier) = group_of_one();
    let (first, second) = (admitted(&group, &earlier, 1), admitted(&group, &earlier, 2));
    let later = join(&group, LEASE * 2, 8);
    let error = group.admits(&earlier, Some(&call(3))).err().unwrap();
    assert_eq!(error.code(), ErrorCode::Closed);
    // Another server may still wait for it.
    group.make_joint(first, &call(1));
    assert_eq!(made(&group), [(7, 1)]);
    group.make_joint(admitted(&group, &later, 1), &call(1));
    group.make_joint(second, &call(2));
    assert_eq!(made(&group), [(8, 1)]);
}
