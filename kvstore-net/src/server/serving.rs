//! [`serve`]: accepts connections and answers their requests.
//!
//! `hyper` starts a task for each request as soon as it has read it, and keeps each reply until the
//! peer takes it. A peer that sends requests faster than their tasks run, or that takes no replies,
//! could fill the memory. So [`Tasks`] counts the tasks that have not had their first turn, and
//! [`Pausing`] reads nothing while there are too many tasks or replies. The server of `tonic` has
//! no place for this.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::codegen::http::Request;

use super::access::{Access, Peer};
use super::group::Group;
use super::holder::Holder;
use super::methods::Methods;
use super::pausing::Pausing;
use crate::accounts::Account;
use crate::certificates::{ENCRYPTED, HANDSHAKE};
use crate::http2::{FRAME, KEEP_ALIVE, WINDOW};

/// The most calls of a connection at the same time. Calls may wait for each other, so there must be
/// room for one of each thread of a member. The default is 200.
const MOST_STREAMS: u32 = 1 << 16;

/// The most streams of a connection, over its life, that violate the flow control of HTTP/2 or get
/// data after the server has ended them. The latter may happen to a member that the server often
/// refuses; it connects again.
const MOST_FAULTY_STREAMS: usize = 4096;

/// The most streams of a connection that the peer has cancelled before the server starts them: the
/// default, which would change with the library.
const MOST_CANCELLED_STREAMS: usize = 20;

/// How long a server that ends waits for its connections.
pub(super) const CLOSE: Duration = Duration::from_secs(5);

/// How long a connection may take for its first request, with all handshakes.
const FIRST_REQUEST: Duration = Duration::from_secs(30);

/// A connection and its peer.
#[derive(Debug)]
pub(crate) struct Accepted<S> {
    pub(crate) stream: S,
    pub(crate) peer: Peer,
}

/// Accepts encrypted connections.
#[derive(Clone)]
pub(crate) struct Acceptor(TlsAcceptor);

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Acceptor")
    }
}

impl Acceptor {
    pub(super) fn new(config: Arc<rustls::ServerConfig>) -> Self {
        Self(config.into())
    }

    /// Returns the encrypted connection, and what the certificate of the peer permits. Returns
    /// `None` if the peer has no valid certificate, or does not prove in time that it has one.
    pub(super) async fn accept<S>(&self, stream: S) -> Option<(TlsStream<BufReader<S>>, Access)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let accepting = self.0.accept(BufReader::with_capacity(ENCRYPTED, stream));
        match tokio::time::timeout(HANDSHAKE, accepting).await {
            Ok(Ok(stream)) => {
                let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
                let access = match certificates.first() {
                    Some(first) => Access::of_certificate(first),
                    None => Access::unknown(true),
                };
                Some((stream, access))
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "a connection is rejected");
                None
            }
            Err(_) => {
                tracing::debug!("a connection is rejected: the handshake takes too long");
                None
            }
        }
    }
}

/// Serves connections until `ending` is true, and then until each has completed its calls, but at
/// most for [`CLOSE`]. When the future is dropped, its connections end.
pub(crate) async fn serve<I, S>(
    acceptor: Option<Acceptor>,
    methods: Methods,
    incoming: I,
    mut ending: watch::Receiver<bool>,
) where
    I: Stream<Item = std::io::Result<Accepted<S>>>,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let runs = Arc::clone(methods.runs());
    let service = runs.service();
    service.health.start(service.check_together().is_ok()).await;
    drop(service);
    runs.start_tasks();
    let mut connections = JoinSet::new();
    let later = ending.clone();
    let accepting = async {
        let mut incoming = pin!(incoming);
        while let Some(accepted) = incoming.next().await {
            while connections.try_join_next().is_some() {}
            if let Ok(accepted) = accepted {
                let peer = accepted.peer.clone();
                let serving =
                    connection(accepted, acceptor.clone(), methods.clone(), later.clone());
                connections.spawn(async move {
                    tokio::select! {
                        () = serving => {}
                        () = without_request(&peer) => {}
                    }
                });
            }
        }
    };
    // Drops the listener first, so that later members are rejected at once.
    tokio::select! {
        () = accepting => {}
        () = ended(&mut ending) => {}
    }
    runs.end().await;
    // A stopped member does not close its connection.
    let closing = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(CLOSE, closing).await.is_err() {
        connections.shutdown().await;
    }
    let forgotten = runs.service().holder.forget_all_snapshots();
    drop(tokio::task::spawn_blocking(move || drop(forgotten)));
}

/// Waits until the server ends.
async fn ended(ending: &mut watch::Receiver<bool>) {
    let _ = ending.wait_for(|end| *end).await;
}

/// Returns when the peer is too late with its first request. Never returns if there is one in time.
async fn without_request(peer: &Peer) {
    tokio::time::sleep(FIRST_REQUEST).await;
    if peer.num_requests() > 0 {
        std::future::pending::<()>().await;
    }
}

async fn connection<S>(
    Accepted { stream, peer }: Accepted<S>,
    acceptor: Option<Acceptor>,
    methods: Methods,
    mut ending: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let account = Some(Arc::clone(peer.account()));
    let Some(acceptor) = acceptor else {
        let access = Access { account, ..Access::unknown(false) };
        return answer_all(stream, (peer, access), methods, ending).await;
    };
    let accepted = tokio::select! {
        accepted = acceptor.accept(stream) => accepted,
        () = ended(&mut ending) => return,
    };
    if let Some((stream, access)) = accepted {
        answer_all(stream, (peer, Access { account, ..access }), methods, ending).await;
    }
}

async fn answer_all<S>(
    stream: S,
    (peer, access): (Peer, Access),
    methods: Methods,
    mut ending: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let tasks = Tasks(Arc::clone(peer.account()));
    let served_peer = peer.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        served_peer.count_request();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(access.clone());
        let mut methods = methods.clone();
        // In the task of the request, so that a panic ends no other one.
        async move { methods.call(request).await }
    });
    let serving = http2::Builder::new(tasks)
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(FRAME)
        .max_concurrent_streams(MOST_STREAMS)
        .max_local_error_reset_streams(MOST_FAULTY_STREAMS)
        .max_pending_accept_reset_streams(MOST_CANCELLED_STREAMS)
        .serve_connection(TokioIo::new(Pausing::new(stream, peer.clone())), service);
    let mut serving = pin!(serving);
    let served = tokio::select! {
        served = &mut serving => served,
        () = ended(&mut ending) => {
            if peer.num_requests() == 0 {
                // The peer is silent, or speaks another protocol.
                return;
            }
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection is lost");
    }
}

/// Starts the tasks of a connection.
#[derive(Clone)]
struct Tasks(Arc<Account>);

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        let waiting = self.0.count_waiting();
        tokio::spawn(async move {
            drop(waiting);
            task.await;
        });
    }
}

/// Ends the leases that are over, and forgets what belongs to them.
pub(super) async fn end_leases(group: Arc<Group>, holder: Weak<Holder>) {
    loop {
        let wait = group.end_leases();
        let Some(holder) = holder.upgrade() else { return };
        holder.forget_replaced();
        let forgotten = holder.forget_snapshots();
        drop(holder);
        if !forgotten.is_empty() {
            tracing::info!(count = forgotten.len(), "forgetting the snapshots of a member");
            // Elsewhere, because dropping them may take long or run code of an updater.
            drop(tokio::task::spawn_blocking(move || drop(forgotten)));
        }
        tokio::time::sleep(wait).await;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::net::IpAddr;

    use kvstore_core::Backends;
    use tokio::io::AsyncWriteExt as _;
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::accounts::{Accounts, Limits};
    use crate::certificates::Certificates;

    #[tokio::test(start_paused = true)]
    async fn only_a_peer_without_a_request_is_too_late() {
        let accounts = Accounts::new(&Limits::default(), &Backends::new(Vec::new()));
        let peer = Peer::new(accounts.connect(IpAddr::from([127, 0, 0, 1])).unwrap());
        let start = Instant::now();
        without_request(&peer).await;
        assert_eq!(start.elapsed().as_secs(), FIRST_REQUEST.as_secs());
        peer.count_request();
        timeout(3 * FIRST_REQUEST, without_request(&peer)).await.unwrap_err();
    }

    /// Also if the peer sends a byte from time to time.
    #[tokio::test(start_paused = true)]
    async fn a_handshake_that_takes_too_long_is_rejected() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/certificates/server");
        let config = Certificates::read(folder).unwrap().of_server().unwrap();
        let acceptor = Acceptor::new(config);
        for sends in [false, true] {
            let (stream, mut peer) = tokio::io::duplex(1024);
            let start = Instant::now();
            let sending = async {
                // The start of a message of 65,000 bytes.
                peer.write_all(b"\x16\x03\x01\x02\x00\x01\x00\xFD\xE8").await.unwrap();
                loop {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    peer.write_all(&[0]).await.unwrap();
                }
            };
            let accepted = tokio::select! {
                accepted = acceptor.accept(stream) => accepted,
                () = sending, if sends => unreachable!("it sends until the server has decided"),
            };
            assert!(accepted.is_none());
            assert_eq!(start.elapsed().as_secs(), HANDSHAKE.as_secs());
        }
    }
}
