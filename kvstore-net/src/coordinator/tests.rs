//! Leaders and members with a real etcd.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kvstore_core::{Error, ErrorCode};
use kvstore_tests::etcd::Etcd;
use tokio::time::{Instant, sleep};
use tonic::Code;

use super::*;
use crate::certificates::Certificates;
use crate::etcd::EtcdOptions;
use crate::rules::Role;

const LONG: Duration = Duration::from_secs(60);

fn options(address: &str) -> EtcdOptions {
    Coordinator::parse(&format!("etcd://{address}/tests")).unwrap().options(false)
}

fn place(index: u32, num_servers: u32, address: &str) -> Place {
    Place { index, num_servers, address: address.to_owned(), lease: Duration::from_secs(2) }
}

async fn lead(options: &EtcdOptions, address: &str) -> (Arc<Registration>, LeaderState, KeptGroup) {
    let place = place(0, 1, address);
    let registration = Registration::take(options, &place, 100).await.unwrap();
    let (leader, saved) = LeaderState::load(&registration).await.unwrap();
    (registration, leader, saved)
}

/// Renews the lease of a server, because a busy machine may take longer than a lease for a test.
fn keep(registration: &Arc<Registration>) {
    let registration = Arc::clone(registration);
    tokio::spawn(async move { registration.keep().await });
}

/// Returns a number below `end` that looks random.
fn next(state: &mut u64, end: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % end
}

#[tokio::test]
async fn leaders_hand_out_no_layout_twice() {
    let etcd = Etcd::start();
    let options = options(&etcd.address());
    let (mut ranges, mut random, mut runs) = (Vec::new(), 1, BTreeSet::new());
    for _ in 0..4 {
        let (registration, leader, _) = lead(&options, "127.0.0.1:1").await;
        keep(&registration);
        assert!(runs.insert(registration.run()), "a run has the number of an earlier one");
        let mut count = 1;
        for _ in 0..50 {
            let first = leader.reserve(count).await.unwrap();
            assert!(first > registration.run());
            ranges.push(first..first + count);
            let most = 1 << next(&mut random, 23);
            count = next(&mut random, most);
        }
        registration.release().await;
    }
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
}

/// The ranks of a random sequence of joins and departures are those that a successor finds, except
/// that the members that have left since the last join may be among them.
#[tokio::test]
async fn a_successor_finds_all_members_and_barriers() {
    let etcd = Etcd::start();
    let options = options(&etcd.address());
    let (mut members, mut random) = (BTreeMap::<String, MemberRecord>::new(), 7);
    for run in 0..4 {
        let (registration, leader, saved) = lead(&options, "127.0.0.1:1").await;
        keep(&registration);
        assert_eq!(saved.num_barriers, run);
        assert_eq!(saved.members, members);
        for process in 0..150 {
            // With letters that keys of etcd would otherwise not have.
            let name = format!("worker/{} `ü`", next(&mut random, 130));
            if process < 149 && next(&mut random, 4) == 0 {
                leader.forget_member(&name);
                members.remove(&name);
                continue;
            }
            let used: BTreeSet<u64> = members.values().map(|member| member.rank).collect();
            let known = members.get(&name).map(|member| member.rank);
            let rank =
                known.unwrap_or_else(|| (0..=200).find(|rank| !used.contains(rank)).unwrap());
            let record = MemberRecord::new(rank, Role::Worker, process, Vec::from([run]));
            leader.save_member(&name, &record).await.unwrap();
            members.insert(name, record);
        }
        leader.save_barriers(run + 1).await.unwrap();
        registration.release().await;
    }
}

#[tokio::test]
async fn only_the_leader_changes_the_state() {
    let etcd = Etcd::start();
    let options = options(&etcd.address());
    let (first, old, _) = lead(&options, "127.0.0.1:1").await;
    old.save_barriers(3).await.unwrap();
    // It does not renew its lease.
    let (second, new, saved) = lead(&options, "127.0.0.1:2").await;
    assert_eq!(saved.num_barriers, 3);
    assert_eq!(first.group(), second.group());
    let record = MemberRecord::new(0, Role::Reader, 1, Vec::new());
    assert_eq!(old.save_barriers(9).await.unwrap_err().code(), Code::Aborted);
    assert_eq!(old.save_member("a", &record).await.unwrap_err().code(), Code::Aborted);
    assert_eq!(old.reserve(1).await.unwrap_err().code(), Code::Aborted);
    assert_eq!(first.check().unwrap_err().code(), Code::Aborted);
    first.keep().await;
    let reason = first.loss().unwrap();
    assert!(reason.contains("has replaced server 0, at 127.0.0.1:2"), "{reason}");
    second.check().unwrap();
    new.save_member("a", &record).await.unwrap();
    let (_, found) = LeaderState::load(&second).await.unwrap();
    assert_eq!((found.num_barriers, found.members.len()), (3, 1));
}

/// etcd has lost the lease, but no other server has had the place.
#[tokio::test]
async fn a_server_takes_its_place_again() {
    let etcd = Etcd::start();
    let options = options(&etcd.address());
    let (registration, leader, _) = lead(&options, "127.0.0.1:1").await;
    let limit = Duration::from_secs(5);
    registration.etcd.revoke(registration.lease(), limit).await.unwrap();
    assert_eq!(leader.save_barriers(1).await.unwrap_err().code(), Code::Aborted);
    let keeping = Arc::clone(&registration);
    let keeping = tokio::spawn(async move { keeping.keep().await });
    let start = Instant::now();
    while leader.save_barriers(2).await.is_err() {
        assert!(start.elapsed() < LONG);
        sleep(Duration::from_millis(20)).await;
    }
    registration.check().unwrap();
    // Another server had the place, and has left it.
    let names = &registration.names;
    let other = crate::etcd::Transaction::default().put(&names.run(0), "9", 0);
    registration.etcd.transact(other, limit).await.unwrap();
    registration.etcd.revoke(registration.lease(), limit).await.unwrap();
    keeping.await.unwrap();
    assert!(registration.loss().unwrap().contains("another server has replaced"));
}

/// The reply to its transaction was lost.
#[tokio::test]
async fn a_server_finds_a_lease_that_it_does_not_know() {
    let etcd = Etcd::start();
    let options = options(&etcd.address());
    let (registration, leader, _) = lead(&options, "127.0.0.1:1").await;
    let (names, limit) = (&registration.names, Duration::from_secs(5));
    let earlier = registration.lease();
    let key = names.server(0);
    let value = registration.etcd.get(&key, limit).await.unwrap().unwrap().value;
    let value = String::from_utf8(value).unwrap();
    let (later, _) = registration.etcd.grant(Duration::from_secs(2), limit).await.unwrap();
    let taken = crate::etcd::Transaction::default().put(&key, &value, later);
    let taken = taken.put(&names.leader(), &registration.run().to_string(), later);
    registration.etcd.transact(taken, limit).await.unwrap();
    registration.etcd.revoke(earlier, limit).await.unwrap();
    let keeping = Arc::clone(&registration);
    tokio::spawn(async move { keeping.keep().await });
    let start = Instant::now();
    while registration.lease() != later {
        assert!(start.elapsed() < LONG);
        sleep(Duration::from_millis(20)).await;
    }
    // Longer than the lease.
    sleep(Duration::from_secs(3)).await;
    registration.check().unwrap();
    leader.save_barriers(1).await.unwrap();
}

#[tokio::test]
async fn a_client_uses_the_members_of_etcd_that_answer() {
    let etcd = Etcd::start();
    let stopped = Etcd::start();
    stopped.signal("STOP");
    let (real, silent) = (etcd.address(), stopped.address());
    let options = options(&format!("127.0.0.1:1,{silent},{real}"));
    let registration = Registration::take(&options, &place(0, 1, "127.0.0.1:7"), 1).await.unwrap();
    keep(&registration);
    let routes = find_servers(&options, LONG).await.unwrap();
    assert_eq!(*routes[0].borrow(), "127.0.0.1:7");
    registration.release().await;
    let (missing, wait) = (find_servers(&options, Duration::from_secs(4)), LONG);
    let error = tokio::time::timeout(wait, missing).await.unwrap().unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout);
    assert!(error.chain().contains("no live server 0 of 1"), "{}", error.chain());
}

#[tokio::test]
async fn connections_to_etcd_use_certificates() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/certificates");
    let etcd = Etcd::start_with_certificates(format!("{folder}/server").as_ref());
    let coordinator = |role: Option<&str>| {
        let plain = Coordinator::parse(&format!("etcd://{}/tests", etcd.address())).unwrap();
        let coordinator = match role {
            None => plain,
            Some(role) => {
                plain.certificates(Certificates::read(format!("{folder}/{role}")).unwrap())
            }
        };
        coordinator.options(false)
    };
    let options = coordinator(Some("worker"));
    let registration = Registration::take(&options, &place(0, 1, "127.0.0.1:7"), 1).await.unwrap();
    keep(&registration);
    assert_eq!(find_servers(&options, LONG).await.unwrap().len(), 1);
    let error = find_servers(&coordinator(None), Duration::from_millis(500)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout);
    // Names and addresses of other machines need certificates.
    let far = Coordinator::parse("etcd://192.0.2.1:2379").unwrap();
    let error = find_servers(&far.options(false), LONG).await.unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)));
    assert!(error.chain().contains("set `coordinator_certificates`"), "{}", error.chain());
}

#[tokio::test]
async fn keys_of_another_form_are_reported() {
    let etcd = Etcd::start();
    let options = options(&etcd.address());
    let client = crate::etcd::Etcd::new(&options).unwrap();
    let wrong = crate::etcd::Transaction::default().put("/kvstore/tests/config", "two", 0);
    client.transact(wrong, LONG).await.unwrap();
    let error = Registration::take(&options, &place(0, 1, "127.0.0.1:1"), 1).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Corrupt);
    assert!(error.chain().contains("the key `/kvstore/tests/config`"), "{}", error.chain());
}

#[tokio::test]
async fn routes_follow_the_servers() {
    let mut etcd = Etcd::start();
    let options = options(&etcd.address());
    let first = Registration::take(&options, &place(0, 2, "127.0.0.1:1"), 1).await.unwrap();
    let second = Registration::take(&options, &place(1, 2, "127.0.0.1:2"), 1).await.unwrap();
    keep(&first);
    keep(&second);
    let mut routes = find_servers(&options, LONG).await.unwrap();
    for address in ["127.0.0.1:3", "127.0.0.1:4"] {
        second.release().await;
        // Also after the connection was lost.
        if address.ends_with('4') {
            etcd.restart();
        }
        let _taken = Registration::take(&options, &place(1, 2, address), 1).await.unwrap();
        let follows = routes[1].wait_for(|route| route == address);
        tokio::time::timeout(LONG, follows).await.unwrap().unwrap();
        assert_eq!(*routes[0].borrow(), "127.0.0.1:1");
    }
}
