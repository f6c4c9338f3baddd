//! [`Outgoing`] and [`Incoming`]: the gRPC messages of `Call`, without copies of their data.
//!
//! The codecs of `tonic` copy each message once when they send and once when they receive it. The
//! messages of a call are mostly elements of values, so these bodies pass them on as they are.
//! `tonic` does the rest: connections, headers and the method `Join`.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body::Body as _;
use prost::Message;
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::codegen::http::HeaderMap;
use tonic::{Code, Status};

use super::sizes::decoded_bytes;
use crate::accounts::{Account, Charge};
use crate::proto;

/// The most bytes of the part of a message that is not data.
const MOST_HEAD_BYTES: usize = 256 << 20;

/// Shorter data are sent in one piece with the part before them.
const SHORT_DATA: usize = 16 << 10;

/// The keys of the two fields of a frame in the encoding of Protocol Buffers: its request or reply,
/// and its data.
const HEAD: u8 = 1 << 3 | LENGTH_DELIMITED;
const DATA: u8 = 2 << 3 | LENGTH_DELIMITED;
const LENGTH_DELIMITED: u8 = 2;

/// The bytes before each message of gRPC: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// The path of `Call`.
pub(crate) const CALL: &str = "/kvstore.v1.Store/Call";

/// A message of `Call`.
pub(crate) trait Frame {
    type Head: Message + Default;

    fn new(head: Option<Self::Head>, data: Bytes) -> Self;

    fn into_parts(self) -> (Option<Self::Head>, Bytes);
}

macro_rules! frames {
    ($($Frame:ident { $head:ident: $Head:ident }),+) => {
        $(impl Frame for proto::$Frame {
            type Head = proto::$Head;

            fn new($head: Option<proto::$Head>, data: Bytes) -> Self {
                Self { $head, data }
            }

            fn into_parts(self) -> (Option<proto::$Head>, Bytes) {
                (self.$head, self.data)
            }
        })+
    };
}
frames!(RequestFrame { request: Request }, ReplyFrame { reply: Reply });

/// The body of a request or reply that sends a stream of frames. The status of the stream becomes
/// the trailers, which end a reply. A request has none.
pub(crate) struct Outgoing<S> {
    frames: S,
    /// Data that follow what has been sent.
    data: Option<Bytes>,
    is_reply: bool,
}

impl<S, F> Outgoing<S>
where
    S: Stream<Item = Result<F, Status>> + Send + Unpin + 'static,
    F: Frame,
{
    pub(crate) fn request(frames: S) -> Body {
        Body::new(Self { frames, data: None, is_reply: false })
    }

    pub(crate) fn reply(frames: S) -> Body {
        Body::new(Self { frames, data: None, is_reply: true })
    }

    fn end(&mut self, status: Status) -> Option<Result<http_body::Frame<Bytes>, Status>> {
        if !std::mem::take(&mut self.is_reply) {
            return (status.code() != Code::Ok).then_some(Err(status));
        }
        let mut trailers = HeaderMap::new();
        Some(status.add_header(&mut trailers).map(|()| http_body::Frame::trailers(trailers)))
    }
}

impl<S, F> http_body::Body for Outgoing<S>
where
    S: Stream<Item = Result<F, Status>> + Send + Unpin + 'static,
    F: Frame,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        if let Some(data) = this.data.take() {
            return Poll::Ready(Some(Ok(http_body::Frame::data(data))));
        }
        let frame = match ready!(Pin::new(&mut this.frames).poll_next(context)) {
            Some(Ok(frame)) => frame,
            Some(Err(status)) => return Poll::Ready(this.end(status)),
            None => return Poll::Ready(this.end(Status::ok(""))),
        };
        Poll::Ready(Some(encode(frame).map(|(start, data)| {
            this.data = data;
            http_body::Frame::data(start)
        })))
    }
}

/// Returns a message: its start, and its data unless the start contains them.
fn encode(frame: impl Frame) -> Result<(Bytes, Option<Bytes>), Status> {
    let (head, data) = frame.into_parts();
    let is_short = data.len() <= SHORT_DATA;
    let head_len = head.as_ref().map_or(0, Message::encoded_len);
    let mut start = BytesMut::with_capacity(32 + head_len + if is_short { data.len() } else { 0 });
    start.put_bytes(0, PREFIX);
    if let Some(head) = head {
        start.put_u8(HEAD);
        let fits = head.encode_length_delimited(&mut start);
        fits.map_err(|error| Status::internal(error.to_string()))?;
    }
    if !data.is_empty() {
        start.put_u8(DATA);
        let fits = prost::encode_length_delimiter(data.len(), &mut start);
        fits.map_err(|error| Status::internal(error.to_string()))?;
    }
    let len = u32::try_from(start.len() - PREFIX + data.len());
    let len = len.map_err(|_| Status::internal("a message of more than 4 GiB"))?;
    if let Some(place) = start.get_mut(1..PREFIX) {
        place.copy_from_slice(&len.to_be_bytes());
    }
    if is_short {
        start.put_slice(&data);
        return Ok((start.freeze(), None));
    }
    Ok((start.freeze(), Some(data)))
}

/// The frames that a body receives. Long data arrive as several frames, in pieces as the connection
/// delivers them.
pub(crate) struct Incoming<F> {
    body: Body,
    /// Whether these are replies, which end with a status.
    are_replies: bool,
    /// What has been received but not read.
    unread: Bytes,
    at: Position,
    /// Counts the memory of requests.
    account: Option<Arc<Account>>,
    /// What the last request counts.
    charge: Option<Charge>,
    frames: PhantomData<fn() -> F>,
}

/// The position of a reader in the messages.
#[derive(Clone, Copy)]
enum Position {
    Between,
    /// Before a field, with the number of bytes until the end of the message, and whether a frame
    /// of this message has been returned.
    Field(usize, bool),
    /// In the data, with the numbers of bytes until their end and after it.
    Data(usize, usize),
}

impl Incoming<proto::RequestFrame> {
    /// Returns the requests of a caller, which count towards its account until the next one.
    pub(crate) fn requests(body: Body, account: Option<Arc<Account>>) -> Self {
        Self::new(body, false, account)
    }
}

impl Incoming<proto::ReplyFrame> {
    pub(crate) fn replies(body: Body) -> Self {
        Self::new(body, true, None)
    }
}

impl<F: Frame> Incoming<F> {
    fn new(body: Body, are_replies: bool, account: Option<Arc<Account>>) -> Self {
        let (unread, at) = (Bytes::new(), Position::Between);
        Self { body, are_replies, unread, at, account, charge: None, frames: PhantomData }
    }

    /// Receives the next frame, or `None` at the end. After an error or an unfinished call, the
    /// position is not known.
    pub(crate) async fn message(&mut self) -> Result<Option<F>, Status> {
        let mut head = None;
        loop {
            self.at = match self.at {
                Position::Between => {
                    if !self.fill().await? {
                        return Ok(None);
                    }
                    let prefix: [u8; PREFIX] = self.array().await?;
                    let [0, len @ ..] = prefix else {
                        let text = "a compressed message";
                        return Err(if self.are_replies {
                            Status::internal(text)
                        } else {
                            Status::unimplemented(text)
                        });
                    };
                    Position::Field(usize_of(u64::from(u32::from_be_bytes(len))), false)
                }
                Position::Field(0, true) => Position::Between,
                Position::Field(0, false) => {
                    self.at = Position::Between;
                    return Ok(Some(F::new(head, Bytes::new())));
                }
                Position::Field(mut left, is_returned) => match self.varint(&mut left).await? {
                    key if key == u64::from(HEAD) && !is_returned => {
                        let len = self.len(&mut left).await?;
                        head = Some(self.head(len).await?);
                        Position::Field(left, false)
                    }
                    key if key == u64::from(HEAD) => return Err(damaged()),
                    key if key == u64::from(DATA) => match self.len(&mut left).await? {
                        0 => Position::Field(left, is_returned),
                        len => Position::Data(len, left),
                    },
                    key => {
                        self.skip_field(key, &mut left).await?;
                        Position::Field(left, is_returned)
                    }
                },
                Position::Data(len, left) => {
                    let data = self.some(len).await?;
                    self.at = match len - data.len() {
                        0 => Position::Field(left, true),
                        rest => Position::Data(rest, left),
                    };
                    return Ok(Some(F::new(head, data)));
                }
            };
        }
    }

    async fn head(&mut self, len: usize) -> Result<F::Head, Status> {
        if len > MOST_HEAD_BYTES {
            let text = format!("a message of {len} bytes: expected at most {MOST_HEAD_BYTES}");
            return Err(Status::out_of_range(text));
        }
        self.charge(len)?;
        let mut bytes = if len == 0 { Bytes::new() } else { self.some(len).await? };
        if bytes.len() < len {
            // Grows with what arrives, because a damaged length may be large.
            let mut all = BytesMut::from(bytes);
            while all.len() < len {
                let more = self.some(len - all.len()).await?;
                all.extend_from_slice(&more);
            }
            bytes = all.freeze();
        }
        if self.account.is_some() {
            self.charge(decoded_bytes(&bytes))?;
        }
        F::Head::decode(bytes).map_err(|error| Status::internal(error.to_string()))
    }

    /// Returns what the last request counts, which the caller must keep as long as the request.
    pub(crate) fn take_charge(&mut self) -> Option<Charge> {
        self.charge.take()
    }

    /// Replaces what the last request counts.
    fn charge(&mut self, num_bytes: usize) -> Result<(), Status> {
        self.charge = None;
        self.charge = self.account.as_ref().map(|to| to.charge(num_bytes)).transpose()?;
        Ok(())
    }

    /// Skips a field that is not known.
    async fn skip_field(&mut self, key: u64, left: &mut usize) -> Result<(), Status> {
        let mut len = match key & 7 {
            0 => return self.varint(left).await.map(drop),
            1 => take(left, 8)?,
            2 => self.len(left).await?,
            5 => take(left, 4)?,
            _ => return Err(damaged()),
        };
        while len > 0 {
            len -= self.some(len).await?.len();
        }
        Ok(())
    }

    /// Reads the length of a field, and subtracts both from the bytes that are left.
    async fn len(&mut self, left: &mut usize) -> Result<usize, Status> {
        let len = usize_of(self.varint(left).await?);
        take(left, len)
    }

    async fn varint(&mut self, left: &mut usize) -> Result<u64, Status> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            take(left, 1)?;
            let [byte] = self.array().await?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(damaged())
    }

    async fn array<const N: usize>(&mut self) -> Result<[u8; N], Status> {
        let mut array = [0; N];
        for byte in &mut array {
            if !self.fill().await? {
                return Err(ended_early());
            }
            *byte = self.unread.get_u8();
        }
        Ok(array)
    }

    /// Reads at least one and at most `most` bytes.
    async fn some(&mut self, most: usize) -> Result<Bytes, Status> {
        if !self.fill().await? {
            return Err(ended_early());
        }
        Ok(self.unread.split_to(most.min(self.unread.len())))
    }

    /// Receives data if all have been read. Returns whether there are any.
    async fn fill(&mut self) -> Result<bool, Status> {
        while self.unread.is_empty() {
            let received = poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await;
            let Some(frame) = received.transpose()? else { return Ok(false) };
            match frame.into_data() {
                Ok(data) => self.unread = data,
                Err(frame) if self.are_replies => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    match Status::from_header_map(&trailers) {
                        Some(status) if status.code() != Code::Ok => return Err(status),
                        _ => return Ok(false),
                    }
                }
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// Subtracts a length from the bytes that are left of a message, and returns it.
fn take(left: &mut usize, len: usize) -> Result<usize, Status> {
    *left = left.checked_sub(len).ok_or_else(damaged)?;
    Ok(len)
}

fn usize_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn damaged() -> Status {
    Status::internal("a damaged message")
}

fn ended_early() -> Status {
    Status::unavailable("the stream ended early")
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        reason = "a test may abort without memory"
    )]
    #![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::proto::request::Verb;

    /// A body that delivers these pieces.
    struct Pieces(VecDeque<Bytes>);

    impl http_body::Body for Pieces {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _context: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
            Poll::Ready(self.0.pop_front().map(|piece| Ok(http_body::Frame::data(piece))))
        }
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    /// Returns the requests and the data that arrive if the bytes are delivered in pieces.
    fn received(bytes: &Bytes, piece: usize) -> Result<Vec<(proto::Request, Vec<u8>)>, Status> {
        let mut pieces = VecDeque::new();
        let mut rest = bytes.clone();
        while !rest.is_empty() {
            pieces.push_back(rest.split_to(piece.min(rest.len())));
        }
        let mut incoming = Incoming::requests(Body::new(Pieces(pieces)), None);
        let mut found: Vec<(proto::Request, Vec<u8>)> = Vec::new();
        runtime().block_on(async {
            while let Some(frame) = incoming.message().await? {
                found.extend(frame.request.map(|request| (request, Vec::new())));
                if let Some((_, data)) = found.last_mut() {
                    data.extend(frame.data);
                }
            }
            Ok(found)
        })
    }

    /// Returns the bytes of a body.
    fn sent(frames: Vec<proto::RequestFrame>) -> Bytes {
        let frames = tokio_stream::iter(frames.into_iter().map(Ok));
        let mut body = Outgoing::request(frames);
        let mut sent = BytesMut::new();
        runtime().block_on(async {
            while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
            {
                sent.extend_from_slice(&frame.unwrap().into_data().unwrap());
            }
        });
        sent.freeze()
    }

    /// Returns the messages as `prost` writes them, each after its prefix.
    fn by_prost(messages: &[impl Message]) -> Bytes {
        let mut all = BytesMut::new();
        for message in messages {
            all.put_u8(0);
            all.put_u32(u32::try_from(message.encoded_len()).unwrap());
            message.encode(&mut all).unwrap();
        }
        all.freeze()
    }

    /// Calls, each with its data in several frames.
    fn calls() -> impl Strategy<Value = Vec<(proto::Request, Vec<Vec<u8>>)>> {
        let request = (".{0,20}", any::<u64>(), prop::collection::vec(".{0,8}", 0..4));
        let request = request.prop_map(|(member, incarnation, keys)| {
            let pull = Verb::Pull(proto::Pull { keys, ..proto::Pull::default() });
            proto::Request { member, incarnation, verb: Some(pull), ..proto::Request::default() }
        });
        let len = prop_oneof![0..40_usize, SHORT_DATA - 2..SHORT_DATA + 3];
        let data = (len, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]);
        prop::collection::vec((request, prop::collection::vec(data, 0..4)), 0..4)
    }

    fn frames_of(calls: &[(proto::Request, Vec<Vec<u8>>)]) -> Vec<proto::RequestFrame> {
        let frames = calls.iter().flat_map(|(request, data)| {
            let mut data = data.iter().map(|data| Bytes::copy_from_slice(data));
            let first = data.next().unwrap_or_default();
            let first = proto::RequestFrame { request: Some(request.clone()), data: first };
            let rest = data.map(|data| proto::RequestFrame { request: None, data });
            std::iter::once(first).chain(rest)
        });
        frames.collect()
    }

    proptest! {
        #[test]
        fn frames_are_those_of_prost(calls in calls(), piece in 1..70_usize) {
            let frames = frames_of(&calls);
            let bytes = by_prost(&frames);
            prop_assert_eq!(&sent(frames), &bytes);
            let expected: Vec<_> =
                calls.into_iter().map(|(request, data)| (request, data.concat())).collect();
            prop_assert_eq!(received(&bytes, piece).unwrap(), expected);
        }

        #[test]
        fn damaged_frames_do_no_harm(
            calls in calls(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
            cut in any::<prop::sample::Index>(), piece in 1..70_usize,
        ) {
            let mut bytes = Vec::from(by_prost(&frames_of(&calls)));
            prop_assume!(!bytes.is_empty());
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes.truncate(cut.index(bytes.len()) + 1);
            // Either is right, as long as it neither panics nor waits.
            let _ = received(&Bytes::from(bytes), piece);
        }
    }

    #[test]
    fn fields_of_later_versions_are_skipped() {
        #[derive(Clone, PartialEq, Message)]
        struct Later {
            #[prost(uint64, tag = "3")]
            number: u64,
            #[prost(fixed32, tag = "4")]
            short: u32,
            #[prost(fixed64, tag = "5")]
            long: u64,
            #[prost(string, tag = "6")]
            text: String,
        }
        let request = proto::Request { member: "one".to_owned(), ..proto::Request::default() };
        let known =
            proto::RequestFrame { request: Some(request.clone()), data: Bytes::from("data") };
        let later = Later { number: 1 << 40, short: 5, long: 6, text: "later".to_owned() };
        let mut both = Vec::new();
        later.encode(&mut both).unwrap();
        known.encode(&mut both).unwrap();
        later.encode(&mut both).unwrap();
        let mut bytes = vec![0];
        bytes.extend(u32::try_from(both.len()).unwrap().to_be_bytes());
        bytes.extend(both);
        let bytes = Bytes::from(bytes);
        for piece in 1..bytes.len() {
            let found = received(&bytes, piece).unwrap();
            assert_eq!(found, [(request.clone(), b"data".to_vec())]);
        }
        // The fields after the data are no frame.
        let mut incoming = Incoming::requests(Body::new(Pieces(VecDeque::from([bytes]))), None);
        runtime().block_on(async {
            assert_eq!(incoming.message().await.unwrap(), Some(known));
            assert_eq!(incoming.message().await.unwrap(), None);
        });
    }

    #[test]
    fn empty_data_end_a_message() {
        let frame = proto::RequestFrame {
            request: Some(proto::Request { incarnation: 5, ..proto::Request::default() }),
            data: Bytes::new(),
        };
        let mut bytes = Vec::from(by_prost(std::slice::from_ref(&frame)));
        bytes[PREFIX - 1] += 2;
        bytes.extend([DATA, 0]);
        let mut incoming =
            Incoming::requests(Body::new(Pieces(VecDeque::from([bytes.into()]))), None);
        runtime().block_on(async {
            assert_eq!(incoming.message().await.unwrap(), Some(frame));
            assert_eq!(incoming.message().await.unwrap(), None);
        });
    }

    #[test]
    fn a_cut_message_is_an_error() {
        let frame = proto::RequestFrame {
            request: Some(proto::Request::default()),
            data: Bytes::from("data"),
        };
        let bytes = by_prost(&[frame]);
        for len in 1..bytes.len() {
            let error = received(&bytes.slice(..len), 3);
            // A cut between frames cannot be seen. Here, there is only one.
            assert!(error.is_err(), "{len} bytes: {error:?}");
        }
    }
}
