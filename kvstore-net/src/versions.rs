//! Members and servers with different versions of the protocol.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use kvstore_core::{Backends, CpuBackend, ErrorCode, KvStore};
use prost::Message;
use tokio_stream::Empty;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::http::{self, Method, header};
use tonic::transport::Endpoint;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::client::{NetStore, NetStoreOptions};
use crate::proto::member_message::Content;
use crate::proto::store_client::StoreClient;
use crate::proto::store_server::{Store, StoreServer};
use crate::proto::{JoinRequest, MemberMessage, ServerMessage};
use crate::runtime;
use crate::server::{Server, ServerOptions, UNKNOWN_VERB};
use crate::wire::CALL;

#[test]
fn a_member_with_another_version_of_the_protocol_is_rejected() {
    let backends = Backends::new(vec![CpuBackend::new()]);
    let server = Server::start(&backends, &ServerOptions::new("127.0.0.1:0")).unwrap();
    let address = format!("http://{}", server.address());
    let join = JoinRequest {
        version: 2,
        name: "later".to_owned(),
        process: 1,
        num_servers: 1,
        ..JoinRequest::default()
    };
    let joined = runtime::wait(&runtime::single().unwrap(), async move {
        let mut client = StoreClient::connect(address).await.unwrap();
        let message = MemberMessage { content: Some(Content::Join(join)) };
        client.join(tokio_stream::iter([message])).await.map(drop)
    });
    let status = joined.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert_eq!(status.message(), "protocol version: expected 1, found 2");
}

/// A request of a later version.
#[derive(Clone, PartialEq, Message)]
struct LaterRequest {
    #[prost(string, tag = "1")]
    member: String,
    #[prost(uint64, tag = "3")]
    sequence: u64,
    /// A verb that this version does not have.
    #[prost(bytes = "vec", tag = "1000")]
    verb: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct LaterFrame {
    #[prost(message, optional, tag = "1")]
    request: Option<LaterRequest>,
}

#[test]
fn a_verb_of_a_later_version_is_unimplemented() {
    let backends = Backends::new(Vec::from([CpuBackend::new()]));
    let server = Server::start(&backends, &ServerOptions::new("127.0.0.1:0")).unwrap();
    let address = server.address().to_string();
    // A member of this version, which the request of the later one must not disturb.
    let store = NetStore::connect(&backends, &NetStoreOptions::new(&address)).unwrap();
    let request = LaterRequest { member: "later".to_owned(), sequence: 1, verb: Vec::from([8; 9]) };
    let frame = LaterFrame { request: Some(request) }.encode_to_vec();
    // gRPC writes whether a message is compressed, and its length.
    let len = u32::try_from(frame.len()).unwrap().to_be_bytes();
    let message: Bytes = [0].into_iter().chain(len).chain(frame).collect();
    let status = runtime::wait(&runtime::single().unwrap(), async move {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let mut channel = endpoint.connect().await.unwrap();
        let request = http::Request::builder()
            .method(Method::POST)
            .uri(CALL)
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .body(Body::new(Full::new(message).map_err(|_| Status::internal(""))));
        std::future::poll_fn(|context| channel.poll_ready(context)).await.unwrap();
        let response = channel.call(request.unwrap()).await.unwrap();
        let body = response.into_body().collect().await.unwrap();
        Status::from_header_map(body.trailers().unwrap()).unwrap()
    });
    let status = status.unwrap();
    assert_eq!((status.code(), status.message()), (Code::Unimplemented, UNKNOWN_VERB));
    assert!(store.keys().unwrap().is_empty());
}

/// A server of a later version, which rejects all members.
struct Later;

#[tonic::async_trait]
impl Store for Later {
    type JoinStream = Empty<Result<ServerMessage, Status>>;

    async fn join(
        &self,
        _: Request<Streaming<MemberMessage>>,
    ) -> Result<Response<Self::JoinStream>, Status> {
        Err(Status::unimplemented("protocol version: expected 2, found 1"))
    }
}

#[test]
fn a_store_reports_the_version_of_its_server() {
    let threads = runtime::parallel().unwrap();
    let address = runtime::wait(&threads, async {
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = incoming.local_addr().unwrap();
        let later = StoreServer::new(Later);
        let serving = tonic::transport::Server::builder().serve_with_incoming_shutdown(
            later,
            incoming,
            std::future::pending(),
        );
        tokio::spawn(serving);
        address
    });
    let address = address.unwrap().to_string();
    let backends = Backends::new(vec![CpuBackend::new()]);
    let error = NetStore::connect(&backends, &NetStoreOptions::new(&address)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unsupported);
    let text = format!("server `{address}`: protocol version: expected 2, found 1");
    assert!(error.to_string().contains(&text), "{error}");
}
