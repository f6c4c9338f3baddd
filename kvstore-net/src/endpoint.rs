//! The settings of a connection to a server.

use std::num::NonZeroUsize;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use kvstore_core::{Error, Result, fallible};
use tokio::io::BufReader;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};

use crate::certificates::{ENCRYPTED, Security};
use crate::http2::{FRAME, KEEP_ALIVE, WINDOW};
use crate::same_machine;

/// How long an attempt to connect may take. The next one follows after a pause of up to a second,
/// so that a client reconnects soon after the network is back.
pub(crate) const CONNECT: Duration = Duration::from_secs(5);

/// Returns a number of connections to a server, which begin when they are used.
///
/// # Errors
/// - The errors of [`endpoint`].
pub(super) fn channels(
    server: &str,
    (security, timeout): (&Security, Duration),
    count: NonZeroUsize,
) -> Result<Vec<Channel>> {
    let timeout = timeout.min(CONNECT);
    fallible::try_collect((0..count.get()).map(|_| channel(server, security, timeout)))
}

/// Returns a connection to a server, which begins when it is used.
///
/// # Errors
/// - The errors of [`endpoint`].
pub(crate) fn channel(server: &str, security: &Security, timeout: Duration) -> Result<Channel> {
    let endpoint = endpoint(server, security)?.connect_timeout(timeout);
    let server = server.to_owned();
    if security.of("server", &server)?.is_some() {
        return Ok(endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
            let server = server.clone();
            async move {
                let stream = same_machine::connect_tcp(&server).await?;
                Ok::<_, std::io::Error>(TokioIo::new(BufReader::with_capacity(ENCRYPTED, stream)))
            }
        })));
    }
    if !same_machine::may_be_unix(&server) {
        return Ok(endpoint.connect_lazy());
    }
    Ok(endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
        let server = server.clone();
        async move { same_machine::connect(&server).await.map(TokioIo::new) }
    })))
}

/// Returns the settings of a connection to a server.
///
/// # Errors
/// - [`Error::InvalidArgument`] if the address is not one, or needs certificates.
pub(crate) fn endpoint(server: &str, security: &Security) -> Result<Endpoint> {
    let certificates = security.of("server", server)?;
    let scheme = if certificates.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{server}"))
        .map_err(|_| Error::invalid(format!("server: expected HOST:PORT, found `{server}`")))?
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(FRAME)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE);
    let Some(certificates) = certificates else { return Ok(endpoint) };
    let endpoint = endpoint.tls_config(certificates.of_member());
    endpoint.map_err(|error| certificates.not_valid(&error))
}
