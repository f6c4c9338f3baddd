//! Connections of gRPC over the simulated network.

use std::io;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use kvstore_core::Backends;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::http::Uri;
use tonic::transport::Channel;
use turmoil::net::{TcpListener, TcpStream};

use super::schedule::LEASE;
use crate::accounts::{Accounts, Limits};
use crate::client::endpoint::endpoint;
use crate::client::membership::Target;
use crate::server::{self, access::Peer};

const PORT: u16 = 9191;

/// Returns the host of a server.
pub(super) fn server_host(server: usize) -> String {
    format!("server-{server}")
}

/// Returns the address of a server.
pub(super) fn address(server: usize) -> String {
    format!("{}:{PORT}", server_host(server))
}

/// Returns a channel that connects when it is used, and tests its connection this often.
///
/// The simulated network does not send lost messages again, as TCP would, so a connection that has
/// lost one is dead. A client notices it by these tests.
pub(super) fn channel(target: &Target, keep_alive: Duration) -> Channel {
    let address = target.server.clone();
    let connector = tower::service_fn(move |_: Uri| {
        let connecting = TcpStream::connect(address.clone());
        async { connecting.await.map(TokioIo::new) }
    });
    endpoint(&target.server, &target.security)
        .unwrap()
        .http2_keep_alive_interval(keep_alive)
        .keep_alive_timeout(keep_alive)
        .connect_timeout(target.timeout.min(LEASE))
        .connect_with_connector_lazy(connector)
}

/// Returns the connections to this host.
pub(super) async fn listen() -> io::Result<ReceiverStream<io::Result<Accepted>>> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await?;
    let (sender, receiver) = mpsc::channel(1);
    let accounts = Accounts::new(&Limits::default(), &Backends::new(Vec::new()));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Some(peer) = accounts.connect(Ipv4Addr::LOCALHOST.into()) else { return };
            let peer = Peer::new(Arc::clone(peer.account()));
            if sender.send(Ok(Accepted(stream, peer))).await.is_err() {
                return;
            }
        }
    });
    Ok(ReceiverStream::new(receiver))
}

/// A connection to this host.
pub(super) struct Accepted(TcpStream, Peer);

impl server::serving::Accepted for Accepted {
    fn peer(&self) -> Peer {
        self.1.clone()
    }
}

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
