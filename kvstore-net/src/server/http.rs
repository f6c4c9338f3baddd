//! [`HttpEndpoint`]: metrics for Prometheus, the health of the server, and the status page, over
//! HTTP/1.1.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use kvstore_core::{Backends, Error, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio_stream::StreamExt;

use super::connections::{Connections, listen};
use super::options::ServerOptions;
use super::report::Reports;
use super::serving::{Accepted, Acceptor};
use crate::accounts::{Accounts, Limits};
use crate::certificates::{Security, check_on_this_machine};
use crate::runtime;
use crate::same_machine::{Listener, Socket};

/// The most connections of a peer, and of all peers. Further ones are closed.
const OF_A_PEER: usize = 16;
const IN_TOTAL: usize = 256;

/// How long a connection may take for the head of each request.
const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);

/// The status page, which requests `status.json`.
const PAGE: &str = include_str!("status.html");

/// The page loads nothing from elsewhere.
const POLICY: &str = "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; \
                      style-src 'unsafe-inline'";

/// An endpoint that listens but does not answer yet.
#[derive(Debug)]
pub(super) struct HttpEndpoint {
    listener: Listener,
    address: SocketAddr,
    acceptor: Option<Acceptor>,
    has_page: bool,
}

impl HttpEndpoint {
    /// Listens on the address in the options, if there is one.
    ///
    /// # Errors
    /// - The errors of [`HttpEndpoint::listen`].
    pub(super) fn start(runtime: &Handle, options: &ServerOptions) -> Result<Option<Self>> {
        let Some(address) = options.metrics.clone() else { return Ok(None) };
        let (security, has_page) = (options.security.clone(), options.has_status_page);
        let listening = async move { Self::listen(address, &security, has_page).await };
        runtime::wait(runtime, listening)?.map(Some)
    }

    /// Listens on an address. On this machine alone, connections are in plain text, because a
    /// browser has no certificate.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if other machines can reach the address, but there are no
    ///   certificates.
    /// - [`Error::Transport`] if the address cannot be used.
    async fn listen(address: String, security: &Security, has_page: bool) -> Result<Self> {
        let acceptor = match security.of("metrics", &address)? {
            Some(certificates) if check_on_this_machine("metrics", &address).is_err() => {
                Some(Acceptor::new(certificates.of_http_server()?))
            }
            _ => None,
        };
        let failed = |source: std::io::Error| Error::Transport {
            operation: format!("cannot listen on {address}"),
            source: source.into(),
        };
        let listener = listen(address.clone()).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, acceptor, has_page })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until `ending` is true.
    pub(super) async fn serve(self, reports: Reports, mut ending: watch::Receiver<bool>) {
        tokio::select! {
            () = self.accept_all(Arc::new(reports)) => {}
            _ = ending.wait_for(|end| *end) => {}
        }
    }

    /// Answers requests until the future is dropped.
    async fn accept_all(self, reports: Arc<Reports>) {
        let limits = Limits { connections: OF_A_PEER, ..Limits::default() };
        let accounts = Accounts::new(&limits, &Backends::new(Vec::new()));
        // One at a time, because a report of very many keys needs much memory.
        let permit = Arc::new(Semaphore::new(1));
        // Ends the connections, too, when it is dropped.
        let mut connections = tokio::task::JoinSet::new();
        let mut incoming = Connections::new(self.listener, accounts);
        while let Some(Ok(accepted)) = incoming.next().await {
            while connections.try_join_next().is_some() {}
            if connections.len() >= IN_TOTAL {
                continue;
            }
            let acceptor = self.acceptor.clone();
            let answers = Answers {
                reports: Arc::clone(&reports),
                permit: Arc::clone(&permit),
                has_page: self.has_page,
                is_permitted: true,
            };
            connections.spawn(async move {
                let answering = connection(accepted, acceptor, answers);
                let _ = tokio::time::timeout(LONGEST, answering).await;
            });
        }
    }
}

/// What a connection gets.
#[derive(Clone)]
struct Answers {
    reports: Arc<Reports>,
    /// The permit of the report that is being made.
    permit: Arc<Semaphore>,
    has_page: bool,
    /// Whether the certificate of the peer permits it to read.
    is_permitted: bool,
}

/// Answers the requests of a connection, which counts until then.
async fn connection(
    Accepted { stream, peer: _peer }: Accepted<Socket>,
    acceptor: Option<Acceptor>,
    mut answers: Answers,
) {
    let Some(acceptor) = acceptor else { return answer_all(stream, answers).await };
    if let Some((stream, access)) = acceptor.accept(stream).await {
        answers.is_permitted = access.permission.check_read().is_ok();
        answer_all(stream, answers).await;
    }
}

async fn answer_all<S>(stream: S, answers: Answers)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let answers = answers.clone();
        async move { Ok::<_, Infallible>(answer(&request, answers).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection for metrics is lost");
    }
}

async fn answer(request: &Request<Incoming>, answers: Answers) -> Response<Full<Bytes>> {
    if !answers.is_permitted {
        return text(StatusCode::FORBIDDEN, "the certificate has no valid role\n");
    }
    if request.method() != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, "expected GET\n");
    }
    match request.uri().path() {
        "/metrics" => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            report(answers, kind, Reports::metrics).await
        }
        "/healthz" if answers.reports.is_serving() => text(StatusCode::OK, "serving\n"),
        "/healthz" => text(StatusCode::SERVICE_UNAVAILABLE, "not serving\n"),
        "/" if answers.has_page => {
            response(StatusCode::OK, "text/html; charset=utf-8", PAGE.into())
        }
        "/status.json" if answers.has_page => {
            report(answers, "application/json", Reports::status).await
        }
        _ => text(StatusCode::NOT_FOUND, "not found\n"),
    }
}

/// Returns a report, which may take long for very many keys.
async fn report(
    answers: Answers,
    kind: &'static str,
    make: fn(&Reports) -> Result<String>,
) -> Response<Full<Bytes>> {
    // The semaphore is never closed, so there is always a permit.
    let _permit = answers.permit.acquire().await;
    let reports = Arc::clone(&answers.reports);
    let report = tokio::task::spawn_blocking(move || make(&reports)).await;
    match report {
        Ok(Ok(text)) => response(StatusCode::OK, kind, text.into()),
        Ok(Err(error)) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{}\n", error.chain())),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the report has failed\n"),
    }
}

fn text(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    response(status, "text/plain; charset=utf-8", Bytes::from(text.to_owned()))
}

fn response(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}
