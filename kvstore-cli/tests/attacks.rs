//! Peers that fill the memory of a server with frames of HTTP/2, or with parts of handshakes and of
//! requests. They measure the memory of a process, so the server has one of its own.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod process;

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use kvstore::{Certificates, NetStoreOptions, ServerStatus};
use socket2::{Domain, Socket, Type};

use self::process::{LONG, Process};

/// The most memory that the server may need in addition, in kilobytes. Without its limits, a second
/// of the first two attacks needs several times as much.
const MOST_KILOBYTES: usize = 200 << 10;
const NUM_CONNECTIONS: usize = 16;
const DURATION: Duration = Duration::from_secs(1);

/// The address of the attackers. Each address has its own limits, so attackers cannot use up those
/// of the member that must be served.
const ATTACKERS: [u8; 4] = [127, 0, 0, 2];

const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// `POST`, `http`, the path `/`, the host `a`, in the encoding of HPACK.
const REQUEST: &[u8] = b"\x83\x86\x84\x01\x01a";

/// A request whose reply is as long as the name of a compression that the server does not know.
fn long_request() -> Vec<u8> {
    let mut bytes =
        Vec::from(b"\x83\x86\x01\x01a\x04\x16/kvstore.v1.Store/Join\x00\x0Dgrpc-encoding");
    // 3000, in the encoding of HPACK.
    bytes.extend([0x7F, 0xB9, 0x16]);
    bytes.extend([b'x'; 3000]);
    bytes
}

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

const ATTACKS: [(&str, Attack); 6] = [
    ("windows that overflow", |bytes, stream| {
        frame(bytes, HEADERS, END_HEADERS, stream, REQUEST);
        frame(bytes, WINDOW_UPDATE, 0, stream, TOO_LARGE);
    }),
    ("requests", |bytes, stream| {
        frame(bytes, HEADERS, END_HEADERS | END_STREAM, stream, REQUEST);
    }),
    ("requests with long replies", |bytes, stream| {
        frame(bytes, HEADERS, END_HEADERS | END_STREAM, stream, &long_request());
    }),
    ("cancelled requests", |bytes, stream| {
        frame(bytes, HEADERS, END_HEADERS, stream, REQUEST);
        frame(bytes, RESET, 0, stream, &[0, 0, 0, 8]);
    }),
    ("settings", |bytes, _| frame(bytes, SETTINGS, 0, 0, &[])),
    ("pings", |bytes, _| frame(bytes, PING, 0, 0, &[0; 8])),
];

/// Sends the frames until the time is over. Connects again when the server closes the connection.
fn attack(address: SocketAddr, attack: Attack, reads: bool, end: Instant) {
    while Instant::now() < end {
        match connect(address, reads) {
            Ok(stream) => attack_once(stream, attack, reads, end),
            // The system may have no port left until earlier connections are closed.
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Connects to the server. If `reads` is false, the system receives only a few kilobytes.
fn connect(address: SocketAddr, reads: bool) -> io::Result<TcpStream> {
    let socket = socket_at(ATTACKERS)?;
    if !reads {
        socket.set_recv_buffer_size(4096)?;
    }
    socket.connect(&address.into())?;
    Ok(socket.into())
}

/// Returns a socket with an address of this machine.
fn socket_at(from: [u8; 4]) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    Ok(socket)
}

/// Opens connections from several addresses, and sends the bytes on each, until the server has read
/// what it reads. Returns the connections.
fn open_all(address: &str, hosts: Range<u8>, of_each: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let address: SocketAddr = address.parse().unwrap();
    let mut open = Vec::new();
    for host in hosts {
        for _ in 0..of_each {
            let socket = socket_at([127, 0, 0, host]).unwrap();
            socket.connect(&address.into()).unwrap();
            let mut stream = TcpStream::from(socket);
            stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
            // The server may close the connection, or read only a part.
            let _ = stream.write_all(bytes);
            open.push(stream);
        }
    }
    open
}

fn attack_once(mut stream: TcpStream, attack: Attack, reads: bool, end: Instant) {
    stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let mut bytes = Vec::from(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    frame(&mut bytes, SETTINGS, 0, 0, &[]);
    let (mut next, mut sent, mut unread) = (1, 0, [0; 4096]);
    while Instant::now() < end {
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

/// Returns by how much the memory of a new server grows under an attack, in kilobytes.
fn growth(frames: Attack, reads: bool) -> usize {
    let (server, address) = Process::serve(&["--address", "127.0.0.1:0"]);
    let before = kilobytes(&server);
    let (attacked, end) = (address.parse().unwrap(), Instant::now() + DURATION);
    let most = thread::scope(|scope| {
        let attackers: Vec<_> = (0..NUM_CONNECTIONS)
            .map(|_| scope.spawn(move || attack(attacked, frames, reads, end)))
            .collect();
        let mut most = before;
        while attackers.iter().any(|attacker| !attacker.is_finished()) {
            most = most.max(kilobytes(&server));
            thread::sleep(Duration::from_millis(20));
        }
        most
    });
    let options = NetStoreOptions::new(&address).timeout(LONG);
    ServerStatus::of(&options).expect("the server serves others");
    most - before
}

#[test]
fn frames_do_not_fill_the_memory() {
    for (name, frames) in ATTACKS {
        for reads in [false, true] {
            let more = growth(frames, reads);
            println!("{name}, replies read: {reads}: {more} kB");
            assert!(more < MOST_KILOBYTES, "{name}, replies read: {reads}: {more} kB");
        }
    }
}

fn certificates(role: &str) -> String {
    format!("{}/../tests/certificates/{role}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn handshakes_without_an_end_do_not_fill_the_memory() {
    let folder = certificates("server");
    let (server, address) =
        Process::serve(&["--address", "127.0.0.1:0", "--certificates", &folder]);
    let before = kilobytes(&server);
    // Records of a message of 65,000 bytes whose last bytes are missing.
    let mut bytes = Vec::new();
    for start in [&b"\x01\x00\xFD\xE8\x03\x03"[..], b"", b"", b""] {
        let mut record = start.to_vec();
        record.resize(16_000, 0);
        bytes.extend(b"\x16\x03\x01");
        bytes.extend(u16::try_from(record.len()).unwrap().to_be_bytes());
        bytes.extend(record);
    }
    let open = open_all(&address, 2..5, 300, &bytes);
    let more = kilobytes(&server).saturating_sub(before);
    println!("{} handshakes: {more} kB", open.len());
    assert!(more < MOST_KILOBYTES, "{more} kB");
    let reader = Certificates::read(certificates("reader")).unwrap();
    let options = NetStoreOptions::new(&address).timeout(LONG).certificates(reader);
    ServerStatus::of(&options).expect("the server serves others");
}

#[test]
fn requests_of_http_without_an_end_do_not_fill_the_memory() {
    let (mut server, address) =
        Process::serve(&["--address", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
    let metrics = server.rest_of_line("metrics on ");
    let before = kilobytes(&server);
    let mut bytes = Vec::from(b"GET /metrics HTTP/1.1\r\nname: ");
    bytes.resize(4 << 20, b'a');
    // From more addresses than have room together.
    let open = open_all(&metrics, 2..22, 16, &bytes);
    let more = kilobytes(&server).saturating_sub(before);
    println!("{} requests: {more} kB", open.len());
    assert!(more < MOST_KILOBYTES, "{more} kB");
    ServerStatus::of(&NetStoreOptions::new(&address).timeout(LONG)).expect("it serves members");
}
