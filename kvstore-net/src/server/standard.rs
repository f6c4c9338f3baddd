//! [`StandardServices`]: those that gRPC defines for every server, health and reflection. Tools use
//! them, such as `grpcurl` and `grpc-health-probe`.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use kvstore_core::{Error, Result};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};
use tower::util::BoxCloneSyncService;

use super::access::Access;
use crate::accounts::{Charge, STREAM};

/// The most bytes of a request.
const MOST_MESSAGE: usize = 4096;

/// The full name of the service of this protocol.
const STORE: &str = "kvstore.v1.Store";

/// The starts of the paths of the services.
const HEALTH: &str = "/grpc.health.v1.Health/";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/";

/// The description of the protocol, which `make protocol` writes.
const DESCRIPTOR: &[u8] = include_bytes!("../proto/descriptor.bin");

type Boxed = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Infallible>;

/// Health and reflection.
#[derive(Clone)]
pub(super) struct StandardServices {
    health: HealthServer<HealthService>,
    reflection: Boxed,
}

impl StandardServices {
    /// # Errors
    /// - [`Error::Internal`] if the description of the protocol is damaged.
    pub(super) fn new(health: HealthReporter) -> Result<Self> {
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTOR)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()
            .map_err(|error| {
                Error::Internal(format!("the description of the protocol: {error}"))
            })?;
        let reflection = reflection.max_decoding_message_size(MOST_MESSAGE);
        Ok(Self {
            health: HealthServer::new(HealthService::from_health_reporter(health))
                .max_decoding_message_size(MOST_MESSAGE),
            reflection: BoxCloneSyncService::new(reflection),
        })
    }

    /// Returns whether a request with this path is for one of these services.
    pub(super) fn has(path: &str) -> bool {
        path.starts_with(HEALTH) || path.starts_with(REFLECTION)
    }

    /// Returns the reply to a request for one of these services.
    pub(super) fn call(
        &mut self,
        request: http::Request<Body>,
        access: &Access,
    ) -> BoxFuture<http::Response<Body>, Infallible> {
        let permitted = access.permission.check_read();
        let charge = match permitted.and_then(|()| access.charge(STREAM)) {
            Ok(charge) => charge,
            Err(status) => return Box::pin(async move { Ok(status.into_http()) }),
        };
        let reply = if request.uri().path().starts_with(HEALTH) {
            self.health.call(request)
        } else {
            self.reflection.call(request)
        };
        Box::pin(async move {
            let response = reply.await?;
            Ok(response.map(|body| Body::new(CountedBody { body, _charge: charge })))
        })
    }
}

/// The body of a reply that counts until it is dropped.
struct CountedBody {
    body: Body,
    _charge: Option<Charge>,
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<http_body::Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }
}

/// Reports whether the server accepts calls.
pub(super) async fn report(health: &HealthReporter, is_serving: bool) {
    let status = if is_serving { ServingStatus::Serving } else { ServingStatus::NotServing };
    // The empty name is the server as a unit.
    for service in ["", STORE] {
        health.set_service_status(service, status).await;
    }
}
