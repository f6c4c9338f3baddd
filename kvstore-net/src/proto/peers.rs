// Generated from proto/kvstore/v1 by `make protocol`. Do not edit.
// CRC-32 of the source: 7dfc16e0
/// The first server, the leader, decides which pushes a round has. A follower reports the parts that
/// it has, sums the parts in a list of the leader, and applies the sum when the leader commits the
/// list. `number` counts the messages in this direction from 1, and is 0 without content. `received`
/// is the largest number that the sender has received.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct LeaderMessage {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(uint64, tag = "2")]
    pub received: u64,
    #[prost(
        oneof = "leader_message::Content",
        tags = "3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13"
    )]
    pub content: ::core::option::Option<leader_message::Content>,
}
/// Nested message and enum types in `LeaderMessage`.
pub mod leader_message {
    #[derive(Clone, PartialEq, ::prost::Oneof)]
    pub enum Content {
        #[prost(message, tag = "3")]
        Start(super::LeaderStart),
        #[prost(message, tag = "4")]
        List(super::RoundList),
        #[prost(message, tag = "5")]
        Commit(super::RoundAttempt),
        /// The round is open again, with no list.
        #[prost(message, tag = "6")]
        Reopen(super::RoundAttempt),
        #[prost(message, tag = "7")]
        End(super::RoundEnd),
        #[prost(message, tag = "8")]
        PushEnd(super::PushEnd),
        #[prost(message, tag = "9")]
        CutStart(super::CutStart),
        #[prost(message, tag = "10")]
        Cut(super::Cut),
        #[prost(message, tag = "11")]
        CutCancelled(super::CutCancelled),
        #[prost(message, tag = "12")]
        Rewind(super::Rewind),
        #[prost(message, tag = "13")]
        CutComplete(super::CutComplete),
    }
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct FollowerMessage {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(uint64, tag = "2")]
    pub received: u64,
    #[prost(
        oneof = "follower_message::Content",
        tags = "3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13"
    )]
    pub content: ::core::option::Option<follower_message::Content>,
}
/// Nested message and enum types in `FollowerMessage`.
pub mod follower_message {
    #[derive(Clone, PartialEq, ::prost::Oneof)]
    pub enum Content {
        #[prost(message, tag = "3")]
        Start(super::FollowerStart),
        #[prost(message, tag = "4")]
        Arrived(super::PartArrived),
        /// A part is not there any more, unless it is in a list that the leader has committed.
        #[prost(message, tag = "5")]
        Gone(super::RoundMember),
        /// The push of this part must fail.
        #[prost(message, tag = "6")]
        Rejected(super::PushEnd),
        /// The sum of a list is complete.
        #[prost(message, tag = "7")]
        Prepared(super::RoundAttempt),
        /// The follower cannot have the sum of a list.
        #[prost(message, tag = "8")]
        Failed(super::RoundEnd),
        /// The follower has applied a list, or failed to.
        #[prost(message, tag = "9")]
        Applied(super::RoundEnd),
        #[prost(message, tag = "10")]
        CutClosed(super::CutClosed),
        /// The state of the cut is in memory, and members may change the store again.
        #[prost(message, tag = "11")]
        CutTaken(super::CutEnd),
        /// The recovery point is written.
        #[prost(message, tag = "12")]
        CutKept(super::CutEnd),
        /// The follower needs a recovery point soon.
        #[prost(message, tag = "13")]
        PointRequest(super::PointRequest),
    }
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct LeaderStart {
    /// The number of this run of the leader. The follower forgets lists of earlier runs that are not
    /// committed.
    #[prost(uint64, tag = "1")]
    pub run: u64,
    /// The position of the follower in the list of servers, and the length of the list.
    #[prost(uint32, tag = "2")]
    pub server: u32,
    #[prost(uint32, tag = "3")]
    pub num_servers: u32,
    /// That to which `received` belongs, or 0.
    #[prost(uint64, tag = "4")]
    pub follower_run: u64,
    /// As in FollowerStart. If they differ, the follower ignores what the leader has decided about
    /// rounds.
    #[prost(uint64, tag = "5")]
    pub rewound_by: u64,
    /// As JoinReply.group: the group with a coordinator that the leader belongs to, or 0. A server of
    /// another group may have got the address.
    #[prost(uint64, tag = "6")]
    pub coordinated: u64,
    /// Whether the leader has recovery points, so that all servers go back after its restart.
    #[prost(bool, tag = "7")]
    pub goes_back: bool,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct FollowerStart {
    #[prost(uint64, tag = "1")]
    pub run: u64,
    /// The numbers of the recovery points that the follower has.
    #[prost(uint64, repeated, tag = "2")]
    pub points: ::prost::alloc::vec::Vec<u64>,
    /// As in Rewind, or 0 if the follower has not gone back since its process began.
    #[prost(uint64, tag = "3")]
    pub rewound_by: u64,
    /// The largest number of a point that it has, has had or writes.
    #[prost(uint64, tag = "4")]
    pub newest_point: u64,
    /// The point that it writes, or 0. Then a CutEnd follows.
    #[prost(uint64, tag = "5")]
    pub writes_point: u64,
}
/// The push of a member to a round.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RoundMember {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(uint64, tag = "2")]
    pub process: u64,
    /// As in RoundPart.
    #[prost(uint64, tag = "3")]
    pub number: u64,
}
/// A part has arrived at a follower.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct PartArrived {
    #[prost(message, optional, tag = "1")]
    pub member: ::core::option::Option<RoundMember>,
    /// The first key of the part, the version that the push is based on, and the newest version, with
    /// which the leader rejects a push that comes too late for the round.
    #[prost(string, tag = "2")]
    pub key: ::prost::alloc::string::String,
    #[prost(uint64, tag = "3")]
    pub based_on: u64,
    #[prost(uint64, tag = "4")]
    pub newest: u64,
}
/// The members of a round, in the order in which their values are summed.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct RoundList {
    #[prost(uint64, tag = "1")]
    pub round: u64,
    #[prost(uint64, tag = "2")]
    pub attempt: u64,
    #[prost(message, repeated, tag = "3")]
    pub members: ::prost::alloc::vec::Vec<RoundMember>,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RoundAttempt {
    #[prost(uint64, tag = "1")]
    pub round: u64,
    #[prost(uint64, tag = "2")]
    pub attempt: u64,
}
/// The outcome of a list. A list without a failure is committed by all servers.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RoundEnd {
    #[prost(uint64, tag = "1")]
    pub round: u64,
    #[prost(uint64, tag = "2")]
    pub attempt: u64,
    #[prost(message, optional, tag = "3")]
    pub failure: ::core::option::Option<Failure>,
}
/// The outcome of a push that is in no committed list.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct PushEnd {
    #[prost(message, optional, tag = "1")]
    pub member: ::core::option::Option<RoundMember>,
    #[prost(message, optional, tag = "2")]
    pub failure: ::core::option::Option<Failure>,
}
/// The recovery points of all servers with the same number are one consistent cut: if one of them has
/// the effect of a call, then together they have all effects that the caller could know of. The same
/// holds for snapshots that are taken on all servers.
///
/// 1. The leader commits no rounds any more, waits until those before are applied, and sends a
///    CutStart. Each server lets no more calls take effect, and reports those joint calls that it has
///    made while other servers may not have made theirs.
/// 1. When all have done so, the leader sends a Cut. Each server makes the joint calls that others
///    have made, and then takes the state. Then calls and rounds continue.
/// 1. When all have done so, the leader sends a CutComplete. Each server writes its recovery point.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CutStart {
    /// The number of the cut and of its recovery point, larger than those before.
    #[prost(uint64, tag = "1")]
    pub number: u64,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CutClosed {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(message, repeated, tag = "2")]
    pub made: ::prost::alloc::vec::Vec<JointOperation>,
    /// The newest point, if the server has not changed since, or 0.
    #[prost(uint64, tag = "3")]
    pub same_as: u64,
    /// Keys are being added, so the server has no state now.
    #[prost(bool, tag = "4")]
    pub adds_keys: bool,
}
/// An operation that changes several servers: see JointCall.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct JointOperation {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(uint64, tag = "2")]
    pub process: u64,
    #[prost(uint64, tag = "3")]
    pub number: u64,
    #[prost(uint32, repeated, tag = "4")]
    pub servers: ::prost::alloc::vec::Vec<u32>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct Cut {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// The operations whose calls this server makes before it takes the state.
    #[prost(message, repeated, tag = "2")]
    pub made_elsewhere: ::prost::alloc::vec::Vec<JointOperation>,
    /// What is taken instead of a recovery point. It is not written.
    #[prost(message, optional, tag = "3")]
    pub snapshot: ::core::option::Option<CutSnapshot>,
}
/// A snapshot for a member.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CutSnapshot {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(uint64, tag = "2")]
    pub process: u64,
    #[prost(message, optional, tag = "3")]
    pub request: ::core::option::Option<TakeSnapshot>,
}
/// All servers have their states.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CutComplete {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// The newest point that all servers have, or 0. Those before are not needed any more.
    #[prost(uint64, tag = "2")]
    pub common: u64,
}
/// Not all servers have their states, or not all have written their points.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CutCancelled {
    #[prost(uint64, tag = "1")]
    pub number: u64,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CutEnd {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(message, optional, tag = "2")]
    pub failure: ::core::option::Option<Failure>,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct PointRequest {}
/// A server was restarted, so all go back to the newest point that all have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct Rewind {
    /// 0 if there is none: the server, which has no points, begins without values.
    #[prost(uint64, tag = "1")]
    pub point: u64,
    /// Identifies this message.
    #[prost(uint64, tag = "2")]
    pub by: u64,
}
/// Generated client implementations.
pub mod peers_client {
    #![allow(
        unused_variables,
        dead_code,
        missing_docs,
        clippy::wildcard_imports,
        clippy::let_unit_value,
    )]
    use tonic::codegen::*;
    use tonic::codegen::http::Uri;
    #[derive(Debug, Clone)]
    pub struct PeersClient<T> {
        inner: tonic::client::Grpc<T>,
    }
    impl PeersClient<tonic::transport::Channel> {
        /// Attempt to create a new client by connecting to a given endpoint.
        pub async fn connect<D>(dst: D) -> Result<Self, tonic::transport::Error>
        where
            D: TryInto<tonic::transport::Endpoint>,
            D::Error: Into<StdError>,
        {
            let conn = tonic::transport::Endpoint::new(dst)?.connect().await?;
            Ok(Self::new(conn))
        }
    }
    impl<T> PeersClient<T>
    where
        T: tonic::client::GrpcService<tonic::body::Body>,
        T::Error: Into<StdError>,
        T::ResponseBody: Body<Data = Bytes> + std::marker::Send + 'static,
        <T::ResponseBody as Body>::Error: Into<StdError> + std::marker::Send,
    {
        pub fn new(inner: T) -> Self {
            let inner = tonic::client::Grpc::new(inner);
            Self { inner }
        }
        pub fn with_origin(inner: T, origin: Uri) -> Self {
            let inner = tonic::client::Grpc::with_origin(inner, origin);
            Self { inner }
        }
        pub fn with_interceptor<F>(
            inner: T,
            interceptor: F,
        ) -> PeersClient<InterceptedService<T, F>>
        where
            F: tonic::service::Interceptor,
            T::ResponseBody: Default,
            T: tonic::codegen::Service<
                http::Request<tonic::body::Body>,
                Response = http::Response<
                    <T as tonic::client::GrpcService<tonic::body::Body>>::ResponseBody,
                >,
            >,
            <T as tonic::codegen::Service<
                http::Request<tonic::body::Body>,
            >>::Error: Into<StdError> + std::marker::Send + std::marker::Sync,
        {
            PeersClient::new(InterceptedService::new(inner, interceptor))
        }
        /// Compress requests with the given encoding.
        ///
        /// This requires the server to support it otherwise it might respond with an
        /// error.
        #[must_use]
        pub fn send_compressed(mut self, encoding: CompressionEncoding) -> Self {
            self.inner = self.inner.send_compressed(encoding);
            self
        }
        /// Enable decompressing responses.
        #[must_use]
        pub fn accept_compressed(mut self, encoding: CompressionEncoding) -> Self {
            self.inner = self.inner.accept_compressed(encoding);
            self
        }
        /// Limits the maximum size of a decoded message.
        ///
        /// Default: `4MB`
        #[must_use]
        pub fn max_decoding_message_size(mut self, limit: usize) -> Self {
            self.inner = self.inner.max_decoding_message_size(limit);
            self
        }
        /// Limits the maximum size of an encoded message.
        ///
        /// Default: `usize::MAX`
        #[must_use]
        pub fn max_encoding_message_size(mut self, limit: usize) -> Self {
            self.inner = self.inner.max_encoding_message_size(limit);
            self
        }
        /// The first server of a group calls each other one, a follower. The first messages of both are a
        /// LeaderStart and a FollowerStart. After a lost connection, both send the messages again that the
        /// other one has not received.
        pub async fn follow(
            &mut self,
            request: impl tonic::IntoStreamingRequest<Message = super::LeaderMessage>,
        ) -> std::result::Result<
            tonic::Response<tonic::codec::Streaming<super::FollowerMessage>>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static("/kvstore.v1.Peers/Follow");
            let mut req = request.into_streaming_request();
            req.extensions_mut().insert(GrpcMethod::new("kvstore.v1.Peers", "Follow"));
            self.inner.streaming(req, path, codec).await
        }
    }
}
/// Generated server implementations.
pub mod peers_server {
    #![allow(
        unused_variables,
        dead_code,
        missing_docs,
        clippy::wildcard_imports,
        clippy::let_unit_value,
    )]
    use tonic::codegen::*;
    /// Generated trait containing gRPC methods that should be implemented for use with PeersServer.
    #[async_trait]
    pub trait Peers: std::marker::Send + std::marker::Sync + 'static {
        /// Server streaming response type for the Follow method.
        type FollowStream: tonic::codegen::tokio_stream::Stream<
                Item = std::result::Result<super::FollowerMessage, tonic::Status>,
            >
            + std::marker::Send
            + 'static;
        /// The first server of a group calls each other one, a follower. The first messages of both are a
        /// LeaderStart and a FollowerStart. After a lost connection, both send the messages again that the
        /// other one has not received.
        async fn follow(
            &self,
            request: tonic::Request<tonic::Streaming<super::LeaderMessage>>,
        ) -> std::result::Result<tonic::Response<Self::FollowStream>, tonic::Status>;
    }
    #[derive(Debug)]
    pub struct PeersServer<T> {
        inner: Arc<T>,
        accept_compression_encodings: EnabledCompressionEncodings,
        send_compression_encodings: EnabledCompressionEncodings,
        max_decoding_message_size: Option<usize>,
        max_encoding_message_size: Option<usize>,
    }
    impl<T> PeersServer<T> {
        pub fn new(inner: T) -> Self {
            Self::from_arc(Arc::new(inner))
        }
        pub fn from_arc(inner: Arc<T>) -> Self {
            Self {
                inner,
                accept_compression_encodings: Default::default(),
                send_compression_encodings: Default::default(),
                max_decoding_message_size: None,
                max_encoding_message_size: None,
            }
        }
        pub fn with_interceptor<F>(
            inner: T,
            interceptor: F,
        ) -> InterceptedService<Self, F>
        where
            F: tonic::service::Interceptor,
        {
            InterceptedService::new(Self::new(inner), interceptor)
        }
        /// Enable decompressing requests with the given encoding.
        #[must_use]
        pub fn accept_compressed(mut self, encoding: CompressionEncoding) -> Self {
            self.accept_compression_encodings.enable(encoding);
            self
        }
        /// Compress responses with the given encoding, if the client supports it.
        #[must_use]
        pub fn send_compressed(mut self, encoding: CompressionEncoding) -> Self {
            self.send_compression_encodings.enable(encoding);
            self
        }
        /// Limits the maximum size of a decoded message.
        ///
        /// Default: `4MB`
        #[must_use]
        pub fn max_decoding_message_size(mut self, limit: usize) -> Self {
            self.max_decoding_message_size = Some(limit);
            self
        }
        /// Limits the maximum size of an encoded message.
        ///
        /// Default: `usize::MAX`
        #[must_use]
        pub fn max_encoding_message_size(mut self, limit: usize) -> Self {
            self.max_encoding_message_size = Some(limit);
            self
        }
    }
    impl<T, B> tonic::codegen::Service<http::Request<B>> for PeersServer<T>
    where
        T: Peers,
        B: Body + std::marker::Send + 'static,
        B::Error: Into<StdError> + std::marker::Send + 'static,
    {
        type Response = http::Response<tonic::body::Body>;
        type Error = std::convert::Infallible;
        type Future = BoxFuture<Self::Response, Self::Error>;
        fn poll_ready(
            &mut self,
            _cx: &mut Context<'_>,
        ) -> Poll<std::result::Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, req: http::Request<B>) -> Self::Future {
            match req.uri().path() {
                "/kvstore.v1.Peers/Follow" => {
                    #[allow(non_camel_case_types)]
                    struct FollowSvc<T: Peers>(pub Arc<T>);
                    impl<T: Peers> tonic::server::StreamingService<super::LeaderMessage>
                    for FollowSvc<T> {
                        type Response = super::FollowerMessage;
                        type ResponseStream = T::FollowStream;
                        type Future = BoxFuture<
                            tonic::Response<Self::ResponseStream>,
                            tonic::Status,
                        >;
                        fn call(
                            &mut self,
                            request: tonic::Request<
                                tonic::Streaming<super::LeaderMessage>,
                            >,
                        ) -> Self::Future {
                            let inner = Arc::clone(&self.0);
                            let fut = async move {
                                <T as Peers>::follow(&inner, request).await
                            };
                            Box::pin(fut)
                        }
                    }
                    let accept_compression_encodings = self.accept_compression_encodings;
                    let send_compression_encodings = self.send_compression_encodings;
                    let max_decoding_message_size = self.max_decoding_message_size;
                    let max_encoding_message_size = self.max_encoding_message_size;
                    let inner = self.inner.clone();
                    let fut = async move {
                        let method = FollowSvc(inner);
                        let codec = tonic_prost::ProstCodec::default();
                        let mut grpc = tonic::server::Grpc::new(codec)
                            .apply_compression_config(
                                accept_compression_encodings,
                                send_compression_encodings,
                            )
                            .apply_max_message_size_config(
                                max_decoding_message_size,
                                max_encoding_message_size,
                            );
                        let res = grpc.streaming(method, req).await;
                        Ok(res)
                    };
                    Box::pin(fut)
                }
                _ => {
                    Box::pin(async move {
                        let mut response = http::Response::new(
                            tonic::body::Body::default(),
                        );
                        let headers = response.headers_mut();
                        headers
                            .insert(
                                tonic::Status::GRPC_STATUS,
                                (tonic::Code::Unimplemented as i32).into(),
                            );
                        headers
                            .insert(
                                http::header::CONTENT_TYPE,
                                tonic::metadata::GRPC_CONTENT_TYPE,
                            );
                        Ok(response)
                    })
                }
            }
        }
    }
    impl<T> Clone for PeersServer<T> {
        fn clone(&self) -> Self {
            let inner = self.inner.clone();
            Self {
                inner,
                accept_compression_encodings: self.accept_compression_encodings,
                send_compression_encodings: self.send_compression_encodings,
                max_decoding_message_size: self.max_decoding_message_size,
                max_encoding_message_size: self.max_encoding_message_size,
            }
        }
    }
    /// Generated gRPC service name
    pub const SERVICE_NAME: &str = "kvstore.v1.Peers";
    impl<T> tonic::server::NamedService for PeersServer<T> {
        const NAME: &'static str = SERVICE_NAME;
    }
}
