//! Clients that violate the protocol or try to exhaust the server. The server must serve others
//! meanwhile, and its memory must stay bounded.
//!
//! The attackers come from `127.0.0.2`, so that they are another peer than the members of the
//! tests.

mod attacker;
#[allow(dead_code, reason = "other tests use all of it")]
#[path = "../../tests/network/authority.rs"]
mod authority;
mod deadlines;
mod encrypted;
mod http;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::time::{Duration, Instant};

use kvstore_core::{
    Backends, CpuBackend, Device, ErrorCode, Key, KvStore, LocalStore, OnExisting, Tensor, Value,
};
use tonic::Code;

use self::attacker::Attacker;
use crate::client::{NetStore, NetStoreOptions};
use crate::proto::request::Verb;
use crate::proto::{self, Init, Pull, PullRows, Push, Rollback, SetStates};
use crate::quiet::loads_the_machine;
use crate::server::{Server, ServerOptions};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// The most bytes that the calls of a peer may hold in these tests.
const PEER_BYTES: usize = 32 << 20;

/// The memory limit of a server in these tests.
const MEMORY: usize = 256 << 20;

fn backends() -> Backends {
    let host = CpuBackend::new();
    host.set_memory_limit(Some(MEMORY));
    Backends::new(vec![host])
}

fn server(backends: &Backends) -> Server {
    let options = ServerOptions::new("127.0.0.1:0").peer_bytes(PEER_BYTES).peer_connections(64);
    Server::start(backends, &options.keys(1000)).unwrap()
}

fn member(server: &Server) -> NetStore {
    let options = NetStoreOptions::new(server.address().to_string()).timeout(LONG);
    NetStore::connect(&Backends::new(vec![CpuBackend::new()]), &options).unwrap()
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn ones(backends: &Backends, len: usize) -> Value {
    Tensor::from_slice(backends, Device::cpu(0), [len], &vec![1.0_f32; len]).unwrap().into()
}

fn live_bytes(backends: &Backends) -> usize {
    backends.of(Device::cpu(0)).unwrap().live_bytes()
}

/// Checks that a member can use the server.
#[track_caller]
fn serves(server: &Server) {
    let store = member(server);
    let name = [key("served")];
    let one = ones(&Backends::new(vec![CpuBackend::new()]), 4);
    store.init(&name, std::slice::from_ref(&one)).unwrap();
    assert_eq!(store.pull(&name, 0).unwrap()[0].to_vec::<f32>().unwrap(), [1.0; 4]);
    store.remove(&name).unwrap();
}

fn value_of(key: &str, shape: impl Into<Vec<u64>>) -> proto::Value {
    let spec = Some(proto::Spec { dtype: "float32".to_owned(), shape: shape.into() });
    proto::Value { key: key.to_owned(), spec, ..Default::default() }
}

fn init(values: Vec<proto::Value>) -> Verb {
    Verb::Init(Init { values, ..Init::default() })
}

fn push(values: Vec<proto::Value>) -> Verb {
    Verb::Push(Push { values, ..Push::default() })
}

fn pull(key: &str) -> Verb {
    Verb::Pull(Pull { keys: vec![key.to_owned()], ..Pull::default() })
}

/// Numbers that look random, the same in each run.
struct Random(u64);

impl Random {
    fn new() -> Self {
        Self(0x2545_F491_4F6C_DD1D)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            bytes.extend(self.0.to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

#[test]
fn invalid_bytes_are_rejected() {
    let _loading = loads_the_machine();
    let backends = backends();
    let server = server(&backends);
    let mut random = Random::new();
    for round in 0..200_usize {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        let mut bytes = Vec::new();
        if round % 2 == 0 {
            // The start of HTTP/2 with empty settings, so that the rest are frames.
            bytes.extend(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
        }
        bytes.extend(random.bytes(round * 64));
        let _ = stream.write_all(&bytes);
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let _ = stream.read(&mut [0; 64]);
    }
    let mut attacker = Attacker::join(&server, "attacker");
    for len in [0, 1, 5, 6, 100, 10_000] {
        for first in [0, 1, 0x0A, 0x12, 0xFF] {
            attacker.send_raw(vec![first; len]);
        }
    }
    serves(&server);
}

#[test]
fn impossible_sizes_are_rejected() {
    let _loading = loads_the_machine();
    let backends = backends();
    let server = server(&backends);
    let mut attacker = Attacker::join(&server, "attacker");
    attacker.ok(init(vec![value_of("w", [1])]), &[0; 4]);
    let before = live_bytes(&backends);
    for shape in [vec![1 << 58], vec![u64::MAX], vec![u64::MAX, u64::MAX], vec![1 << 40, 1 << 20]] {
        let failure = attacker.failure(push(vec![value_of("w", shape.clone())]));
        assert!(
            [ErrorCode::OutOfMemory as u32, ErrorCode::InvalidArgument as u32]
                .contains(&failure.code),
            "{shape:?}: {failure:?}"
        );
        attacker.failure(init(vec![value_of("new", shape)]));
    }
    // More than the peer may hold, but less than the memory limit.
    let failure = attacker.failure(push(vec![value_of("w", [PEER_BYTES as u64 / 4 + 1])]));
    assert!(failure.message.contains("at most 33554432 bytes"), "{failure:?}");
    attacker.failure(Verb::Rollback(Rollback { num_bytes: 1 << 60, ..Default::default() }));
    let state = proto::KeyState { num_bytes: u64::MAX, ..Default::default() };
    let states = vec![state.clone(), state];
    attacker.failure(Verb::SetStates(SetStates { states, ..Default::default() }));
    // The length of a message, and that of its request.
    let claims =
        |len: u32| [&[0][..], &len.to_be_bytes(), &[0x0A, 0xFF, 0xFF, 0xFF, 0x7F]].concat();
    assert_eq!(attacker.send_raw(claims(u32::MAX)), Code::OutOfRange);
    let after = live_bytes(&backends);
    assert_eq!(before, after);
    serves(&server);
}

#[test]
fn a_request_of_many_tiny_entries_is_rejected_before_it_is_decoded() {
    let _loading = loads_the_machine();
    let backends = backends();
    let server = server(&backends);
    let mut attacker = Attacker::join(&server, "attacker");
    // Two bytes each, and a hundred times as many when they are decoded.
    let code = attacker.status(push(vec![proto::Value::default(); 1_000_000]), &[]);
    assert_eq!(code, Code::OutOfRange);
    serves(&server);
}

#[test]
fn a_request_within_the_data_of_another_one_is_rejected() {
    let _loading = loads_the_machine();
    let backends = backends();
    let server = server(&backends);
    let mut attacker = Attacker::join(&server, "attacker");
    attacker.ok(init(vec![value_of("w", [1 << 20])]), &vec![0; 4 << 20]);
    // The second request must not end what the first one counts.
    let code = attacker.two_requests(push(vec![value_of("w", [1 << 20])]), pull("w"));
    assert_eq!(code, Code::InvalidArgument);
    serves(&server);
}

#[test]
fn long_names_are_rejected_and_not_kept() {
    let _loading = loads_the_machine();
    let backends = backends();
    let server = server(&backends);
    let mut attacker = Attacker::join(&server, "attacker");
    let long = "k".repeat(1 << 20);
    let failure = attacker.failure_with(init(vec![value_of(&long, [1])]), &[0; 4]);
    assert!(failure.message.contains("expected at most 4096"), "{failure:?}");
    // The server keeps the failure until the member confirms it.
    let failure = attacker.failure_with(push(vec![value_of(&long, [1])]), &[0; 4]);
    assert!(failure.message.len() <= 4096 && failure.key.is_none(), "{failure:?}");
    let failure = attacker.failure_with(init(vec![value_of("w", vec![1; 1000])]), &[0; 4]);
    assert!(failure.message.contains("1000 axes: expected at most 64"), "{failure:?}");
    let keys =
        proto::Keys { keys: vec!["w".to_owned()], only_present: true, ..proto::Keys::default() };
    let failure = attacker.failure(Verb::Remove(keys));
    assert!(failure.message.contains("several servers"), "{failure:?}");
    serves(&server);
}

#[test]
fn a_server_has_a_limited_number_of_keys() {
    let _loading = loads_the_machine();
    let backends = backends();
    let server = server(&backends);
    let mut attacker = Attacker::join(&server, "attacker");
    let keys = |range: std::ops::Range<u32>| {
        let values: Vec<_> = range.map(|number| value_of(&number.to_string(), [1])).collect();
        let data = vec![0; 4 * values.len()];
        (values, data)
    };
    let (values, data) = keys(0..999);
    attacker.ok(init(values.clone()), &data);
    let (more, more_data) = keys(2000..2002);
    let failure = attacker.failure_with(init(more), &more_data);
    assert!(failure.message.contains("2 new keys, but the server has 999 of at most 1000"));
    // Existing keys need no room.
    let again = Init { on_existing: proto::OnExisting::Keep as i32, values, ..Init::default() };
    attacker.ok(Verb::Init(again), &data);
    serves(&server);
}

#[test]
fn connections_above_the_limit_are_closed() {
    let _loading = loads_the_machine();
    let backends = backends();
    let server = server(&backends);
    let store = member(&server);
    // Both ends are in this process.
    let files = rlimit::increase_nofile_limit(u64::MAX).unwrap();
    let count = if files > 11_000 { 10_000 } else { files / 2 };
    if count < 10_000 {
        println!("skipped: 10000 connections: {files} open files allow {count}");
    }
    let mut open = Vec::new();
    for number in 0..count {
        open.push(attacker::connect(server.address()));
        if number % 256 == 0 {
            // The system has room for about a thousand that the server has not accepted, and
            // repeats others after a second.
            serves(&server);
        }
    }
    store.init(&[key("w")], &[ones(&backends, 4)]).unwrap();
    assert_eq!(store.pull(&[key("w")], 0).unwrap()[0].to_vec::<f32>().unwrap(), [1.0; 4]);
    serves(&server);
    most_open(&mut open, 64);
    drop(open);
    // The attacker may connect again.
    Attacker::join(&server, "attacker");
}

/// Waits until at most this many connections are open.
#[track_caller]
fn most_open(streams: &mut [TcpStream], most: usize) {
    let start = Instant::now();
    let mut num_open = usize::MAX;
    while num_open > most {
        assert!(start.elapsed() < LONG, "{num_open} connections are open");
        num_open = streams.iter_mut().filter_map(|stream| is_open(stream).then_some(())).count();
    }
}

/// Waits until the server closes a connection.
#[track_caller]
fn closes(stream: &mut TcpStream) {
    most_open(std::slice::from_mut(stream), 0);
}

/// Returns whether the other side has not closed a connection.
fn is_open(stream: &mut TcpStream) -> bool {
    loop {
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

#[test]
fn unread_replies_count_for_their_peer() {
    let _loading = loads_the_machine();
    let backends = backends();
    let server = server(&backends);
    let store = member(&server);
    // 4 MiB, so that 8 of them are all that a peer may hold.
    let len = 1 << 20;
    store.init(&[key("w")], &[ones(&backends, len)]).unwrap();
    let mut attacker = Attacker::join(&server, "attacker");
    let mut num_refused = 0;
    let indices: Vec<u8> = (0..1i64 << 19).flat_map(i64::to_le_bytes).collect();
    for round in 0..64 {
        let (verb, data) = if round % 2 == 0 {
            (pull("w"), &[][..])
        } else {
            let (keys, num_rows) = (vec!["w".to_owned()], vec![1 << 19]);
            (Verb::PullRows(PullRows { keys, num_rows, ..PullRows::default() }), &indices[..])
        };
        num_refused += usize::from(!attacker.start_and_do_not_read(verb, data));
        // The earlier value stays in memory for a reader that has not finished.
        store.push(&[key("w")], &[ones(&backends, len)], 0).unwrap();
    }
    assert!(num_refused >= 32, "{num_refused} calls were refused");
    let held = live_bytes(&backends);
    assert!(held < PEER_BYTES + (24 << 20), "{held} bytes are in use");
    serves(&server);
    drop(attacker);
    let start = Instant::now();
    let is_free = || {
        let held = live_bytes(&backends);
        held < (16 << 20)
    };
    while !is_free() {
        assert!(start.elapsed() < LONG, "the replies stay in memory");
        std::thread::yield_now();
    }
}

#[test]
fn open_streams_count_for_their_peer() {
    let _loading = loads_the_machine();
    let backends = backends();
    let server = server(&backends);
    let mut attacker = Attacker::join(&server, "attacker");
    // 16 KiB each.
    let most = PEER_BYTES / (16 << 10);
    let opened = attacker.open_idle_streams(most + 500);
    assert!(opened <= most, "{opened} streams");
    assert!(opened > most / 2, "{opened} streams");
    serves(&server);
}

#[test]
fn repeated_messages_take_effect_once() {
    let _loading = loads_the_machine();
    let backends = backends();
    let server = server(&backends);
    let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&count);
    let updater = move |_: &Key, _: &Tensor, _: &mut Tensor| {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    };
    let store: &LocalStore = server.store();
    store.set_updater(Some(std::sync::Arc::new(updater))).unwrap();
    let mut attacker = Attacker::join(&server, "attacker");
    attacker.ok(init(vec![value_of("w", [1])]), &[0; 4]);
    let sequence = attacker.next_sequence();
    for _ in 0..50 {
        attacker.ok_with(sequence, push(vec![value_of("w", [1])]), &[0; 4]);
    }
    assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 1);
    // A number below those that the member has confirmed.
    let code = attacker.status_with(0, push(vec![value_of("w", [1])]), &[0; 4]);
    assert_eq!(code, Code::InvalidArgument);
    let incarnation = attacker.leave();
    let mut later = Attacker::join(&server, "attacker");
    // The messages of the earlier process, also under the name of the later one.
    let current = later.use_incarnation(incarnation);
    let code = later.status(push(vec![value_of("w", [1])]), &[0; 4]);
    assert_eq!(code, Code::FailedPrecondition);
    later.use_incarnation(current);
    later.ok(push(vec![value_of("w", [1])]), &[0; 4]);
    assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 2);
    serves(&server);
}

#[test]
fn member_names_above_256_bytes_are_rejected() {
    let _loading = loads_the_machine();
    let backends = backends();
    let server = server(&backends);
    let refused = Attacker::try_join(&server, &"a".repeat(257)).err().unwrap();
    assert_eq!(refused.code(), Code::InvalidArgument);
    Attacker::join(&server, &"a".repeat(256));
    serves(&server);
}
