//! Members and servers with different versions of the protocol.

use kvstore_core::{Backends, CpuBackend, ErrorCode};
use tokio_stream::Empty;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::client::{NetStore, NetStoreOptions};
use crate::proto::member_message::Content;
use crate::proto::store_client::StoreClient;
use crate::proto::store_server::{Store, StoreServer};
use crate::proto::{JoinRequest, MemberMessage, ServerMessage};
use crate::runtime;
use crate::server::{Server, ServerOptions};

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
