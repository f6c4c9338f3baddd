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

/// The number of bytes after which other tasks run.
const BYTES: usize = 1 << 20;

/// The most requests of a peer that wait for the first turn of their tasks. While there are more,
/// its connections read nothing.
const MOST_WAITING: usize = 64;

/// The most bytes that a connection reads at once while a request of its peer waits, because they
/// may contain many more.
const SHORT_READ: usize = 1 << 10;

/// The most requests that a connection reads while its peer takes no replies.
const MOST_UNANSWERED: usize = 256;

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

/// A connection that pauses after each mebibyte that it receives, so that the task that needs the
/// data runs while they are in the cache. Without pauses, a complete window of data would arrive
/// first, because the task of a connection reads until the socket is empty.
///
/// It also pauses while many requests of its peer wait for their tasks, or for the peer to take
/// their replies. What it has read before a pause may contain more of them.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Socket,
    /// The number of bytes that have arrived since the last pause.
    received: usize,
    /// Until when the first request must arrive, if none has.
    first_request: Option<Pin<Box<Sleep>>>,
    /// The number of requests when the peer stopped taking replies, if it has.
    stopped_after: Option<usize>,
    peer: Peer,
    _count: ConnectionCount,
}

impl Connection {
    fn new(stream: Socket, count: ConnectionCount) -> Self {
        let first_request = Some(Box::pin(sleep(FIRST_REQUEST)));
        let peer = Peer::new(Arc::clone(count.account()));
        Self { stream, received: 0, first_request, stopped_after: None, peer, _count: count }
    }

    /// Notes whether the peer takes replies.
    fn note(&mut self, written: &Poll<io::Result<usize>>) {
        match written {
            Poll::Ready(_) => self.stopped_after = None,
            Poll::Pending if self.stopped_after.is_none() => {
                self.stopped_after = Some(self.peer.num_requests());
            }
            Poll::Pending => {}
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let num_requests = self.peer.num_requests();
        if self.stopped_after.is_some_and(|before| num_requests - before >= MOST_UNANSWERED) {
            // The task of the connection runs again when the peer takes replies.
            return Poll::Pending;
        }
        if self.received >= BYTES || self.peer.account().num_waiting() >= MOST_WAITING {
            self.received = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = if self.peer.account().num_waiting() > 0 {
            let num_bytes = SHORT_READ.min(buffer.remaining());
            let mut short = ReadBuf::new(buffer.initialize_unfilled_to(num_bytes));
            let read = Pin::new(&mut self.stream).poll_read(context, &mut short);
            let num_read = short.filled().len();
            buffer.advance(num_read);
            read
        } else {
            Pin::new(&mut self.stream).poll_read(context, buffer)
        };
        if num_requests > 0 {
            self.first_request = None;
        } else if let Some(first_request) = &mut self.first_request
            && first_request.as_mut().poll(context).is_ready()
        {
            let text = "the peer has made no call";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)));
        }
        ready!(read)?;
        self.received += buffer.filled().len() - before;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.note(&written);
        written
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::future::poll_fn;

    use kvstore_core::Backends;
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::accounts::Limits;

    /// Reads once. Returns the number of bytes, or `None` for a pause.
    async fn read(paced: &mut Connection, bytes: &mut [u8]) -> Option<usize> {
        poll_fn(|context| {
            let mut buffer = ReadBuf::new(bytes);
            let read = Pin::new(&mut *paced).poll_read(context, &mut buffer);
            Poll::Ready(read.is_ready().then(|| buffer.filled().len()))
        })
        .await
    }

    #[tokio::test]
    async fn a_connection_pauses_after_a_mebibyte_and_loses_nothing() {
        const LEN: usize = 3 * BYTES + 5;
        let accounts = Accounts::new(&Limits::default(), &Backends::new(Vec::new()));
        let count = accounts.connect(IpAddr::from([127, 0, 0, 1])).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let sending = tokio::spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let mut message = tokio::io::repeat(7).take(u64::try_from(LEN).unwrap());
            tokio::io::copy(&mut message, &mut stream).await.unwrap();
        });
        let (accepted, _) = listener.accept().await.unwrap();
        let mut paced = Connection::new(Socket::Left(accepted), count);
        let (mut first, mut bytes) = ([0; 100], Vec::new());
        paced.read_exact(&mut first).await.unwrap();
        paced.received = BYTES;
        assert_eq!(read(&mut paced, &mut first).await, None);
        assert_eq!(paced.received, 0);
        paced.read_to_end(&mut bytes).await.unwrap();
        sending.await.unwrap();
        assert_eq!(bytes.len(), LEN - first.len());
    }
}
