//! [`Streams`]: the streams to a server, each for one call at a time.
//!
//! The first call on a stream sends headers, and both sides create tasks and buffers for it. Each
//! later call is only a message in each direction.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvstore_core::{Backends, Result, fallible};
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::http::header::{CONTENT_TYPE, TE};
use tonic::codegen::http::{HeaderValue, Method, Request, StatusCode, Uri};
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::connection::Answer;
use crate::proto;
use crate::wire::{CALL, Elements, Incoming, IncomingValues, Outgoing, Receiver, error_of};

/// The most streams that are kept open without a call.
const MOST_IDLE: usize = 16;

/// The most frames of a request that wait for the connection.
const MOST_WAITING: usize = 2;

/// The streams to a server.
pub(super) struct Streams(Mutex<Arc<ServerStreams>>);

/// The streams to an address of a server.
struct ServerStreams {
    server: Arc<str>,
    channels: Vec<ChannelStreams>,
    /// Set when the server is at another address, and who waits for it.
    is_replaced: AtomicBool,
    replaced: Notify,
}

/// The streams of one connection.
struct ChannelStreams {
    channel: Channel,
    /// The number of calls that run.
    num_running: AtomicUsize,
    /// The open streams without a call. The last one was used last.
    idle: Mutex<Vec<CallStream>>,
}

/// A call that runs until this is dropped.
struct Running<'a>(&'a ChannelStreams);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.num_running.fetch_sub(1, Ordering::Relaxed);
    }
}

struct CallStream {
    requests: mpsc::Sender<proto::RequestFrame>,
    replies: Incoming<proto::ReplyFrame>,
}

/// Opens a stream of calls.
pub(crate) async fn open(
    channel: Channel,
    requests: impl Stream<Item = proto::RequestFrame> + Send + Unpin + 'static,
) -> Result<Incoming<proto::ReplyFrame>, Status> {
    send(channel, Request::new(Outgoing::request(requests.map(Ok)))).await
}

/// Opens a stream of calls with a body, and perhaps more headers than the library uses.
pub(crate) async fn send(
    mut channel: Channel,
    mut request: Request<Body>,
) -> Result<Incoming<proto::ReplyFrame>, Status> {
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(CALL);
    request.headers_mut().insert(CONTENT_TYPE, tonic::metadata::GRPC_CONTENT_TYPE);
    request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    let failed = |error: tonic::transport::Error| Status::from_error(Box::new(error));
    poll_fn(|context| channel.poll_ready(context)).await.map_err(failed)?;
    let response = channel.call(request).await.map_err(failed)?;
    match Status::from_header_map(response.headers()) {
        Some(status) if status.code() != Code::Ok => Err(status),
        _ if response.status() != StatusCode::OK => {
            Err(Status::unavailable(format!("an answer of HTTP: {}", response.status())))
        }
        _ => Ok(Incoming::replies(response.into_body())),
    }
}

impl Streams {
    pub(super) fn new(server: &str, channels: Vec<Channel>) -> Self {
        Self(Mutex::new(Arc::new(ServerStreams::new(server, channels))))
    }

    fn current(&self) -> MutexGuard<'_, Arc<ServerStreams>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the address of the server.
    pub(super) fn server(&self) -> Arc<str> {
        Arc::clone(&self.current().server)
    }

    /// Uses the connections to another address of the server. The calls that run on the others fail
    /// with [`Code::Unavailable`].
    pub(super) fn replace(&self, server: &str, channels: Vec<Channel>) {
        let streams = Arc::new(ServerStreams::new(server, channels));
        let earlier = std::mem::replace(&mut *self.current(), streams);
        earlier.is_replaced.store(true, Ordering::SeqCst);
        earlier.replaced.notify_waiters();
    }

    /// Sends a request and receives its reply, on the connection with the fewest calls. Sends the
    /// ranges of `supplied` that the server asks for. The inner error is one of the store or of
    /// this machine.
    pub(super) async fn call(
        &self,
        backends: &Backends,
        frames: impl Iterator<Item = proto::RequestFrame>,
        supplied: Option<&Elements>,
    ) -> Result<Result<Answer>, Status> {
        let current = Arc::clone(&self.current());
        let replaced = current.replaced.notified();
        tokio::pin!(replaced);
        // Enabled before the flag is read, so that no change is missed.
        replaced.as_mut().enable();
        let is_replaced = current.is_replaced.load(Ordering::SeqCst);
        tokio::select! {
            biased;
            answer = current.call(backends, frames, supplied), if !is_replaced => answer,
            () = replaced, if !is_replaced => Err(moved()),
            else => Err(moved()),
        }
    }
}

fn moved() -> Status {
    Status::unavailable("the server is at another address now")
}

impl ServerStreams {
    fn new(server: &str, channels: Vec<Channel>) -> Self {
        let streams = |channel| ChannelStreams {
            channel,
            num_running: AtomicUsize::new(0),
            idle: Mutex::default(),
        };
        Self {
            server: server.into(),
            channels: channels.into_iter().map(streams).collect(),
            is_replaced: AtomicBool::new(false),
            replaced: Notify::new(),
        }
    }

    async fn call(
        &self,
        backends: &Backends,
        mut frames: impl Iterator<Item = proto::RequestFrame>,
        supplied: Option<&Elements>,
    ) -> Result<Result<Answer>, Status> {
        let num_running = |streams: &&ChannelStreams| streams.num_running.load(Ordering::Relaxed);
        let streams = self.channels.iter().min_by_key(num_running);
        let streams = streams.ok_or_else(|| Status::internal("no connection"))?;
        streams.num_running.fetch_add(1, Ordering::Relaxed);
        let _running = Running(streams);
        let mut stream = match streams.take_idle() {
            Some(stream) => stream,
            None => streams.open(frames.next()).await?,
        };
        let (has_sent, answer) =
            stream.exchange((backends, &self.server), frames, supplied).await?;
        // After an error, the rest of a request or reply may still be on the way.
        if has_sent && answer.is_ok() {
            let mut idle = streams.idle();
            if idle.len() < MOST_IDLE {
                idle.push(stream);
            }
        }
        Ok(answer)
    }
}

impl ChannelStreams {
    fn idle(&self) -> MutexGuard<'_, Vec<CallStream>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an open stream, and forgets those that a lost connection has closed.
    fn take_idle(&self) -> Option<CallStream> {
        let mut idle = self.idle();
        std::iter::from_fn(|| idle.pop()).find(|stream| !stream.requests.is_closed())
    }

    /// Opens a stream and sends a frame.
    async fn open(&self, first: Option<proto::RequestFrame>) -> Result<CallStream, Status> {
        let (requests, receiver) = mpsc::channel(MOST_WAITING);
        if let Some(first) = first {
            // The channel is empty, so this does not wait.
            let _ = requests.try_send(first);
        }
        let replies = open(self.channel.clone(), ReceiverStream::new(receiver)).await?;
        Ok(CallStream { requests, replies })
    }
}

impl CallStream {
    /// Sends frames and receives a reply. Also returns whether all frames have been sent.
    async fn exchange(
        &mut self,
        (backends, server): (&Backends, &str),
        frames: impl Iterator<Item = proto::RequestFrame>,
        supplied: Option<&Elements>,
    ) -> Result<(bool, Result<Answer>), Status> {
        let CallStream { requests, replies } = self;
        if let Some(elements) = supplied {
            let answer = async {
                for frame in frames {
                    let _ = requests.send(frame).await;
                }
                let first = supply(elements, requests, replies).await?;
                receive(backends, server, first, replies).await
            };
            // Boxed, because the futures of other calls would have its size, too.
            return Ok((true, Box::pin(answer).await?));
        }
        let send = async {
            for frame in frames {
                if requests.send(frame).await.is_err() {
                    // The stream is closed. The status, which is received, says why.
                    return;
                }
            }
        };
        let receive = async {
            let first = replies.message().await?.ok_or_else(ended)?;
            receive(backends, server, first, replies).await
        };
        tokio::pin!(send, receive);
        let mut has_sent = false;
        loop {
            // At the same time, because the server may reply before it has the complete request.
            tokio::select! {
                biased;
                () = &mut send, if !has_sent => has_sent = true,
                answer = &mut receive => return Ok((has_sent, answer?)),
            }
        }
    }
}

fn ended() -> Status {
    Status::unavailable("the reply ended early")
}

/// Sends the ranges of the data that the server asks for. Returns the first frame of its reply.
async fn supply(
    elements: &Elements,
    requests: &mpsc::Sender<proto::RequestFrame>,
    replies: &mut Incoming<proto::ReplyFrame>,
) -> Result<proto::ReplyFrame, Status> {
    loop {
        let frame = replies.message().await?.ok_or_else(ended)?;
        let Some(wanted) = frame.reply.as_ref().and_then(|reply| reply.wanted) else {
            return Ok(frame);
        };
        let range = elements.range(wanted.first, wanted.num_bytes);
        let outside = || Status::internal("the server asks for data that the push does not have");
        for data in range.ok_or_else(outside)? {
            // If the stream is closed, the status, which is received, says why.
            let _ = requests.send(proto::RequestFrame { request: None, data }).await;
        }
    }
}

/// Receives the rest of a reply. The inner error is one of the store or of this machine.
async fn receive(
    backends: &Backends,
    server: &str,
    first: proto::ReplyFrame,
    replies: &mut Incoming<proto::ReplyFrame>,
) -> Result<Result<Answer>, Status> {
    let mut reply = first.reply.ok_or_else(|| Status::internal("a reply without its head"))?;
    if let Some(failure) = reply.failure.take_if(|failure| !failure.out_of_date) {
        return Ok(Err(error_of(failure, server)));
    }
    // A file is not a value: its length is known, but not its contents.
    if let Some(blob) = &reply.blob {
        let num_bytes = usize::try_from(blob.num_bytes).unwrap_or(usize::MAX);
        let mut bytes = Vec::from(first.data);
        while bytes.len() < num_bytes {
            let frame = replies.message().await?.ok_or_else(ended)?;
            if let Err(error) = fallible::extend(&mut bytes, &frame.data) {
                return Ok(Err(error));
            }
        }
        return Ok(Ok(Answer { reply, bytes, ..Answer::default() }));
    }
    if !reply.has_elements {
        return Ok(Ok(Answer { reply, ..Answer::default() }));
    }
    let receiver = IncomingValues::new(&reply.values, None);
    let mut receiver = match receiver.and_then(|expected| Receiver::new(backends, expected)) {
        Ok(receiver) => receiver,
        Err(error) => return Ok(Err(error)),
    };
    let mut data = first.data;
    loop {
        if let Err(error) = receiver.take(&data) {
            return Ok(Err(error));
        }
        if !receiver.is_waiting() {
            let values = receiver.finish();
            return Ok(values.map(|values| Answer { reply, values, ..Answer::default() }));
        }
        data = replies.message().await?.ok_or_else(ended)?.data;
    }
}
