//! Runs the suite for collectives with members that are threads.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

use kvstore_core::ErrorCode;
use kvstore_dist::{Collective, LocalCollective, Wait};

mod collective_suite;

/// Runs `act` as every member of a group.
fn as_members(size: usize, act: impl Fn(&LocalCollective) + Sync) {
    let act = &act;
    thread::scope(|scope| {
        for member in LocalCollective::group(size) {
            scope.spawn(move || act(&member));
        }
    });
}

#[test]
fn one_member_passes_the_suite() {
    as_members(1, |member| collective_suite::all(member));
}

#[test]
fn two_members_pass_the_suite() {
    as_members(2, |member| collective_suite::all(member));
}

#[test]
fn three_members_pass_the_suite() {
    as_members(3, |member| collective_suite::all(member));
}

#[test]
fn four_members_pass_the_suite() {
    as_members(4, |member| collective_suite::all(member));
}

#[test]
fn timeouts_name_the_member_that_does_not_call() {
    for size in [2, 4] {
        let all_were_late = Barrier::new(size);
        as_members(size, |member| {
            if member.rank() < size - 1 {
                collective_suite::late(member, Duration::from_millis(50));
            }
            all_were_late.wait();
        });
    }
}

#[test]
fn different_calls_fail_on_every_member() {
    for size in [2, 3] {
        let all_know = Barrier::new(size);
        as_members(size, |member| {
            collective_suite::different_verbs(member);
            all_know.wait();
        });
    }
}

#[test]
fn different_lengths_fail_on_every_member() {
    for sent in [0, 8, 10] {
        let all_know = Barrier::new(2);
        as_members(2, |member| {
            collective_suite::different_lengths(member, sent);
            all_know.wait();
        });
    }
}

#[test]
fn a_member_that_leaves_fails_the_members_that_wait_for_it() {
    as_members(3, |member| {
        if member.rank() == 1 {
            return;
        }
        let error = member.barrier(&collective_suite::wait()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Backend);
        // The first of the two members that fails leaves too, and the other may report that one.
        let text = error.chain();
        assert!(text.contains("rank 1 has left") || text.contains("has given up"), "{text}");
    });
}

#[test]
fn data_sent_before_leaving_arrives() {
    let mut group = LocalCollective::group(2);
    let (late, early) = (group.pop().unwrap(), group.pop().unwrap());
    thread::scope(|scope| {
        let (send, left) = mpsc::channel();
        scope.spawn(move || {
            let mut buffer = (&[7; 5][..]).into();
            early.broadcast(0, &mut buffer, &collective_suite::wait()).unwrap();
            drop(early);
            send.send(()).unwrap();
        });
        left.recv().unwrap();
        let mut buffer = (&[0; 5][..]).into();
        late.broadcast(0, &mut buffer, &collective_suite::wait()).unwrap();
        assert_eq!(*buffer, [7; 5]);
        assert!(late.barrier(&collective_suite::wait()).is_err());
    });
}

#[test]
fn waiting_for_another_call_ends_at_the_deadline() {
    let group = LocalCollective::group(2);
    thread::scope(|scope| {
        scope.spawn(|| group[0].barrier(&collective_suite::wait()));
        // The second of two concurrent calls waits for the first one until its own short deadline.
        let second = group[0].barrier(&Wait::new(&"the second", Duration::from_millis(50)));
        assert_eq!(second.unwrap_err().code(), ErrorCode::Timeout);
        assert_eq!(
            group[0].barrier(&collective_suite::wait()).unwrap_err().code(),
            ErrorCode::Timeout
        );
        let _ = group[1].barrier(&Wait::new(&"the other one", Duration::from_millis(50)));
    });
}
