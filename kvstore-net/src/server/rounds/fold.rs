//! Adds up the values of a round, in the order of its members.

use std::collections::VecDeque;
use std::sync::Arc;

use kvstore_core::{
    Backends, BinaryOp, Device, Error, Result, Scalar, Tensor, TensorSpec, Value, fallible,
};
use tokio::sync::oneshot;

use crate::proto;
use crate::runtime::in_place;
use crate::server::group::{Entrant, Fate};
use crate::server::metrics::Metrics;
use crate::server::transfer::{Order, Source, Sources};
use crate::wire::{IncomingValues, Receiver, parse_spec, to_compression};

/// The most bytes that the server holds of the values of a round, besides their sum.
const WINDOW: usize = 64 << 20;

/// The least and the most bytes of a range of dense values.
const SHORTEST: usize = 64 << 10;
const LONGEST: usize = 1 << 20;

/// How many ranges the server asks each member for in advance.
const AHEAD: usize = 2;

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

/// What is added up at the same time.
enum Step {
    /// Parts of consecutive keys whose values are dense.
    Parts(Vec<Part>),
    /// The complete values of a key: rows, or codes of a compression.
    Key(usize),
}

struct Part {
    /// The index of the key.
    key: usize,
    first: usize,
    spec: TensorSpec,
}

/// Returns the sums of the values of each key. With weights, they are divided by the sum of
/// weights, which is a left fold in the same order.
pub(super) async fn fold(
    server: &ServerParts<'_>,
    members: &[Arc<Entrant>],
) -> Result<Vec<Value>, Failed> {
    let steps = steps(members)?;
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
        for reader in &mut readers {
            values.push(reader.next().await?);
        }
        in_place(|| add(server.backends, members, &mut sums, step, values))?;
    }
    let weights = members.iter().map(|member| weight_of(member));
    let total = weights.reduce(|total, weight| Some(total? + weight?)).flatten();
    let divide = |sum| match (sum, total) {
        (sum, None) => Ok(sum),
        (Value::Dense(mut sum), Some(total)) => {
            sum.binary_scalar_assign(BinaryOp::Div, Scalar::from(total))?;
            Ok(Value::Dense(sum))
        }
        (rows, Some(total)) => rows.binary_scalar(BinaryOp::Div, Scalar::from(total), false),
    };
    let sums = in_place(|| fallible::try_collect(sums.into_iter().map(divide)))?;
    Ok(sums)
}

fn weight_of(member: &Entrant) -> Option<f64> {
    member.push.round.as_ref().and_then(|round| round.weight)
}

/// Divides the values of a round into steps.
fn steps(members: &[Arc<Entrant>]) -> Result<Vec<Step>> {
    let Some(first) = members.first() else { return Ok(Vec::new()) };
    let most = (WINDOW / AHEAD / members.len()).clamp(SHORTEST, LONGEST);
    let (mut steps, mut parts, mut num_bytes) = (Vec::new(), Vec::new(), 0);
    for (key, head) in first.push.values.iter().enumerate() {
        let is_complete = |member: &Arc<Entrant>| {
            member.push.compression.as_ref().is_some_and(|found| !found.name.is_empty())
                || member.push.values.get(key).is_some_and(|value| value.num_rows.is_some())
        };
        if members.iter().any(is_complete) {
            if !parts.is_empty() {
                fallible::push(&mut steps, Step::Parts(std::mem::take(&mut parts)))?;
                num_bytes = 0;
            }
            fallible::push(&mut steps, Step::Key(key))?;
            continue;
        }
        let spec = parse_spec(head.spec.as_ref())?;
        let (num_elements, size) = (spec.shape().num_elements(), spec.dtype().size());
        let mut first = 0;
        loop {
            let len = (num_elements - first).min((most - num_bytes) / size);
            // Nothing fits into a step that the key before has filled.
            if len > 0 {
                let part = Part { key, first, spec: TensorSpec::new([len], spec.dtype()) };
                fallible::push(&mut parts, part)?;
            }
            (first, num_bytes) = (first + len, num_bytes + len * size);
            if first == num_elements {
                break;
            }
            fallible::push(&mut steps, Step::Parts(std::mem::take(&mut parts)))?;
            num_bytes = 0;
        }
    }
    if !parts.is_empty() {
        fallible::push(&mut steps, Step::Parts(parts))?;
    }
    Ok(steps)
}

/// Adds a step to the sums. `values` has a list of values for each member.
fn add(
    backends: &Backends,
    members: &[Arc<Entrant>],
    sums: &mut Vec<Value>,
    step: &Step,
    values: Vec<Vec<Value>>,
) -> Result<()> {
    let parts = match step {
        Step::Key(_) => {
            let values = fallible::gather(values.into_iter().flatten())?;
            return fallible::push(sums, Value::sum(&values)?);
        }
        Step::Parts(parts) => parts,
    };
    let mut lists = fallible::collect(values.into_iter().map(Vec::into_iter))?;
    for part in parts {
        let mut addends = fallible::with_capacity(lists.len())?;
        for list in &mut lists {
            let value =
                list.next().ok_or_else(|| Error::Internal("a part is missing".to_owned()))?;
            addends.push(value.to_dense()?);
        }
        if sums.len() == part.key {
            let head = members.first().and_then(|member| member.push.values.get(part.key));
            let spec = parse_spec(head.and_then(|head| head.spec.as_ref()))?;
            let sum = Tensor::allocate(backends, Device::cpu(0), spec)?;
            fallible::push(sums, Value::Dense(sum))?;
        }
        if let Some(Value::Dense(sum)) = sums.get_mut(part.key) {
            sum.sum_into(part.first, &addends)?;
        }
    }
    Ok(())
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
            start += incoming(member, &Step::Key(key))?.num_bytes()? as u64;
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
        Receiver::new(self.server.backends, incoming(self.member, step)?)
    }

    /// Returns the values of the step that was ordered first. If the stream is lost, waits for
    /// another one and orders again.
    async fn next(&mut self) -> Result<Vec<Value>, Failed> {
        loop {
            let first = self.pending.front_mut();
            let missing = || Error::Internal("a step that was not ordered".to_owned());
            let Pending { step, received } = first.ok_or_else(missing)?;
            if let Some(received) = received
                && let Ok(receiver) = received.await
            {
                let step = *step;
                self.pending.pop_front();
                let failed = |error| Failed::Member(self.member.caller.name.clone(), Err(error));
                return self.values(step, receiver).map_err(failed);
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
    fn values(&self, step: &Step, receiver: Receiver) -> Result<Vec<Value>> {
        let mut values = receiver.finish()?;
        if let (Step::Key(key), Some(compression)) = (step, &self.member.push.compression)
            && let Some(compression) = to_compression(compression)?
            && let ([value @ Value::Dense(_)], Some(head)) =
                (&mut *values, self.member.push.values.get(*key))
        {
            let backends = self.server.backends;
            let spec = parse_spec(head.spec.as_ref())?;
            let codes = value.to_dense()?;
            *value = in_place(|| compression.decode(backends, &codes, spec))?.into();
        }
        Ok(values)
    }
}

/// Returns what is received for a step of a push.
fn incoming(member: &Entrant, step: &Step) -> Result<IncomingValues> {
    match step {
        Step::Key(key) => {
            let compression = member.push.compression.as_ref().map_or(Ok(None), to_compression)?;
            let head: Option<&proto::Value> = member.push.values.get(*key);
            IncomingValues::new(head.map_or(&[], std::slice::from_ref), compression.as_ref())
        }
        Step::Parts(parts) => IncomingValues::of_specs(parts.iter().map(|part| part.spec.clone())),
    }
}
