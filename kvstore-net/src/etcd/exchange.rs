//! [`Exchange`]: a request of gRPC and its replies, as bytes.
//!
//! All methods share this code. The clients that `tonic` generates would have a copy of its code
//! for connections and streams for each method, which makes native modules larger.

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

/// A request and its replies.
pub(super) struct Exchange {
    /// The server ends the replies of a watch when this is dropped.
    _requests: mpsc::Sender<Bytes>,
    replies: Streaming<Bytes>,
}

impl Exchange {
    /// Sends a request. Returns its first reply, and the exchange for further ones.
    pub(super) async fn begin(
        channel: Channel,
        path: &'static str,
        request: Bytes,
    ) -> Result<(Bytes, Self), Status> {
        let (requests, receiver) = mpsc::channel(1);
        // The channel is empty, so this does not wait.
        let _ = requests.try_send(request);
        let mut request = Request::new(ReceiverStream::new(receiver));
        // A member of etcd that has lost the others ends the stream.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let mut client = Grpc::new(channel);
        let failed = |error: tonic::transport::Error| Status::from_error(Box::new(error));
        client.ready().await.map_err(failed)?;
        let path = PathAndQuery::from_static(path);
        let replies = client.streaming(request, path, Raw).await?.into_inner();
        let mut exchange = Self { _requests: requests, replies };
        let first = exchange.next().await?;
        Ok((first, exchange))
    }

    /// Waits for the next reply.
    pub(super) async fn next(&mut self) -> Result<Bytes, Status> {
        let ended = || Status::unavailable("the reply ended early");
        self.replies.message().await?.ok_or_else(ended)
    }
}

/// Reads a reply.
pub(super) fn decode<T: Message + Default>(reply: Bytes) -> Result<T, Status> {
    T::decode(reply).map_err(|error| Status::internal(format!("a damaged reply: {error}")))
}

/// Sends and receives encoded messages.
#[derive(Clone, Copy, Debug, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
