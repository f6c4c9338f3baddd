//! The ownership of a place in a group, with a naive coordinator. Messages are late or lost.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::time::Duration;

use kvstore_net::rules::{Ownership, Standing};
use proptest::prelude::*;

const LEASE: u64 = 1000;

const NUM_SERVERS: usize = 3;

/// A request of a server to the coordinator: when it is sent, and how long it and its answer take.
#[derive(Clone, Copy, Debug)]
struct Request {
    server: usize,
    sent: u64,
    there: u64,
    back: u64,
    is_lost: bool,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Given,
    Used,
    Replaced,
}

/// From when a server counts its lease.
#[derive(Clone, Copy)]
enum Origin {
    Request,
    Answer,
}

/// Who has the place, until when, and who had it last.
#[derive(Default)]
struct Coordinator {
    lease: Option<(usize, u64)>,
    last: Option<usize>,
}

impl Coordinator {
    fn answer(&mut self, now: u64, server: usize, has_owned: bool) -> Answer {
        self.lease = self.lease.filter(|(_, end)| *end > now);
        match self.lease {
            Some((owner, _)) if owner != server => {
                if has_owned {
                    Answer::Replaced
                } else {
                    Answer::Used
                }
            }
            None if has_owned && self.last != Some(server) => Answer::Replaced,
            _ => {
                (self.lease, self.last) = (Some((server, now + LEASE)), Some(server));
                Answer::Given
            }
        }
    }
}

/// Returns the most servers that owned the place at the same time, how many owned it at any time,
/// and how many were replaced.
fn run(requests: &[Request], origin: Origin) -> (usize, usize, usize) {
    let at = Duration::from_millis;
    let mut coordinator = Coordinator::default();
    let mut servers: [Option<Ownership>; NUM_SERVERS] = Default::default();
    // What a server knows changes with answers, what the coordinator knows with requests.
    let mut answers: Vec<(u64, usize, u64, Answer)> = Vec::new();
    let mut most = 0;
    let last = requests.iter().map(|request| request.sent + request.there + request.back).max();
    for now in 0..=last.unwrap_or_default() + LEASE {
        for request in requests.iter().filter(|request| request.sent + request.there == now) {
            let has_owned = servers[request.server].is_some();
            let answer = coordinator.answer(now, request.server, has_owned);
            if !request.is_lost {
                answers.push((now + request.back, request.server, request.sent, answer));
            }
        }
        for (_, server, sent, answer) in answers.extract_if(.., |(time, ..)| *time == now) {
            let from = match origin {
                Origin::Request => at(sent),
                Origin::Answer => at(now),
            };
            match (answer, &mut servers[server]) {
                (Answer::Given, Some(ownership)) => ownership.renew(from, at(LEASE)),
                (Answer::Given, none) => *none = Some(Ownership::new(from, at(LEASE))),
                (Answer::Replaced, Some(ownership)) => ownership.replace(),
                (Answer::Replaced, None) | (Answer::Used, _) => {}
            }
        }
        let owns = |ownership: &&Ownership| ownership.standing(at(now)) == Standing::Owner;
        most = most.max(servers.iter().flatten().filter(owns).count());
    }
    let end = Duration::MAX;
    let known = || servers.iter().flatten();
    let is_replaced = |ownership: &&Ownership| ownership.standing(end) == Standing::Replaced;
    (most, known().count(), known().filter(is_replaced).count())
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let request = (0..NUM_SERVERS, 0..6 * LEASE, 0..LEASE, 0..LEASE, any::<bool>());
    let request = request.prop_map(|(server, sent, there, back, is_lost)| Request {
        server,
        sent,
        there,
        back,
        is_lost,
    });
    proptest::collection::vec(request, 1..40)
}

proptest! {
    #[test]
    fn a_place_has_at_most_one_owner(requests in requests()) {
        let (most, num_owners, num_replaced) = run(&requests, Origin::Request);
        prop_assert!(most <= 1, "{} owners at once", most);
        prop_assert!(num_replaced <= num_owners);
    }
}

#[test]
fn a_lease_that_begins_with_the_answer_has_two_owners() {
    let quick = Request { server: 0, sent: 0, there: 0, back: 900, is_lost: false };
    let second = Request { server: 1, sent: 1000, there: 1, back: 1, is_lost: false };
    assert_eq!(run(&[quick, second], Origin::Request).0, 1);
    assert_eq!(run(&[quick, second], Origin::Answer).0, 2);
}

#[test]
fn a_replaced_owner_never_owns_its_place_again() {
    let at = Duration::from_millis;
    let mut ownership = Ownership::new(at(10), at(100));
    assert_eq!(ownership.standing(at(109)), Standing::Owner);
    assert_eq!(ownership.standing(at(110)), Standing::Lapsed(at(110)));
    ownership.renew(at(150), at(100));
    // An answer that is overtaken changes nothing.
    ownership.renew(at(20), at(100));
    assert_eq!(ownership.standing(at(249)), Standing::Owner);
    ownership.lapse(at(200));
    assert_eq!(ownership.standing(at(201)), Standing::Lapsed(at(200)));
    ownership.replace();
    ownership.renew(at(300), at(100));
    assert_eq!(ownership.standing(at(301)), Standing::Replaced);
}
