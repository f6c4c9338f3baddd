//! [`Connections`]: the connections that a server accepts.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, lookup_host};
use tokio::time::{Sleep, sleep};
use tokio_stream::Stream;

use super::access::Peer;
use super::serving::Accepted;
use crate::accounts::{Accounts, ConnectionCount};
use crate::same_machine::{Listener, Socket, set_nodelay};

/// How many connections may wait until the server accepts them. The system allows fewer, if it is
/// set so.
const WAITING: u32 = 4096;

/// How long a connection may take for its first request, with all handshakes.
const FIRST_REQUEST: Duration = Duration::from_secs(30);

/// How long the server accepts no connections after a failure, for example because the process has
/// too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens on an address.
pub(super) async fn listen(address: String) -> io::Result<Listener> {
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in lookup_host(address).await? {
        match listen_on(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn listen_on(address: SocketAddr) -> io::Result<Listener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A server that starts again may use the port at once.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING).map(Listener::of_tcp)
}

/// The connections to a server, except those above the limits of their peers, which are closed.
pub(super) struct Connections {
    listener: Listener,
    accounts: Arc<Accounts>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Connections {
    pub(super) fn new(listener: Listener, accounts: Arc<Accounts>) -> Self {
        Self { listener, accounts, pause: None }
    }

    /// Returns a connection, or `None` if its peer has too many.
    fn admit(&self, stream: Socket, address: IpAddr) -> Option<Connection> {
        let Some(count) = self.accounts.connect(address) else {
            // Not a warning, because a peer could fill the log.
            tracing::debug!(%address, "a connection is closed: there are too many");
            return None;
        };
        if let Err(error) = set_nodelay(&stream) {
            tracing::debug!(%address, %error, "a connection is lost");
            return None;
        }
        Some(Connection::new(stream, count))
    }
}

impl Stream for Connections {
    type Item = io::Result<Connection>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(pause) = &mut this.pause {
                ready!(pause.as_mut().poll(context));
                this.pause = None;
            }
            match ready!(this.listener.poll_accept(context)) {
                Ok((stream, address)) => {
                    if let Some(connection) = this.admit(stream, address) {
                        return Poll::Ready(Some(Ok(connection)));
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    this.pause = Some(Box::pin(sleep(PAUSE)));
                }
            }
        }
    }
}

/// A connection that ends if its first request takes too long.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Socket,
    /// Until when the first request must arrive, if none has.
    first_request: Option<Pin<Box<Sleep>>>,
    peer: Peer,
    _count: ConnectionCount,
}

impl Connection {
    fn new(stream: Socket, count: ConnectionCount) -> Self {
        let first_request = Some(Box::pin(sleep(FIRST_REQUEST)));
        let peer = Peer::new(Arc::clone(count.account()));
        Self { stream, first_request, peer, _count: count }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.peer.num_requests() > 0 {
            self.first_request = None;
        } else if let Some(first_request) = &mut self.first_request
            && first_request.as_mut().poll(context).is_ready()
        {
            let text = "the peer has made no call";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)));
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Accepted for Connection {
    fn peer(&self) -> Peer {
        self.peer.clone()
    }
}
