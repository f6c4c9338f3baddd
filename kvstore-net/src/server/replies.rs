//! [`Replies`]: the replies to the calls of a stream, one after the other.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Status;

use super::deadline::Deadline;
use super::service::Service;
use super::transfer::Interim;
use super::verbs::Answer;
use crate::accounts::Charge;
use crate::proto;
use crate::wire::{Elements, Incoming};

type Requests = Incoming<proto::RequestFrame>;

/// An answer with the stream of the call. `None` if there are no more calls.
type Answered = Option<(Answer, Requests)>;

/// The replies to the calls of a stream. Ends when the member closes the stream, or with a status.
pub(super) struct Replies {
    service: Service,
    state: State,
    deadline: Deadline,
    interim: (Interim, mpsc::UnboundedReceiver<proto::Reply>),
    /// What the open stream counts.
    _charge: Option<Charge>,
}

#[expect(clippy::large_enum_variant, reason = "each call would allocate the large one")]
enum State {
    /// Receives and makes a call.
    Making(Pin<Box<dyn Future<Output = Result<Answered, Status>> + Send>>),
    Replying(Option<proto::Reply>, Elements, Option<Charge>, Requests),
    Ended,
}

impl Replies {
    pub(super) fn new(service: Service, requests: Requests, charge: Option<Charge>) -> Self {
        let interim = mpsc::unbounded_channel();
        let next = answer_next(service.clone(), requests, interim.0.clone());
        let deadline = Deadline::new(service.deadline);
        Self { service, state: State::Making(Box::pin(next)), deadline, interim, _charge: charge }
    }
}

impl Stream for Replies {
    type Item = Result<proto::ReplyFrame, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match mem::replace(&mut self.state, State::Ended) {
                State::Making(mut call) => {
                    let polled = call.as_mut().poll(context);
                    // Afterwards, because the call may block the thread beyond the deadline.
                    if let Err(status) = self.deadline.check(context) {
                        return Poll::Ready(Some(Err(status)));
                    }
                    match polled {
                        Poll::Pending => {
                            self.state = State::Making(call);
                            // The channel is never closed, because this has a sender.
                            let asked = ready!(self.interim.1.poll_recv(context));
                            let frame = proto::ReplyFrame { reply: asked, data: Bytes::new() };
                            return Poll::Ready(Some(Ok(frame)));
                        }
                        Poll::Ready(Ok(Some((answer, requests)))) => {
                            let Answer { reply, elements, charge } = answer;
                            self.state = State::Replying(Some(reply), elements, charge, requests);
                        }
                        Poll::Ready(Ok(None)) => return Poll::Ready(None),
                        Poll::Ready(Err(status)) => return Poll::Ready(Some(Err(status))),
                    }
                }
                State::Replying(reply, mut elements, charge, requests) => {
                    let data = elements.next_chunk();
                    if reply.is_some() || !data.is_empty() {
                        self.state = State::Replying(None, elements, charge, requests);
                        return Poll::Ready(Some(Ok(proto::ReplyFrame { reply, data })));
                    }
                    drop(charge);
                    let interim = self.interim.0.clone();
                    let next = answer_next(self.service.clone(), requests, interim);
                    self.state = State::Making(Box::pin(next));
                }
                State::Ended => return Poll::Ready(None),
            }
        }
    }
}

/// Receives and makes the next call of a stream. Returns `None` if the member makes no more calls
/// on it.
async fn answer_next(
    service: Service,
    mut requests: Requests,
    interim: Interim,
) -> Result<Answered, Status> {
    let first = tokio::select! {
        biased;
        first = requests.message() => first?,
        // A call that arrives later is not made. The status says so, and the member repeats it.
        () = service.end.cancelled() => return Err(Status::aborted("the server is ending")),
    };
    let Some(first) = first else { return Ok(None) };
    let missing = || Status::invalid_argument("the first frame has no request");
    let request = first.request.ok_or_else(missing)?;
    let answer = service.answer(request, &first.data, (&mut requests, &interim)).await?;
    Ok(Some((answer, requests)))
}
