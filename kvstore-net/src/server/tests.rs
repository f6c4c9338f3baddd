//! A member of another version.

use kvstore_core::{Backends, CpuBackend};
use tonic::Code;

use super::{Server, ServerOptions};
use crate::proto::member_message::Content;
use crate::proto::store_client::StoreClient;
use crate::proto::{JoinRequest, MemberMessage};
use crate::runtime;

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
