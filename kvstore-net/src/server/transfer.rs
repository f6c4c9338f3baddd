//! The data of pushes to rounds. The server asks the members for ranges of their data, so it holds
//! only what it adds up next. If a member loses its connection, it repeats its call, and the server
//! asks again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot, watch};
use tonic::Status;

use super::group::Caller;
use crate::proto;
use crate::wire::{Incoming, Receiver};

/// A range of the data of a push, and what receives it.
#[derive(Debug)]
pub(crate) struct Order {
    pub(super) first: u64,
    pub(super) receiver: Receiver,
    pub(super) done: oneshot::Sender<Receiver>,
}

/// Sends what the server asks for during a call.
pub(super) type Interim = mpsc::UnboundedSender<proto::Reply>;

/// The orders for the stream of a call, or `None` while the call has no stream.
type Orders = Option<mpsc::UnboundedSender<Order>>;

/// The streams of the pushes to rounds.
#[derive(Debug, Default)]
pub(crate) struct Sources(Mutex<HashMap<Caller, watch::Sender<Orders>>>);

/// The stream of a call, for as long as it lasts.
pub(crate) struct Attached {
    sources: Arc<Sources>,
    caller: Caller,
    orders: mpsc::UnboundedSender<Order>,
}

/// Where the data of a push come from.
pub(super) struct Source {
    sources: Arc<Sources>,
    caller: Caller,
    /// `None` only while it is dropped.
    orders: Option<watch::Receiver<Orders>>,
}

impl Sources {
    fn state(&self) -> MutexGuard<'_, HashMap<Caller, watch::Sender<Orders>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the stream of a call. It replaces an earlier one.
    pub(crate) fn attach(
        self: &Arc<Self>,
        caller: &Caller,
    ) -> (Attached, mpsc::UnboundedReceiver<Order>) {
        let (orders, receiver) = mpsc::unbounded_channel();
        let mut state = self.state();
        let source = state.entry(caller.clone()).or_insert_with(|| watch::channel(None).0);
        source.send_replace(Some(orders.clone()));
        let attached = Attached { sources: Arc::clone(self), caller: caller.clone(), orders };
        (attached, receiver)
    }

    /// Returns where the data of a push come from.
    pub(super) fn of(self: &Arc<Self>, caller: &Caller) -> Source {
        let mut state = self.state();
        let source = state.entry(caller.clone()).or_insert_with(|| watch::channel(None).0);
        let orders = Some(source.subscribe());
        Source { sources: Arc::clone(self), caller: caller.clone(), orders }
    }

    /// Forgets a push that has no stream and that no round reads.
    fn tidy(&self, caller: &Caller) {
        let mut state = self.state();
        let is_unused =
            |orders: &watch::Sender<Orders>| orders.is_closed() && orders.borrow().is_none();
        if state.get(caller).is_some_and(is_unused) {
            state.remove(caller);
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(source) = self.sources.state().get(&self.caller) {
            source.send_if_modified(|orders| {
                let is_own = orders.as_ref().is_some_and(|other| other.same_channel(&self.orders));
                if is_own {
                    *orders = None;
                }
                is_own
            });
        }
        self.sources.tidy(&self.caller);
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.orders = None;
        self.sources.tidy(&self.caller);
    }
}

impl Source {
    /// Returns the orders of the present stream. Waits until there is one.
    pub(super) async fn orders(&mut self) -> mpsc::UnboundedSender<Order> {
        if let Some(orders) = &mut self.orders
            && let Ok(found) = orders.wait_for(Option::is_some).await
            && let Some(orders) = found.clone()
        {
            return orders;
        }
        // The registry keeps the sender as long as this exists.
        std::future::pending().await
    }

    /// Returns the orders of the present stream, if there is one.
    pub(super) fn present(&self) -> Orders {
        self.orders.as_ref().and_then(|orders| orders.borrow().clone())
    }
}

/// Asks a member for the ordered ranges and receives them, until the call is made. Then receives
/// what the member is still sending.
pub(crate) async fn supply<T>(
    made: impl Future<Output = T>,
    mut orders: mpsc::UnboundedReceiver<Order>,
    frames: &mut Incoming<proto::RequestFrame>,
    replies: &Interim,
) -> Result<T, Status> {
    let (asked, mut expected) = mpsc::unbounded_channel();
    let mut ask = Box::pin(async move {
        while let Some(order) = orders.recv().await {
            let (first, num_bytes) = (order.first, order.receiver.num_missing() as u64);
            let wanted = Some(proto::Wanted { first, num_bytes });
            if replies.send(proto::Reply { wanted, ..proto::Reply::default() }).is_err()
                || asked.send(order).is_err()
            {
                break;
            }
        }
        std::future::pending::<()>().await;
    });
    let receive = async {
        while let Some(order) = expected.recv().await {
            receive_range(order, frames).await?;
        }
        Ok::<(), Status>(())
    };
    tokio::pin!(made, receive);
    let made = tokio::select! {
        biased;
        made = &mut made => made,
        ended = &mut receive => {
            ended?;
            return Err(Status::internal("the ranges of a push have ended"));
        }
        () = &mut ask => return Err(Status::internal("the orders of a push have ended")),
    };
    drop(ask);
    receive.await?;
    Ok(made)
}

/// Receives a range.
async fn receive_range(
    mut order: Order,
    frames: &mut Incoming<proto::RequestFrame>,
) -> Result<(), Status> {
    while order.receiver.is_waiting() {
        let frame = frames.message().await?;
        let frame = frame.ok_or_else(|| Status::unavailable("the data of a push ended early"))?;
        if frame.request.is_some() {
            return Err(Status::invalid_argument("a request within the data of another one"));
        }
        let taken = order.receiver.take(&frame.data);
        taken.map_err(|error| Status::invalid_argument(error.to_string()))?;
    }
    // The round may not need it any more.
    let _ = order.done.send(order.receiver);
    Ok(())
}
