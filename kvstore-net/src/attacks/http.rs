//! Attacks on the HTTP endpoint, for metrics and the status page.

use std::net::SocketAddr;

use super::*;

/// The most connections of a peer, and of all peers.
const OF_A_PEER: usize = 16;
const IN_TOTAL: usize = 256;

fn observed(backends: &Backends) -> (Server, SocketAddr) {
    let options = ServerOptions::new("127.0.0.1:0").metrics("127.0.0.1:0").status_page();
    let server = Server::start(backends, &options).unwrap();
    let address = server.metrics_address().unwrap();
    (server, address)
}

/// Returns the bytes that a stream has until the server closes it.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes);
    // The server closes it with data that it has not read.
    let is_closed = read.is_ok() || read.is_err_and(|error| error.kind() != ErrorKind::WouldBlock);
    assert!(is_closed, "the server keeps the connection");
    bytes
}

/// Checks that the endpoint and the server serve others.
#[track_caller]
fn serves_http(server: &Server, address: SocketAddr) {
    for path in ["/healthz", "/metrics", "/", "/status.json"] {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        assert!(rest(&mut stream).starts_with(b"HTTP/1.1 200 OK"), "{path}");
    }
    serves(server);
}

#[test]
fn invalid_requests_of_http_are_rejected() {
    let _loading = loads_the_machine();
    let backends = backends();
    let (server, address) = observed(&backends);
    let mut random = Random::new();
    for round in 0..100 {
        let mut stream = attacker::connect(address);
        let mut bytes = if round % 2 == 0 { b"GET /healthz HTTP/1.1\r\n".to_vec() } else { vec![] };
        bytes.extend(random.bytes(round * 8));
        let _ = stream.write(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        rest(&mut stream);
    }
    for (head, expected) in [
        ("GET /healthz HTTP/9.9\r\n\r\n", "HTTP/1.1 400"),
        ("GET /healthz HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", "HTTP/1.1 400"),
        // A body that never comes.
        (
            "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1099511627776\r\n\r\n",
            "HTTP/1.1 405",
        ),
        ("GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 404"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 400"),
    ] {
        let mut stream = attacker::connect(address);
        stream.write_all(head.as_bytes()).unwrap();
        let _ = stream.shutdown(Shutdown::Write);
        let answer = String::from_utf8(rest(&mut stream)).unwrap();
        assert!(answer.is_empty() || answer.starts_with(expected), "{head}: {answer}");
    }
    serves_http(&server, address);
}

#[test]
fn heads_of_any_size_are_rejected_before_they_fill_the_memory() {
    let _loading = loads_the_machine();
    let backends = backends();
    let (server, address) = observed(&backends);
    let (long, header) = ("a".repeat(1 << 20), "name: value\r\n".repeat(1 << 16));
    for head in [
        format!("GET /{long} HTTP/1.1\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nname: {long}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{header}\r\n"),
        // Without an end.
        long.clone(),
    ] {
        for _ in 0..OF_A_PEER {
            let mut stream = attacker::connect(address);
            stream.set_nonblocking(false).unwrap();
            stream.set_write_timeout(Some(LONG)).unwrap();
            // The server does not read all of it.
            let _ = stream.write_all(head.as_bytes());
            let answer = rest(&mut stream);
            let codes: [&[u8]; 3] = [b"HTTP/1.1 400", b"HTTP/1.1 414", b"HTTP/1.1 431"];
            let is_rejected =
                answer.is_empty() || codes.iter().any(|code| answer.starts_with(code));
            assert!(is_rejected, "{}", String::from_utf8_lossy(&answer));
        }
    }
    serves_http(&server, address);
}

/// A byte at a time does not make a head last longer.
#[test]
fn slow_heads_are_rejected() {
    let backends = backends();
    let (server, address) = observed(&backends);
    let mut open: Vec<_> = (0..OF_A_PEER).map(|_| attacker::connect(address)).collect();
    let (_never, pause) = std::sync::mpsc::channel::<()>();
    let start = Instant::now();
    for byte in b"GET /healthz HTTP/1.1\r\nname: ".iter().chain(std::iter::repeat(&b'a')) {
        for stream in &mut open {
            let _ = stream.write(&[*byte]);
        }
        open.retain_mut(is_open);
        if open.is_empty() {
            break;
        }
        assert!(start.elapsed() < LONG, "{} slow heads", open.len());
        let _ = pause.recv_timeout(Duration::from_millis(100));
    }
    serves_http(&server, address);
}

/// Returns how many connections get an answer. They stay open, and the others are closed.
fn num_answered(streams: &mut [TcpStream]) -> usize {
    for stream in &mut *streams {
        // Fails if the server has closed it.
        let _ = stream.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    let is_answered = |stream: &mut TcpStream| {
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.read(&mut [0; 1024]).is_ok_and(|count| count > 0)
    };
    streams.iter_mut().filter_map(|stream| is_answered(stream).then_some(())).count()
}

#[test]
fn connections_of_http_above_the_limits_are_closed() {
    let _loading = loads_the_machine();
    let backends = backends();
    let (server, address) = observed(&backends);
    let mut open: Vec<_> = (0..100).map(|_| attacker::connect(address)).collect();
    assert_eq!(num_answered(&mut open), OF_A_PEER);
    serves_http(&server, address);
    // Other peers, more than the endpoint may have together.
    for host in 3..=20 {
        let from = IpAddr::from([127, 0, 0, host]);
        open.extend((0..OF_A_PEER).map(|_| attacker::connect_from(from, address)));
    }
    let num_answered = num_answered(&mut open[100..]);
    assert!(num_answered <= IN_TOTAL - OF_A_PEER, "{num_answered} connections of others");
    // Members are not affected, and afterwards, neither is the endpoint.
    serves(&server);
    drop(open);
    let start = Instant::now();
    let answers = || {
        let mut stream = TcpStream::connect(address).unwrap();
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        rest(&mut stream).starts_with(b"HTTP/1.1 200 OK")
    };
    while !answers() {
        assert!(start.elapsed() < LONG, "the connections stay counted");
    }
    serves_http(&server, address);
}

/// The server makes one answer at a time, and reads no further request before it is sent.
#[test]
fn requests_whose_answers_are_not_read_do_not_fill_the_memory() {
    let _loading = loads_the_machine();
    let backends = backends();
    let (server, address) = observed(&backends);
    let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1000);
    let mut open: Vec<_> = (0..OF_A_PEER).map(|_| attacker::connect(address)).collect();
    for stream in &mut open {
        let mut num_bytes = 0;
        // At most what the buffers of both systems hold.
        while let Ok(count) = stream.write(&request) {
            num_bytes += count;
            assert!(num_bytes < 1 << 30, "the server reads everything");
            if num_bytes > 64 << 20 {
                break;
            }
        }
    }
    serves_http(&server, address);
}
