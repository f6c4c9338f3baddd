//! [`StandardServices`]: those that gRPC defines for every server, health and reflection. Tools use
//! them, such as `grpcurl` and `grpc-health-probe`.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use kvstore_core::{Error, Result};
use tokio::sync::{Mutex, watch};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::HeaderMap;
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

/// Whether the server accepts calls, for the health service.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    reporter: HealthReporter,
    /// The status that was reported last. Clients that watch it get each report.
    last: Arc<Mutex<Option<ServingStatus>>>,
    is_ending: Arc<watch::Sender<bool>>,
}

impl Health {
    pub(super) fn new() -> Self {
        let (last, is_ending) = (Arc::default(), Arc::new(watch::Sender::new(false)));
        Self { reporter: HealthReporter::new(), last, is_ending }
    }

    /// Reports whether the server accepts calls, unless it ends.
    pub(super) async fn start(&self, accepts_calls: bool) {
        let mut last = self.last.lock().await;
        if !*self.is_ending.borrow() {
            let serving =
                if accepts_calls { ServingStatus::Serving } else { ServingStatus::NotServing };
            self.report(&mut last, serving).await;
        }
    }

    /// Reports that the server accepts no calls. Then ends the streams of the standard services,
    /// which clients keep open, so that the server does not wait for them.
    pub(super) async fn end(&self) {
        let mut last = self.last.lock().await;
        self.report(&mut last, ServingStatus::NotServing).await;
        self.is_ending.send_replace(true);
    }

    async fn report(&self, last: &mut Option<ServingStatus>, status: ServingStatus) {
        if last.replace(status) == Some(status) {
            return;
        }
        // The empty name is the server as a unit.
        for service in ["", STORE] {
            self.reporter.set_service_status(service, status).await;
        }
    }
}

/// Health and reflection.
#[derive(Clone)]
pub(super) struct StandardServices {
    is_ending: watch::Receiver<bool>,
    health: HealthServer<HealthService>,
    reflection: Boxed,
}

impl StandardServices {
    /// # Errors
    /// - [`Error::Internal`] if the description of the protocol is damaged.
    pub(super) fn new(health: &Health) -> Result<Self> {
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTOR)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()
            .map_err(|error| {
                Error::Internal(format!("the description of the protocol: {error}"))
            })?;
        let reflection = reflection.max_decoding_message_size(MOST_MESSAGE);
        let reporter = health.reporter.clone();
        Ok(Self {
            is_ending: health.is_ending.subscribe(),
            health: HealthServer::new(HealthService::from_health_reporter(reporter))
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
        let (reply, waiting) = if request.uri().path().starts_with(HEALTH) {
            (self.health.call(request), self.end())
        } else {
            // Its task reads requests until their end, also after the end of the replies. So their
            // end must be first.
            let waiting = self.end();
            let request = request.map(|body| {
                Body::new(EndingBody { body, waiting, is_reply: false, _charge: None })
            });
            let never = Waiting::ForEnd(Box::pin(std::future::pending()));
            (self.reflection.call(request), never)
        };
        Box::pin(async move {
            let response = reply.await?;
            Ok(response.map(|body| {
                Body::new(EndingBody { body, waiting, is_reply: true, _charge: charge })
            }))
        })
    }

    fn end(&self) -> Waiting {
        let mut is_ending = self.is_ending.clone();
        Waiting::ForEnd(Box::pin(async move {
            drop(is_ending.wait_for(|is_ending| *is_ending).await);
        }))
    }
}

/// The body of a request, or of a reply that counts until it is dropped. It ends with the server.
struct EndingBody {
    body: Body,
    waiting: Waiting,
    /// Whether its end has a status.
    is_reply: bool,
    _charge: Option<Charge>,
}

/// What a body waits for, besides its next frame.
enum Waiting {
    /// The end of the server.
    ForEnd(Pin<Box<dyn Future<Output = ()> + Send>>),
    /// The server ends: the body ends after the frames that are ready.
    ForNothing,
    /// The body has ended.
    Ended,
}

impl http_body::Body for EndingBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<http_body::Frame<Bytes>, Status>>> {
        if let Waiting::ForEnd(end) = &mut self.waiting
            && end.as_mut().poll(context).is_ready()
        {
            self.waiting = Waiting::ForNothing;
        }
        if let Waiting::Ended = self.waiting {
            return Poll::Ready(None);
        }
        // After the end was noticed, so that the last status of the server is sent.
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_ready() || matches!(self.waiting, Waiting::ForEnd(_)) {
            return frame;
        }
        self.waiting = Waiting::Ended;
        if !self.is_reply {
            return Poll::Ready(None);
        }
        let mut trailers = HeaderMap::new();
        Status::unavailable("the server is ending").add_header(&mut trailers)?;
        Poll::Ready(Some(Ok(http_body::Frame::trailers(trailers))))
    }
}
