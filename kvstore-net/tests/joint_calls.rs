//! The calls of operations that change several servers.

#![allow(clippy::disallowed_macros, reason = "a test may abort without memory")]

use std::collections::{BTreeMap, BTreeSet};

use kvstore_net::rules::{JointCalls, JointId, JointServers, MOST_OPERATIONS, made_elsewhere};
use proptest::prelude::*;

fn id(process: u64, number: u64) -> JointId {
    JointId { name: "a".to_owned(), process, number }
}

proptest! {
    #[test]
    fn calls_are_known_until_their_operations_have_ended(
        calls in proptest::collection::vec((1..20_u64, 0..20_u64), 0..40),
    ) {
        let mut joint = JointCalls::default();
        let (mut ended, mut made) = (0, BTreeSet::new());
        for (number, ended_below) in calls {
            joint.make(id(1, number), ended_below, JointServers::from([0, 1]));
            ended = ended.max(ended_below);
            made.insert(number);
        }
        let open: Vec<u64> = joint.made().map(|(id, _)| id.number).collect();
        let expected: Vec<u64> = made.iter().copied().filter(|one| *one >= ended).collect();
        for number in expected.iter().filter(|number| !open.contains(number)) {
            // It was made when its operation had ended, or has ended since.
            prop_assert!(*number < 20);
        }
        for number in &open {
            prop_assert!(expected.contains(number));
            prop_assert!(joint.is_made(&id(1, *number)));
        }
        for number in 0..ended {
            prop_assert!(joint.is_made(&id(1, number)));
        }
        prop_assert!(!joint.is_made(&id(2, 1)));
    }

    #[test]
    fn servers_together_have_each_operation_completely(
        operations in proptest::collection::vec(
            (proptest::collection::btree_set(0..4_u32, 1..4), 0..16_u32), 0..20,
        ),
    ) {
        // Some of the calls of each operation are made.
        let mut made = vec![BTreeMap::new(); 4];
        for (number, (servers, mask)) in (1..).zip(&operations) {
            for server in servers.iter().filter(|server| mask >> **server & 1 == 1) {
                made[*server as usize].insert(id(1, number), servers.clone());
            }
        }
        let missing = made_elsewhere(&made);
        for (number, (servers, mask)) in (1..).zip(&operations) {
            let is_begun = servers.iter().any(|server| mask >> *server & 1 == 1);
            for server in 0..4_u32 {
                let at = server as usize;
                let has = made[at].contains_key(&id(1, number))
                    || missing[at].contains(&id(1, number));
                prop_assert_eq!(has, is_begun && servers.contains(&server));
            }
        }
    }
}

#[test]
fn a_later_process_begins_anew() {
    let mut joint = JointCalls::default();
    joint.make(id(1, 7), 5, JointServers::from([0, 1]));
    joint.make(id(2, 1), 0, JointServers::from([0, 1]));
    assert_eq!(joint.made().map(|(id, _)| id).collect::<Vec<_>>(), [id(2, 1)]);
    assert!(!joint.is_made(&id(1, 7)) && joint.is_made(&id(2, 1)));
    joint.give_up(id(1, 9));
    assert!(joint.is_made(&id(2, 1)), "giving up a call of another process forgets nothing");
    joint.give_up(id(2, 2));
    assert!(joint.is_given_up(&id(2, 2)) && !joint.is_given_up(&id(1, 2)));
    joint.make(id(2, 4), 3, JointServers::from([0, 1]));
    assert!(!joint.is_given_up(&id(2, 2)), "the operation has ended");
    joint.remove_member("a");
    assert!(!joint.is_made(&id(2, 1)));
}

#[test]
fn open_operations_are_bounded_and_ended_ones_make_room() {
    let mut joint = JointCalls::default();
    let most = MOST_OPERATIONS as u64;
    for number in 1..=most {
        assert!(joint.has_room(&id(1, number), 1));
        joint.make(id(1, number), 1, JointServers::from([0, 1]));
    }
    assert!(!joint.has_room(&id(1, most + 1), 1));
    assert!(joint.has_room(&id(1, most + 1), 2) && joint.has_room(&id(2, 1), 1));
    // What another process says does not count.
    joint.end("a", 2, most);
    assert!(!joint.has_room(&id(1, most + 1), 1));
    joint.end("a", 1, most);
    assert!(joint.has_room(&id(1, most + 1), 1));
    assert_eq!(joint.made().map(|(id, _)| id.number).collect::<Vec<_>>(), [most]);
}
