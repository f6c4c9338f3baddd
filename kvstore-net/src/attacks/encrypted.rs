//! Attacks on a server with certificates.

use super::attacker::Attacker;
use super::authority::Authority;
use super::*;
use crate::certificates::Certificates;
use crate::random::random_number;

/// Returns a server with limits for each peer, like that of the other attacks.
fn protected(authority: &Authority, backends: &Backends) -> Server {
    let options = ServerOptions::new("127.0.0.1:0").peer_bytes(PEER_BYTES).peer_connections(64);
    let options = options.metrics("127.0.0.1:0").certificates(authority.issue("server"));
    Server::start(backends, &options).unwrap()
}

/// Returns how many connections the server has, of all peers.
fn num_connections(server: &Server) -> f64 {
    let mut stream = TcpStream::connect(server.metrics_address().unwrap()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("kvstore_connections "));
    line.unwrap().parse().unwrap()
}

fn join(server: &Server, name: &str, certificates: &Certificates) -> Attacker {
    Attacker::try_join_as(server, (name, random_number()), Some(certificates)).unwrap()
}

/// Names and incarnations are no secrets. Without certificates, anyone may use them.
#[test]
fn a_worker_cannot_act_as_another_one() {
    let _loading = loads_the_machine();
    let (authority, backends) = (Authority::new(), backends());
    let server = protected(&authority, &backends);
    let [own, other] = [authority.issue("worker"), authority.issue("worker")];
    let process = random_number();
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
            [(process, Code::PermissionDenied), (random_number(), Code::AlreadyExists)]
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

/// Checks that a member with a certificate can use the server.
#[track_caller]
fn serves_encrypted(server: &Server, certificates: &Certificates) {
    let options = NetStoreOptions::new(server.address().to_string()).timeout(LONG);
    let host = Backends::new(vec![CpuBackend::new()]);
    let store = NetStore::connect(&host, &options.certificates(certificates.clone())).unwrap();
    let name = [key("served")];
    let on_existing = OnExisting::Keep;
    store.init_with(&name, &[ones(&host, 4)], on_existing).unwrap();
    assert_eq!(store.pull(&name, 0).unwrap()[0].to_vec::<f32>().unwrap(), [1.0; 4]);
}

/// The start of a handshake: the first bytes of a message of 65,000 bytes.
const PART_OF_A_HANDSHAKE: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\xFD\xE8\x03\x03";

#[test]
fn invalid_bytes_instead_of_a_handshake_are_rejected() {
    let _loading = loads_the_machine();
    let (authority, backends) = (Authority::new(), backends());
    let server = protected(&authority, &backends);
    let certificates = authority.issue("worker");
    let mut random = Random::new();
    for round in 0..200 {
        let mut bytes = match round % 4 {
            0 => Vec::new(),
            1 => PART_OF_A_HANDSHAKE.to_vec(),
            // An alert, data without a handshake, and plain HTTP/2.
            2 => b"\x15\x03\x03\x00\x02\x02\x28\x17\x03\x03\xFF\xFF".to_vec(),
            _ => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec(),
        };
        // More than any message of a handshake may have.
        let len = if round % 20 == 1 { 1 << 17 } else { 8 + round * 8 };
        bytes.extend(random.bytes(len));
        let mut stream = attacker::connect(server.address());
        let _ = stream.write(&bytes);
        // Fails if the server has closed it.
        let _ = stream.shutdown(Shutdown::Write);
        closes(&mut stream);
    }
    // Invalid frames of HTTP/2, from a peer with a certificate.
    for round in 0..50 {
        let stream = attacker::connect(server.address());
        stream.set_nonblocking(false).unwrap();
        let mut stream = authority.encrypted(stream, Some("worker"));
        let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
        let _ = stream.write_all(&random.bytes(round * 64)).and_then(|()| stream.flush());
    }
    serves_encrypted(&server, &certificates);
    // The value of the member.
    assert!(live_bytes(&backends) < 4096, "{} bytes are in use", live_bytes(&backends));
}

#[test]
fn handshakes_that_stop_do_not_keep_members_out() {
    let _loading = loads_the_machine();
    let (authority, backends) = (Authority::new(), backends());
    let server = protected(&authority, &backends);
    let certificates = authority.issue("worker");
    serves_encrypted(&server, &certificates);
    let mut open = Vec::new();
    for number in 0..2000 {
        let mut stream = attacker::connect(server.address());
        let sent = if number % 2 == 0 { PART_OF_A_HANDSHAKE } else { &[] };
        // The server may have closed the connection: it has too many.
        let _ = stream.write(sent);
        open.push(stream);
        if number % 256 == 0 {
            serves_encrypted(&server, &certificates);
        }
    }
    // The server accepts connections in their order.
    serves_encrypted(&server, &certificates);
    let num_connections = num_connections(&server);
    assert!(num_connections < 74.0, "{num_connections} connections");
    most_open(&mut open, 64);
    // The value of the member.
    assert!(live_bytes(&backends) < 4096, "{} bytes are in use", live_bytes(&backends));
}

#[test]
fn peers_that_stop_after_the_handshake_do_not_keep_members_out() {
    let _loading = loads_the_machine();
    let (authority, backends) = (Authority::new(), backends());
    let server = protected(&authority, &backends);
    let certificates = authority.issue("worker");
    let mut open = Vec::new();
    // Others are closed before their handshake.
    for _ in 0..64 {
        let stream = attacker::connect(server.address());
        stream.set_nonblocking(false).unwrap();
        let mut stream = authority.encrypted(stream, Some("worker"));
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).unwrap();
        }
        open.push(stream);
    }
    let further = attacker::connect(server.address());
    further.set_nonblocking(false).unwrap();
    let mut further = authority.encrypted(further, Some("worker"));
    further.conn.complete_io(&mut further.sock).unwrap_err();
    serves_encrypted(&server, &certificates);
    drop(open);
    // The attacker may connect again.
    let start = Instant::now();
    let joins = || {
        let process = ("attacker", random_number());
        Attacker::try_join_as(&server, process, Some(&certificates)).is_ok()
    };
    while !joins() {
        assert!(start.elapsed() < LONG, "the connections stay counted");
    }
}
