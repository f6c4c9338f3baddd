//! Adds up the values of a round, in the order of its members.

use std::collections::VecDeque;
use std::sync::Arc;

use kvstore_core::{Backends, Error, Result, Value, fallible};
use tokio::sync::oneshot;

use super::sums::{self, AHEAD, Step};
use crate::journal::AttemptRecord;
use crate::proto;
use crate::runtime::in_place;
use crate::server::group::{Entrant, Fate};
use crate::server::metrics::Metrics;
use crate::server::transfer::{Order, Source, Sources};
use crate::wire::Receiver;

/// What adding up needs of the server.
pub(super) struct ServerParts<'a> {
    pub(super) backends: &'a Backends,
    pub(super) sources: &'a Arc<Sources>,
    pub(super) metrics: &'a Metrics,
}

/// Why a round has no sum.
#[derive(Debug)]
pub(super) enum Failed {
    /// The push of this member ends, for example because its data are wrong.
    Member(String, Result<Fate>),
    Round(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Round(error)
    }
}

/// Returns the sums of the values of each key. With weights, they are divided by the sum of
/// weights.
pub(super) async fn fold(
    server: &ServerParts<'_>,
    members: &[Arc<Entrant>],
    mut record: Option<&mut AttemptRecord<'_>>,
) -> Result<Vec<Value>, Failed> {
    let pushes = pushes_of(members)?;
    let heads = pushes.first().map_or(&[][..], |push| &push.values);
    let steps = sums::steps(&pushes)?;
    let mut readers = fallible::with_capacity(members.len())?;
    for member in members {
        let source = server.sources.of(&member.caller);
        readers.push(Reader::new(server, member, source)?);
    }
    let mut sums = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        for reader in &mut readers {
            while reader.pending.len() < AHEAD
                && let Some(step) = steps.get(index + reader.pending.len())
            {
                reader.order(step)?;
            }
        }
        // Each list has the values of one member.
        let mut values = fallible::with_capacity(readers.len())?;
        for (member, reader) in readers.iter_mut().enumerate() {
            let receiver = reader.next().await?;
            if let Some(record) = &mut record {
                in_place(|| record.write_part(member, &receiver.data()?))?;
            }
            values.push(reader.values(step, receiver)?);
        }
        in_place(|| sums::add(server.backends, heads, &mut sums, step, values))?;
    }
    Ok(in_place(|| sums::finish(&pushes, sums))?)
}

pub(super) fn pushes_of(members: &[Arc<Entrant>]) -> Result<Vec<&proto::Push>> {
    fallible::collect(members.iter().map(|member| &member.push))
}

/// Receives the values of a member, step by step.
struct Reader<'a> {
    server: &'a ServerParts<'a>,
    member: &'a Entrant,
    source: Source,
    /// Where the data of each key begin.
    starts: Vec<u64>,
    pending: VecDeque<Pending<'a>>,
}

struct Pending<'a> {
    step: &'a Step,
    /// `None` if the stream was lost or the data are empty.
    received: Option<oneshot::Receiver<Receiver>>,
}

impl<'a> Reader<'a> {
    fn new(server: &'a ServerParts<'a>, member: &'a Entrant, source: Source) -> Result<Self> {
        let (mut starts, mut start) = (fallible::with_capacity(member.push.values.len())?, 0);
        for key in 0..member.push.values.len() {
            starts.push(start);
            start += sums::incoming(&member.push, &Step::Key(key))?.num_bytes()? as u64;
        }
        Ok(Self { server, member, source, starts, pending: VecDeque::new() })
    }

    /// Asks for the values of a step.
    fn order(&mut self, step: &'a Step) -> Result<()> {
        let received = match self.source.present() {
            Some(orders) => self.send(step, &orders)?,
            None => None,
        };
        self.pending.push_back(Pending { step, received });
        Ok(())
    }

    fn send(
        &self,
        step: &Step,
        orders: &tokio::sync::mpsc::UnboundedSender<Order>,
    ) -> Result<Option<oneshot::Receiver<Receiver>>> {
        let (key, offset) = match step {
            Step::Key(key) => (*key, 0),
            Step::Parts(parts) => parts
                .first()
                .map_or((0, 0), |part| (part.key, part.first * part.spec.dtype().size())),
        };
        let start = self.starts.get(key).copied().unwrap_or_default();
        let receiver = self.receiver(step)?;
        let (done, filled) = oneshot::channel();
        if !receiver.is_waiting() {
            let _ = done.send(receiver);
            return Ok(Some(filled));
        }
        self.server.metrics.receive(receiver.num_missing());
        let order = Order { first: start + offset as u64, receiver, done };
        Ok(orders.send(order).is_ok().then_some(filled))
    }

    fn receiver(&self, step: &Step) -> Result<Receiver> {
        Receiver::new(self.server.backends, sums::incoming(&self.member.push, step)?)
    }

    /// Returns what was received for the step that was ordered first. If the stream is lost, waits
    /// for another one and orders again.
    async fn next(&mut self) -> Result<Receiver> {
        loop {
            let first = self.pending.front_mut();
            let missing = || Error::Internal("a step that was not ordered".to_owned());
            let Pending { received, .. } = first.ok_or_else(missing)?;
            if let Some(received) = received
                && let Ok(receiver) = received.await
            {
                self.pending.pop_front();
                return Ok(receiver);
            }
            // The stream is lost, with everything that was ordered from it.
            let orders = self.source.orders().await;
            for index in 0..self.pending.len() {
                let Some(step) = self.pending.get(index).map(|pending| pending.step) else {
                    continue;
                };
                let received = self.send(step, &orders)?;
                if let Some(pending) = self.pending.get_mut(index) {
                    pending.received = received;
                }
            }
        }
    }

    /// Returns the values in what was received, without compression.
    fn values(&self, step: &Step, receiver: Receiver) -> Result<Vec<Value>, Failed> {
        let (backends, push) = (self.server.backends, &self.member.push);
        let decode = || sums::values(backends, push, step, receiver);
        // Other steps take no time.
        let values = if push.compression.is_some() { in_place(decode) } else { decode() };
        values.map_err(|error| Failed::Member(self.member.caller.name.clone(), Err(error)))
    }
}
