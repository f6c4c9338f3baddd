//! The sums of a round, step by step. Servers and replays share this code, so their sums have the
//! same bits.

use kvstore_core::{
    Backends, BinaryOp, Device, Error, Result, Scalar, Tensor, TensorSpec, Value, fallible,
};

use crate::proto;
use crate::wire::{IncomingValues, Receiver, parse_spec, to_compression};

/// The most bytes that the server holds of the values of a round, besides their sum.
const WINDOW: usize = 64 << 20;

/// The least and the most bytes of a range of dense values.
const SHORTEST: usize = 64 << 10;
const LONGEST: usize = 1 << 20;

/// How many steps the server asks each member for in advance.
pub(super) const AHEAD: usize = 2;

/// What is added up at the same time.
#[derive(Debug)]
pub(crate) enum Step {
    /// Parts of consecutive keys whose values are dense.
    Parts(Vec<Part>),
    /// The complete values of a key: rows, or codes of a compression.
    Key(usize),
}

/// A part of a dense value.
#[derive(Debug)]
pub(crate) struct Part {
    /// The index of the key.
    pub(super) key: usize,
    /// The index of its first element.
    pub(super) first: usize,
    pub(super) spec: TensorSpec,
}

/// Divides the values of a round into steps. Together, the steps have the data of a push in their
/// order.
pub(crate) fn steps(pushes: &[&proto::Push]) -> Result<Vec<Step>> {
    let Some(first) = pushes.first() else { return Ok(Vec::new()) };
    let most = (WINDOW / AHEAD / pushes.len()).clamp(SHORTEST, LONGEST);
    let (mut steps, mut parts, mut num_bytes) = (Vec::new(), Vec::new(), 0);
    for (key, head) in first.values.iter().enumerate() {
        let is_complete = |push: &&proto::Push| {
            push.compression.as_ref().is_some_and(|found| !found.name.is_empty())
                || push.values.get(key).is_some_and(|value| value.num_rows.is_some())
        };
        if pushes.iter().any(is_complete) {
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

/// Returns what is received for a step of a push.
pub(crate) fn incoming(push: &proto::Push, step: &Step) -> Result<IncomingValues> {
    match step {
        Step::Key(key) => {
            let compression = push.compression.as_ref().map_or(Ok(None), to_compression)?;
            let head = push.values.get(*key);
            IncomingValues::new(head.map_or(&[], std::slice::from_ref), compression.as_ref())
        }
        Step::Parts(parts) => IncomingValues::of_specs(parts.iter().map(|part| part.spec.clone())),
    }
}

/// Returns the values in what was received for a step of a push, without compression.
pub(crate) fn values(
    backends: &Backends,
    push: &proto::Push,
    step: &Step,
    receiver: Receiver,
) -> Result<Vec<Value>> {
    let mut values = receiver.finish()?;
    if let (Step::Key(key), Some(compression)) = (step, &push.compression)
        && let Some(compression) = to_compression(compression)?
        && let ([value @ Value::Dense(_)], Some(head)) = (&mut *values, push.values.get(*key))
    {
        let spec = parse_spec(head.spec.as_ref())?;
        *value = compression.decode(backends, &value.to_dense()?, spec)?.into();
    }
    Ok(values)
}

/// Adds a step to the sums. `heads` describe the sums, `values` has a list of values for each
/// member.
pub(crate) fn add(
    backends: &Backends,
    heads: &[proto::Value],
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
            let spec = parse_spec(heads.get(part.key).and_then(|head| head.spec.as_ref()))?;
            let sum = Tensor::allocate(backends, Device::cpu(0), spec)?;
            fallible::push(sums, Value::Dense(sum))?;
        }
        if let Some(Value::Dense(sum)) = sums.get_mut(part.key) {
            sum.sum_into(part.first, &addends)?;
        }
    }
    Ok(())
}

/// Returns the complete sums. With weights, they are divided by the sum of weights, which is a left
/// fold in the order of the values.
pub(crate) fn finish(pushes: &[&proto::Push], sums: Vec<Value>) -> Result<Vec<Value>> {
    let weights = pushes.iter().map(|push| push.round.as_ref().and_then(|round| round.weight));
    let total = weights.reduce(|total, weight| Some(total? + weight?)).flatten();
    let divide = |sum| match (sum, total) {
        (sum, None) => Ok(sum),
        (Value::Dense(mut sum), Some(total)) => {
            sum.binary_scalar_assign(BinaryOp::Div, Scalar::from(total))?;
            Ok(Value::Dense(sum))
        }
        (rows, Some(total)) => rows.binary_scalar(BinaryOp::Div, Scalar::from(total), false),
    };
    fallible::try_collect(sums.into_iter().map(divide))
}
