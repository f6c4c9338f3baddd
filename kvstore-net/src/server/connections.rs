//! [`Connections`]: the connections that a server accepts.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::net::{TcpSocket, lookup_host};
use tokio::time::{Sleep, sleep};
use tokio_stream::Stream;

use super::access::Peer;
use super::serving::Accepted;
use crate::accounts::Accounts;
use crate::same_machine::{Listener, Socket, set_nodelay};

/// How many connections may wait until the server accepts them. The system allows fewer, if it is
/// set so.
const WAITING: u32 = 4096;

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
    fn admit(&self, stream: Socket, address: IpAddr) -> Option<Accepted<Socket>> {
        let Some(count) = self.accounts.connect(address) else {
            // Not a warning, because a peer could fill the log.
            tracing::debug!(%address, "a connection is closed: there are too many");
            return None;
        };
        if let Err(error) = set_nodelay(&stream) {
            tracing::debug!(%address, %error, "a connection is lost");
            return None;
        }
        Some(Accepted { stream, peer: Peer::new(count) })
    }
}

impl Stream for Connections {
    type Item = io::Result<Accepted<Socket>>;

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
