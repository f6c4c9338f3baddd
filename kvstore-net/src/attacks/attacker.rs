//! [`Attacker`]: a member that sends any message.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::http::{HeaderValue, Method, Request, header};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use crate::certificates::Certificates;
use crate::client::streams;
use crate::proto::request::Verb;
use crate::proto::store_client::StoreClient;
use crate::proto::{self, member_message, server_message};
use crate::random::random_number;
use crate::server::{Server, VERSION};
use crate::wire::{CALL, Incoming, Outgoing};

/// The address of the attackers.
const FROM: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// How long a call may take that the server need not answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Opens a connection from the address of the attackers.
pub(super) fn connect(to: SocketAddr) -> TcpStream {
    connect_from(FROM, to)
}

/// Opens a connection from an address of this machine.
pub(super) fn connect_from(from: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.into()
}

/// A member that sends any message, in one connection.
pub(super) struct Attacker {
    runtime: Runtime,
    channel: Channel,
    name: String,
    incarnation: u64,
    sequence: u64,
    timeout_ms: u64,
    membership: Option<Membership>,
    /// Streams that stay open.
    open: Vec<Incoming<proto::ReplyFrame>>,
    requests: Vec<mpsc::Sender<proto::RequestFrame>>,
}

/// The two directions of the stream that keeps the attacker a member.
type Membership = (mpsc::Sender<proto::MemberMessage>, Streaming<proto::ServerMessage>);

impl Attacker {
    pub(super) fn join(server: &Server, name: &str) -> Self {
        Self::try_join(server, name).unwrap()
    }

    pub(super) fn try_join(server: &Server, name: &str) -> Result<Self, Status> {
        Self::try_join_as(server, (name, random_number()), None)
    }

    /// Joins with the number of a process, and with a certificate if the server has one.
    pub(super) fn try_join_as(
        server: &Server,
        (name, process): (&str, u64),
        certificates: Option<&Certificates>,
    ) -> Result<Self, Status> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let address = server.address();
        let endpoint = match certificates {
            None => Endpoint::from_shared(format!("http://{address}")).unwrap(),
            Some(certificates) => Endpoint::from_shared(format!("https://{address}"))
                .and_then(|endpoint| endpoint.tls_config(certificates.of_member()))
                .unwrap(),
        };
        let (channel, incarnation, membership) = runtime.block_on(async {
            let channel = endpoint.local_address(Some(FROM)).connect().await;
            let channel = channel.map_err(|error| Status::unavailable(error.to_string()))?;
            let (sender, receiver) = mpsc::channel(4);
            let join = proto::JoinRequest {
                version: VERSION,
                name: name.to_owned(),
                process,
                num_servers: 1,
                ..Default::default()
            };
            let content = Some(member_message::Content::Join(join));
            sender.send(proto::MemberMessage { content }).await.unwrap();
            let mut client = StoreClient::new(channel.clone());
            let mut messages = client.join(ReceiverStream::new(receiver)).await?.into_inner();
            let first = messages.message().await?.and_then(|message| message.content);
            let Some(server_message::Content::Joined(joined)) = first else {
                return Err(Status::internal("no reply"));
            };
            Ok::<_, Status>((channel, joined.incarnation, (sender, messages)))
        })?;
        Ok(Self {
            runtime,
            channel,
            name: name.to_owned(),
            incarnation,
            sequence: 0,
            timeout_ms: 5000,
            membership: Some(membership),
            open: Vec::new(),
            requests: Vec::new(),
        })
    }

    /// Leaves, and returns the incarnation.
    pub(super) fn leave(mut self) -> u64 {
        let (sender, mut messages) = self.membership.take().unwrap();
        self.runtime.block_on(async {
            let content = Some(member_message::Content::Leave(proto::Leave {}));
            sender.send(proto::MemberMessage { content }).await.unwrap();
            while let Ok(Some(_)) = messages.message().await {}
        });
        self.incarnation
    }

    /// Closes the stream that keeps the attacker a member, without leaving.
    pub(super) fn lose_membership(&mut self) {
        self.membership = None;
    }

    /// Makes later calls as the current process of another member.
    pub(super) fn pretend_to_be(&mut self, other: &Self) {
        self.name.clone_from(&other.name);
        self.incarnation = other.incarnation;
    }

    /// Sets the incarnation of later calls, and returns the earlier one.
    pub(super) fn use_incarnation(&mut self, incarnation: u64) -> u64 {
        std::mem::replace(&mut self.incarnation, incarnation)
    }

    pub(super) fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn frame(&self, sequence: u64, verb: Verb, data: &[u8]) -> proto::RequestFrame {
        let request = proto::Request {
            member: self.name.clone(),
            incarnation: self.incarnation,
            sequence,
            answered_below: 1,
            timeout_ms: self.timeout_ms,
            verb: Some(verb),
            ..Default::default()
        };
        proto::RequestFrame { request: Some(request), data: Bytes::copy_from_slice(data) }
    }

    fn sequence_of(&mut self, verb: &Verb) -> u64 {
        if crate::server::kind(verb).changes { self.next_sequence() } else { 0 }
    }

    fn call(
        &mut self,
        sequence: u64,
        verb: Verb,
        data: &[u8],
    ) -> Result<Option<proto::Failure>, Status> {
        let frames = tokio_stream::iter([self.frame(sequence, verb, data)]);
        let channel = self.channel.clone();
        self.runtime.block_on(async {
            let mut replies = streams::open(channel, frames).await?;
            let reply = replies.message().await?.and_then(|frame| frame.reply);
            Ok(reply.ok_or_else(|| Status::internal("no reply"))?.failure)
        })
    }

    #[track_caller]
    pub(super) fn ok(&mut self, verb: Verb, data: &[u8]) {
        let sequence = self.sequence_of(&verb);
        self.ok_with(sequence, verb, data);
    }

    #[track_caller]
    pub(super) fn ok_with(&mut self, sequence: u64, verb: Verb, data: &[u8]) {
        assert_eq!(self.call(sequence, verb, data).unwrap(), None);
    }

    #[track_caller]
    pub(super) fn failure(&mut self, verb: Verb) -> proto::Failure {
        self.failure_with(verb, &[])
    }

    #[track_caller]
    pub(super) fn failure_with(&mut self, verb: Verb, data: &[u8]) -> proto::Failure {
        let sequence = self.sequence_of(&verb);
        self.call(sequence, verb, data).unwrap().unwrap()
    }

    #[track_caller]
    pub(super) fn status(&mut self, verb: Verb, data: &[u8]) -> Code {
        let sequence = self.sequence_of(&verb);
        self.status_with(sequence, verb, data)
    }

    #[track_caller]
    pub(super) fn status_with(&mut self, sequence: u64, verb: Verb, data: &[u8]) -> Code {
        self.call(sequence, verb, data).unwrap_err().code()
    }

    /// Sets how long later calls wait.
    pub(super) fn use_timeout(&mut self, timeout_ms: u64) {
        self.timeout_ms = timeout_ms;
    }

    /// Makes a call with a deadline of gRPC, which this client does not enforce itself. Returns the
    /// status.
    #[track_caller]
    pub(super) fn status_within(
        &mut self,
        timeout: &'static str,
        sequence: u64,
        verb: Verb,
    ) -> Status {
        let data: &[u8] = if let Verb::Push(_) = verb { &[0; 4] } else { &[] };
        let frames = tokio_stream::iter([Ok(self.frame(sequence, verb, data))]);
        let mut request = Request::new(Outgoing::request(frames));
        request.headers_mut().insert("grpc-timeout", HeaderValue::from_static(timeout));
        let channel = self.channel.clone();
        self.runtime.block_on(async {
            let mut replies = streams::send(channel, request).await.unwrap();
            let message = tokio::time::timeout(super::LONG, replies.message()).await;
            message.expect("the server answers").unwrap_err()
        })
    }

    /// Repeats a call without data. Returns the failure of its first attempt.
    #[track_caller]
    pub(super) fn repeat(&mut self, sequence: u64, verb: Verb) -> proto::Failure {
        self.call(sequence, verb, &[]).unwrap().unwrap()
    }

    /// Begins a call without its data, and then another one. Returns the code of the answer.
    pub(super) fn two_requests(&mut self, first: Verb, second: Verb) -> Code {
        let sequence = self.sequence_of(&first);
        let frames = [self.frame(sequence, first, &[]), self.frame(0, second, &[])];
        let channel = self.channel.clone();
        self.runtime.block_on(async {
            let mut replies = streams::open(channel, tokio_stream::iter(frames)).await.unwrap();
            replies.message().await.map_or_else(|status| status.code(), |_| Code::Ok)
        })
    }

    /// Sends bytes instead of messages. Returns the code of the answer.
    pub(super) fn send_raw(&mut self, bytes: Vec<u8>) -> Code {
        let mut channel = self.channel.clone();
        let request = Request::builder()
            .method(Method::POST)
            .uri(CALL)
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .body(Body::new(Full::new(Bytes::from(bytes)).map_err(|_| Status::internal(""))));
        self.runtime.block_on(async {
            std::future::poll_fn(|context| channel.poll_ready(context)).await.unwrap();
            let response = channel.call(request.unwrap()).await.unwrap();
            let body = response.into_body().collect().await;
            let trailers = body.unwrap().trailers().cloned().unwrap_or_default();
            Status::from_header_map(&trailers).map_or(Code::Ok, |status| status.code())
        })
    }

    /// Makes a call and does not read the reply. Returns whether the server accepts it.
    pub(super) fn start_and_do_not_read(&mut self, verb: Verb, data: &[u8]) -> bool {
        let mut frames = vec![self.frame(0, verb, &[])];
        frames.extend(
            data.chunks(256 << 10).map(|data| proto::RequestFrame {
                request: None,
                data: Bytes::copy_from_slice(data),
            }),
        );
        let (sender, receiver) = mpsc::channel(frames.len());
        let channel = self.channel.clone();
        let started = self.runtime.block_on(async {
            for frame in frames {
                sender.send(frame).await.unwrap();
            }
            let mut replies = streams::open(channel, ReceiverStream::new(receiver)).await.ok()?;
            match tokio::time::timeout(PATIENCE, replies.message()).await {
                Ok(Ok(Some(_))) => Some(replies),
                _ => None,
            }
        });
        let is_accepted = started.is_some();
        self.open.extend(started);
        self.requests.push(sender);
        is_accepted
    }

    /// Opens streams without a call until the server refuses one. Returns how many are open.
    pub(super) fn open_idle_streams(&mut self, most: usize) -> usize {
        for opened in 0..most {
            let (sender, receiver) = mpsc::channel(1);
            let channel = self.channel.clone();
            let stream = self
                .runtime
                .block_on(async { streams::open(channel, ReceiverStream::new(receiver)).await });
            let Ok(stream) = stream else { return opened };
            self.open.push(stream);
            self.requests.push(sender);
        }
        most
    }
}
