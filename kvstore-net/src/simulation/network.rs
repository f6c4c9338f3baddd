//! Connections of gRPC over the simulated network.

use std::io;
use std::net::Ipv4Addr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use kvstore_core::Backends;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::http::Uri;
use tonic::transport::Channel;
use turmoil::net::{TcpListener, TcpStream};

use super::schedule::LEASE;
use crate::accounts::{Accounts, Limits};
use crate::certificates::Security;
use crate::client::membership::Target;
use crate::endpoint::endpoint;
use crate::server::access::Peer;
use crate::server::peers::lead::Led;
use crate::server::serving::Accepted;

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

/// Returns a server that another one leads.
pub(super) fn follower(server: usize, keep_alive: Duration) -> Led {
    let target = Target {
        server: address(server),
        place: (0, 1),
        name: String::new(),
        process: 0,
        is_reader: false,
        route: None,
        timeout: LEASE,
        connections: NonZeroUsize::MIN,
        security: Security { is_insecure: true, ..Security::default() },
        operations: Arc::default(),
    };
    let channel = channel(&target, keep_alive);
    Led::new(target.server, channel)
}

/// Returns the connections to this host.
pub(super) async fn listen() -> io::Result<ReceiverStream<io::Result<Accepted<TcpStream>>>> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await?;
    let (sender, receiver) = mpsc::channel(1);
    let accounts = Accounts::new(&Limits::default(), &Backends::new(Vec::new()));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Some(count) = accounts.connect(Ipv4Addr::LOCALHOST.into()) else { return };
            let accepted = Accepted { stream, peer: Peer::new(count) };
            if sender.send(Ok(accepted)).await.is_err() {
                return;
            }
        }
    });
    Ok(ReceiverStream::new(receiver))
}
