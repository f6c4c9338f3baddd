//! Connections between a member and a server on the same machine.
//!
//! A Unix socket moves bytes at almost twice the rate of TCP over loopback. So a server that
//! listens on a loopback address also listens on a Unix socket with a name of this address, and a
//! member that is given the address tries the Unix socket first. The names are abstract ones of
//! Linux: like ports, they belong to a network namespace, and leave no files behind. On other
//! systems, and with certificates, all connections use TCP.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::{Context, Poll};

use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio_util::either::Either;

/// The user that Linux shows for a process whose user does not exist in this user namespace.
#[cfg(target_os = "linux")]
const OVERFLOW_UID: u32 = 65534;

/// A connection between two processes.
#[cfg(target_os = "linux")]
pub(crate) type Socket = Either<TcpStream, tokio::net::UnixStream>;
#[cfg(not(target_os = "linux"))]
pub(crate) type Socket = Either<TcpStream, TcpStream>;

/// A listener for TCP and, where there is one, for the Unix socket.
#[derive(Debug)]
pub(crate) struct Listener {
    tcp: TcpListener,
    #[cfg(target_os = "linux")]
    unix: Option<tokio::net::UnixListener>,
    /// Which one has the next connection, if both have one. Otherwise, a program that connects to
    /// one again and again would keep the members of the other one out.
    #[cfg(target_os = "linux")]
    is_unix_next: bool,
}

impl Listener {
    /// Returns a listener for TCP only.
    pub(crate) fn of_tcp(tcp: TcpListener) -> Self {
        Self {
            tcp,
            #[cfg(target_os = "linux")]
            unix: None,
            #[cfg(target_os = "linux")]
            is_unix_next: false,
        }
    }

    /// Also listens on the Unix socket, if the address has one. If another process has taken the
    /// name, members use TCP.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub(crate) fn with_unix_socket(self) -> Self {
        #[cfg(target_os = "linux")]
        if let Some(name) = self.tcp.local_addr().ok().and_then(name_at_server) {
            return match tokio::net::UnixListener::bind(&name) {
                Ok(unix) => Self { unix: Some(unix), ..self },
                Err(error) => {
                    tracing::warn!(name = name.trim_start_matches('\0'), %error,
                        "cannot listen on a Unix socket, so members use TCP");
                    self
                }
            };
        }
        self
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Returns the next connection and the address of its peer. For a Unix socket that is the
    /// loopback address.
    pub(crate) fn poll_accept(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<(Socket, IpAddr)>> {
        #[cfg(target_os = "linux")]
        {
            self.is_unix_next = !self.is_unix_next;
            if self.is_unix_next {
                let accepted = self.poll_unix(context);
                return if accepted.is_ready() { accepted } else { self.poll_tcp(context) };
            }
            let accepted = self.poll_tcp(context);
            if accepted.is_ready() { accepted } else { self.poll_unix(context) }
        }
        #[cfg(not(target_os = "linux"))]
        self.poll_tcp(context)
    }

    fn poll_tcp(&self, context: &mut Context<'_>) -> Poll<io::Result<(Socket, IpAddr)>> {
        self.tcp.poll_accept(context).map_ok(|(stream, peer)| (Either::Left(stream), peer.ip()))
    }

    #[cfg(target_os = "linux")]
    fn poll_unix(&self, context: &mut Context<'_>) -> Poll<io::Result<(Socket, IpAddr)>> {
        let Some(unix) = &self.unix else { return Poll::Pending };
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        unix.poll_accept(context).map_ok(|(stream, _)| (Either::Right(stream), loopback))
    }
}

/// Sends small messages at once, instead of waiting for the acknowledgement of the one before.
pub(crate) fn set_nodelay(socket: &Socket) -> io::Result<()> {
    match socket {
        Either::Left(tcp) => tcp.set_nodelay(true),
        Either::Right(_) => Ok(()),
    }
}

/// Returns whether [`connect`] may use a Unix socket for an address in the form `HOST:PORT`.
pub(crate) fn may_be_unix(server: &str) -> bool {
    match server.parse::<SocketAddr>() {
        Ok(address) => name(address).is_some(),
        Err(_) => server.rsplit_once(':').is_some_and(|(host, _)| host == "localhost"),
    }
}

/// Connects to a server, over its Unix socket if possible.
pub(crate) async fn connect(server: &str) -> io::Result<Socket> {
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in lookup_host(server).await? {
        #[cfg(target_os = "linux")]
        if let Some(unix) = connect_unix(address).await {
            return Ok(Either::Right(unix));
        }
        match TcpStream::connect(address).await {
            Ok(tcp) => {
                let socket = Either::Left(tcp);
                set_nodelay(&socket)?;
                return Ok(socket);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Connects to a server over TCP.
pub(crate) async fn connect_tcp(server: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Connects to the Unix socket of an address. Any process can listen on a free name, so the process
/// that listens must belong to the user of this process or to root. The user is unknown if it is
/// [`OVERFLOW_UID`].
#[cfg(target_os = "linux")]
async fn connect_unix(address: SocketAddr) -> Option<tokio::net::UnixStream> {
    let stream = tokio::net::UnixStream::connect(name(address)?).await.ok()?;
    let server = stream.peer_cred().ok()?.uid();
    let own = tokio::net::UnixStream::pair().ok()?.0.peer_cred().ok()?.uid();
    if server == OVERFLOW_UID || (server != own && server != 0) {
        tracing::debug!(%address, server, "a Unix socket of another user is not used");
        return None;
    }
    Some(stream)
}

/// Returns the name of the Unix socket of a server that listens on this address.
#[cfg(target_os = "linux")]
fn name_at_server(address: SocketAddr) -> Option<String> {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    name(SocketAddr::new(ip, address.port()))
}

/// Returns the name of the Unix socket of an address: `127.0.0.1` or `::1`. Members reach a
/// server at other addresses by TCP.
fn name(address: SocketAddr) -> Option<String> {
    let has_one = match address.ip() {
        IpAddr::V4(ip) => ip == Ipv4Addr::LOCALHOST,
        IpAddr::V6(ip) => ip == Ipv6Addr::LOCALHOST,
    };
    has_one.then(|| format!("\0kvstore/{address}"))
}

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::future::poll_fn;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use kvstore_tests::skip::skip_or_fail;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    use super::*;

    async fn listen(address: &str) -> (Listener, SocketAddr) {
        let listener = Listener::of_tcp(TcpListener::bind(address).await.unwrap());
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// Connects, sends a byte in each direction, and returns whether that was over a Unix socket.
    async fn is_unix(listener: &mut Listener, server: &str) -> bool {
        let (accepted, connected) =
            tokio::join!(poll_fn(|context| listener.poll_accept(context)), connect(server));
        let ((mut at_server, peer), mut at_member) = (accepted.unwrap(), connected.unwrap());
        assert!(peer.is_loopback());
        at_member.write_u8(7).await.unwrap();
        assert_eq!(at_server.read_u8().await.unwrap(), 7);
        at_server.write_u8(8).await.unwrap();
        assert_eq!(at_member.read_u8().await.unwrap(), 8);
        matches!(at_member, Socket::Right(_))
    }

    #[tokio::test]
    async fn members_of_a_loopback_address_use_the_unix_socket() {
        for bound in ["127.0.0.1:0", "0.0.0.0:0", "localhost:0"] {
            let (listener, address) = listen(bound).await;
            let mut listener = listener.with_unix_socket();
            let port = address.port();
            assert!(is_unix(&mut listener, &format!("localhost:{port}")).await, "{bound}");
            // `localhost` may be `::1`.
            if address.is_ipv4() {
                assert!(is_unix(&mut listener, &format!("127.0.0.1:{port}")).await, "{bound}");
            }
        }
    }

    #[tokio::test]
    async fn members_of_other_servers_and_addresses_use_tcp() {
        let (mut listener, address) = listen("127.0.0.1:0").await;
        assert!(!is_unix(&mut listener, &address.to_string()).await);
        let (listener, address) = listen("0.0.0.0:0").await;
        let mut listener = listener.with_unix_socket();
        assert!(!is_unix(&mut listener, &format!("127.0.0.2:{}", address.port())).await);
        let (listener, address) = listen("127.0.0.2:0").await;
        assert!(!is_unix(&mut listener.with_unix_socket(), &address.to_string()).await);
    }

    #[tokio::test]
    async fn the_name_is_free_after_the_listener() {
        let (first, address) = listen("127.0.0.1:0").await;
        drop(first.with_unix_socket());
        let (again, _) = listen(&address.to_string()).await;
        assert!(is_unix(&mut again.with_unix_socket(), &address.to_string()).await);
    }

    #[tokio::test]
    async fn a_full_queue_leads_to_tcp() {
        let (mut listener, address) = listen("127.0.0.1:0").await;
        let name = name(address).unwrap();
        // The least queue: one connection that waits.
        let socket = tokio::net::UnixSocket::new_stream().unwrap();
        socket.bind(&name).unwrap();
        let _full = socket.listen(0).unwrap();
        let _waiting = tokio::net::UnixStream::connect(&name).await.unwrap();
        assert!(!is_unix(&mut listener, &address.to_string()).await);
    }

    #[tokio::test]
    async fn connections_of_one_kind_do_not_keep_out_the_other() {
        let (listener, address) = listen("127.0.0.1:0").await;
        let mut listener = listener.with_unix_socket();
        let name = name(address).unwrap();
        let mut waiting = Vec::new();
        for _ in 0..10 {
            waiting.push(Socket::Left(TcpStream::connect(address).await.unwrap()));
            waiting.push(Socket::Right(tokio::net::UnixStream::connect(&name).await.unwrap()));
        }
        let mut num_unix = 0;
        for _ in 0..10 {
            let (accepted, _) = poll_fn(|context| listener.poll_accept(context)).await.unwrap();
            num_unix += usize::from(matches!(accepted, Socket::Right(_)));
        }
        assert_eq!(num_unix, 5);
    }

    /// A program of another user takes the name of a server's Unix socket.
    #[tokio::test]
    async fn a_unix_socket_of_another_user_is_not_used() {
        const OTHER_USER: u32 = 12345;
        const PROGRAM: &str = "import socket, sys\n\
                               taken = socket.socket(socket.AF_UNIX)\n\
                               taken.bind('\\0' + sys.argv[1])\n\
                               taken.listen()\n\
                               print('ready', flush=True)\n\
                               sys.stdin.read()\n";
        let (listener, address) = listen("127.0.0.1:0").await;
        let name = name(address).unwrap();
        let taken = Command::new("python3")
            .args(["-c", PROGRAM, name.trim_start_matches('\0')])
            .uid(OTHER_USER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut taken = match taken {
            Ok(taken) => taken,
            Err(error) => {
                return skip_or_fail("a program of another user", &error.to_string());
            }
        };
        let mut ready = [0; 6];
        std::io::Read::read_exact(taken.stdout.as_mut().unwrap(), &mut ready).unwrap();
        assert_eq!(&ready, b"ready\n");
        assert!(UnixListener::bind(&name).is_err());
        let mut listener = listener.with_unix_socket();
        assert!(!is_unix(&mut listener, &address.to_string()).await);
        drop(taken.stdin.take());
        taken.wait().unwrap();
    }

    #[test]
    fn addresses_with_a_unix_socket() {
        for server in ["127.0.0.1:9191", "[::1]:1", "localhost:80"] {
            assert!(may_be_unix(server), "{server}");
        }
        for server in ["127.0.0.2:9191", "[::]:1", "10.0.0.1:80", "localhost", "", "node:1"] {
            assert!(!may_be_unix(server), "{server}");
        }
    }
}
