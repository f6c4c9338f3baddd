//! [`Methods`]: which service of a server gets a request.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use kvstore_core::Result as StoreResult;
use tonic::body::Body;
use tonic::codegen::http::header::CONTENT_TYPE;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::metadata::GRPC_CONTENT_TYPE;

use super::deadline;
use super::replies::Replies;
use super::runs::Runs;
use super::service::MOST_PEER_MESSAGE;
use super::standard::StandardServices;
use crate::accounts::STREAM;
use crate::proto::peers_server::PeersServer;
use crate::proto::store_server::StoreServer;
use crate::wire::{CALL, Incoming, Outgoing};

/// The most bytes of a message of a member.
const MOST_MEMBER_MESSAGE: usize = 4096;

/// The start of the paths of the methods for other servers.
const PEERS: &str = "/kvstore.v1.Peers/";

/// The services of a server: `tonic` serves members, and [`Replies`] serves calls.
#[derive(Clone)]
pub(crate) struct Methods {
    runs: Arc<Runs>,
    standard: StandardServices,
}

impl Methods {
    /// # Errors
    /// - The errors of [`StandardServices::new`].
    pub(crate) fn new(runs: Arc<Runs>) -> StoreResult<Self> {
        let standard = StandardServices::new(&runs.service().health)?;
        Ok(Self { runs, standard })
    }

    pub(crate) fn runs(&self) -> &Arc<Runs> {
        &self.runs
    }
}

impl Service<http::Request<Body>> for Methods {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let mut service = self.runs.service();
        match request.uri().path() {
            CALL => {}
            path if StandardServices::has(path) => {
                let access = service.access.of(request.extensions());
                return self.standard.call(request, &access);
            }
            path if path.starts_with(PEERS) => {
                let peers = PeersServer::new(service);
                return peers.max_decoding_message_size(MOST_PEER_MESSAGE).call(request);
            }
            _ => {
                let members = StoreServer::new(service);
                return members.max_decoding_message_size(MOST_MEMBER_MESSAGE).call(request);
            }
        }
        service.access = service.access.of(request.extensions());
        service.deadline = deadline::end_of(request.headers());
        let charge = match service.access.charge(STREAM) {
            Ok(charge) => charge,
            Err(status) => return Box::pin(async move { Ok(status.into_http()) }),
        };
        let account = service.access.account.clone();
        let requests = Incoming::requests(request.into_body(), account);
        let replies = Outgoing::reply(Replies::new(service, requests, charge));
        let mut response = http::Response::new(replies);
        response.headers_mut().insert(CONTENT_TYPE, GRPC_CONTENT_TYPE);
        Box::pin(async { Ok(response) })
    }
}
