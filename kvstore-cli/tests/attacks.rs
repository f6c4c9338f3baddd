//! Peers that fill the memory of a server with frames of HTTP/2. Here, because the memory of a
//! process is measured.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod process;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use kvstore::{NetStoreOptions, ServerStatus};

use self::process::{LONG, Process};

/// The most memory that the server may need in addition, in kilobytes. Without its limits, a second
/// of the first two attacks needs several times as much.
const MOST_KILOBYTES: usize = 200 << 10;
const NUM_CONNECTIONS: usize = 16;
const DURATION: Duration = Duration::from_secs(2);

const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// `POST`, `http`, the path `/`, the host `a`, in the encoding of HPACK.
const REQUEST: &[u8] = b"\x83\x86\x84\x01\x01a";

/// A flow-control window that is too large together with the initial one.
const TOO_LARGE: &[u8] = &[0x7F, 0xFF, 0xFF, 0xFF];

/// Appends a frame of HTTP/2.
fn frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    bytes.extend(&u32::try_from(payload.len()).unwrap().to_be_bytes()[1..]);
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
}

/// Appends the frames of an attack. Each stream may be used once.
type Attack = fn(bytes: &mut Vec<u8>, stream: u32);

const ATTACKS: [(&str, Attack); 5] = [
    ("windows that overflow", |bytes, stream| {
        frame(bytes, HEADERS, END_HEADERS, stream, REQUEST);
        frame(bytes, WINDOW_UPDATE, 0, stream, TOO_LARGE);
    }),
    ("requests", |bytes, stream| {
        frame(bytes, HEADERS, END_HEADERS | END_STREAM, stream, REQUEST);
    }),
    ("cancelled requests", |bytes, stream| {
        frame(bytes, HEADERS, END_HEADERS, stream, REQUEST);
        frame(bytes, RESET, 0, stream, &[0, 0, 0, 8]);
    }),
    ("settings", |bytes, _| frame(bytes, SETTINGS, 0, 0, &[])),
    ("pings", |bytes, _| frame(bytes, PING, 0, 0, &[0; 8])),
];

/// Sends the frames until the time is over. Connects again when the server closes the connection.
fn attack(address: &str, attack: Attack, reads: bool) {
    let start = Instant::now();
    while start.elapsed() < DURATION {
        attack_once(address, attack, reads, start);
    }
}

fn attack_once(address: &str, attack: Attack, reads: bool, start: Instant) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let mut bytes = Vec::from(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    frame(&mut bytes, SETTINGS, 0, 0, &[]);
    let (mut next, mut sent, mut unread) = (1, 0, [0; 4096]);
    while start.elapsed() < DURATION {
        if sent == bytes.len() {
            bytes.clear();
            sent = 0;
            for _ in 0..500 {
                attack(&mut bytes, next);
                next += 2;
            }
        }
        match stream.write(&bytes[sent..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
        if reads {
            let _ = stream.read(&mut unread);
        }
    }
}

/// Returns the memory of a process in kilobytes.
fn kilobytes(process: &Process) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", process.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn frames_do_not_fill_the_memory() {
    let (server, address) = Process::serve(&["--address", "127.0.0.1:0"]);
    let before = kilobytes(&server);
    for (name, frames) in ATTACKS {
        for reads in [false, true] {
            let most = thread::scope(|scope| {
                let attackers: Vec<_> = (0..NUM_CONNECTIONS)
                    .map(|_| scope.spawn(|| attack(&address, frames, reads)))
                    .collect();
                let mut most = 0;
                while attackers.iter().any(|attacker| !attacker.is_finished()) {
                    most = most.max(kilobytes(&server));
                    thread::sleep(Duration::from_millis(20));
                }
                most
            });
            let more = most.saturating_sub(before);
            println!("{name}, replies read: {reads}: {more} kB");
            assert!(more < MOST_KILOBYTES, "{name}: {more} kB");
            let options = NetStoreOptions::new(&address).timeout(LONG);
            ServerStatus::of(&options).expect("the server serves others");
        }
    }
}
