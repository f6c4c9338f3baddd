//! Attacks on a server with certificates.

use super::attacker::{Attacker, any_process};
use super::authority::Authority;
use super::*;
use crate::certificates::Certificates;

/// Returns a server with limits for each peer, like that of the other attacks.
fn protected(authority: &Authority, backends: &Backends) -> Server {
    let options = ServerOptions::new("127.0.0.1:0").peer_bytes(PEER_BYTES).peer_connections(64);
    Server::start(backends, &options.certificates(authority.issue("server"))).unwrap()
}

fn join(server: &Server, name: &str, certificates: &Certificates) -> Attacker {
    Attacker::try_join_as(server, (name, any_process()), Some(certificates)).unwrap()
}

/// Names and incarnations are no secrets. Without certificates, anyone may use them.
#[test]
fn a_worker_cannot_act_as_another_one() {
    let _loading = loads_the_machine();
    let (authority, backends) = (Authority::new(), backends());
    let server = protected(&authority, &backends);
    let [own, other] = [authority.issue("worker"), authority.issue("worker")];
    let process = any_process();
    let mut member = Attacker::try_join_as(&server, ("member", process), Some(&own)).unwrap();
    member.ok(init(vec![value_of("w", [1])]), &[0; 4]);
    for certificates in [&other, &authority.issue("admin")] {
        let mut attacker = join(&server, "attacker", certificates);
        attacker.pretend_to_be(&member);
        // The next number of the member: otherwise its own push would be taken for a repetition.
        let code = attacker.status_with(2, push(vec![value_of("w", [1])]), &[1; 4]);
        assert_eq!(code, Code::PermissionDenied);
        assert_eq!(attacker.status(pull("w"), &[]), Code::PermissionDenied);
        // Neither the number of the process nor another one helps.
        for (process, expected) in
            [(process, Code::PermissionDenied), (any_process(), Code::AlreadyExists)]
        {
            let joined = Attacker::try_join_as(&server, ("member", process), Some(certificates));
            let status = joined.err().unwrap();
            assert_eq!(status.code(), expected, "{status}");
        }
    }
    assert_eq!(server.store().stats().unwrap()[0].num_pushes, 0);
    member.ok(push(vec![value_of("w", [1])]), &[1; 4]);
    // The same process may come back, with the certificate that it has.
    let again = Attacker::try_join_as(&server, ("member", process), Some(&own)).unwrap();
    drop(again);
}

/// A restarted worker may have a renewed certificate.
#[test]
fn a_dead_name_may_be_taken_with_another_certificate() {
    let _loading = loads_the_machine();
    let (authority, backends) = (Authority::new(), backends());
    let server = protected(&authority, &backends);
    let [earlier, renewed] = [authority.issue("worker"), authority.issue("worker")];
    let mut member = join(&server, "member", &earlier);
    member.ok(init(vec![value_of("w", [1])]), &[0; 4]);
    member.lose_membership();
    let start = Instant::now();
    while !server.members().is_empty() {
        assert!(start.elapsed() < LONG, "the end of the membership is not noticed");
        std::thread::yield_now();
    }
    let mut later = join(&server, "member", &renewed);
    later.ok(push(vec![value_of("w", [1])]), &[1; 4]);
    // The earlier process learns that it is replaced.
    let code = member.status(push(vec![value_of("w", [1])]), &[1; 4]);
    assert_eq!(code, Code::FailedPrecondition);
}
