//! [`Wire`]: sends the sums of a call between ranks. Each rank receives the sums of all ranks for
//! its parts.

use std::cell::RefCell;
use std::ops::Range;
use std::slice::from_mut;
use std::sync::Arc;
use std::time::Duration;

use kvstore_core::fallible;
use kvstore_core::storage::Storage;
use kvstore_core::{
    Backends, Compression, DType, Device, Error, Result, Tensor, TensorSpec, Value,
};

use super::partition::Partition;
use crate::transport::{Buffer, Collective, SharedSlices, Slices, Wait};

/// A part of at least this many bytes is sent by itself, without copies. Smaller parts are packed,
/// because a message costs more than copying them.
const OWN_MESSAGE: usize = 128 << 10;
/// Codes are split between words of this many elements.
const WORD: usize = 32;

/// The transport, deadline and memory of one call.
#[derive(Clone, Copy)]
pub(crate) struct Wire<'a> {
    pub(crate) backends: &'a Backends,
    pub(crate) collective: &'a dyn Collective,
    pub(crate) subject: &'a str,
    pub(crate) timeout: Duration,
    pub(crate) buffers: &'a RefCell<MessageBuffers>,
}

/// Memory for messages. It is kept between calls, because allocating it takes as long as filling
/// it.
#[derive(Debug, Default)]
pub(crate) struct MessageBuffers {
    messages: Vec<MessageBuffer>,
    gathered: Slices,
}

/// Memory for the keys of one message.
#[derive(Debug, Default)]
struct MessageBuffer {
    sent: Arc<Buffer>,
    /// Values received in the call read this memory until the call ends.
    received: Arc<Slices>,
}

/// A range of the received bytes, as external memory.
#[derive(Debug)]
struct ReceivedBytes {
    slices: Arc<Slices>,
    range: Range<usize>,
}

impl Storage for ReceivedBytes {
    fn num_bytes(&self) -> usize {
        self.range.len()
    }

    fn external_bytes(&self) -> Option<&[u8]> {
        self.slices.bytes().get(self.range.clone())
    }
}

/// A dense sum to send: its elements, or their codes.
pub(crate) struct OutgoingSum<'a> {
    pub(crate) partition: &'a Partition,
    pub(crate) content: Payload,
}

pub(crate) enum Payload {
    Value(Tensor),
    Codes(Tensor, Compression),
}

impl OutgoingSum<'_> {
    /// Returns the range of elements to send for a rank's part. Codes are sent in complete words.
    fn elements(&self, rank: usize) -> Range<usize> {
        let elements = self.partition.elements(rank);
        match self.content {
            Payload::Value(_) => elements,
            Payload::Codes(..) if elements.is_empty() => elements,
            Payload::Codes(..) => {
                let end = elements.end.next_multiple_of(WORD);
                elements.start / WORD * WORD..end.min(self.partition.spec().num_elements())
            }
        }
    }

    /// Returns the range of bytes to send for a rank's part.
    fn bytes(&self, rank: usize) -> Result<Range<usize>> {
        let elements = self.elements(rank);
        match &self.content {
            Payload::Value(_) => {
                let size = self.partition.spec().dtype().size();
                Ok(elements.start * size..elements.end * size)
            }
            Payload::Codes(_, compression) => {
                let code = compression.of(self.partition.spec().dtype())?.code;
                let start = code.num_bytes(elements.start);
                Ok(start..start + code.num_bytes(elements.len()))
            }
        }
    }

    fn content(&self) -> &Tensor {
        match &self.content {
            Payload::Value(tensor) | Payload::Codes(tensor, _) => tensor,
        }
    }

    /// Returns this rank's part of its own sum, without a copy if the sum is in host memory.
    fn keep(&self, backends: &Backends, own: usize) -> Result<Tensor> {
        match &self.content {
            Payload::Value(value) if value.host_bytes().is_ok() => {
                let part = self.partition.part(own).ok_or_else(lost)?;
                value.view(self.partition.elements(own).start, part.shape().clone())
            }
            content => {
                let (Payload::Value(tensor) | Payload::Codes(tensor, _)) = content;
                let bytes = tensor.seen_bytes()?;
                let bytes = bytes.get(self.bytes(own)?).ok_or_else(lost)?;
                let here = |spec| Tensor::from_bytes(backends, Device::cpu(0), spec, bytes);
                self.receive(backends, own, bytes.len(), here)
            }
        }
    }

    /// Returns a rank's part from a message of `num_bytes` bytes. `tensor` creates a tensor of the
    /// message. Codes are decoded.
    fn receive(
        &self,
        backends: &Backends,
        rank: usize,
        num_bytes: usize,
        tensor: impl FnOnce(TensorSpec) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let part = self.partition.part(rank).ok_or_else(lost)?;
        match &self.content {
            Payload::Value(_) => tensor(part),
            Payload::Codes(_, compression) => {
                let codes = tensor(TensorSpec::new([num_bytes], DType::U8))?;
                let words = self.elements(rank);
                let spec = TensorSpec::new([words.len()], part.dtype());
                let value = compression.decode(backends, &codes, spec)?;
                let first = self.partition.elements(rank).start - words.start;
                value.view(first, part.shape().clone())
            }
        }
    }
}

impl Wire<'_> {
    pub(crate) fn wait(&self) -> Wait<'_> {
        Wait::new(&self.subject, self.timeout)
    }

    /// Sends every rank its part of each sum. Returns the parts that this rank receives for each
    /// sum, in the order of the sending ranks. The list is empty if this rank has no part of the
    /// sum.
    pub(crate) fn scatter(&self, sums: &[OutgoingSum<'_>]) -> Result<Vec<Vec<Tensor>>> {
        let (own, size) = (self.collective.rank(), self.collective.size());
        let messages = messages(size, sums.iter().map(|sum| sum.content().num_bytes()))?;
        let buffers = &mut self.buffers.borrow_mut().messages;
        fallible::reserve(buffers, messages.len().saturating_sub(buffers.len()))?;
        while buffers.len() < messages.len() {
            buffers.push(MessageBuffer::default());
        }
        let mut sent = fallible::with_capacity(messages.len())?;
        let mut received = fallible::with_capacity(messages.len())?;
        for (message, buffer) in messages.iter().zip(buffers.iter_mut()) {
            sent.push(self.pack(sums, message, &mut buffer.sent)?);
            let lens = of(message, sums).map(|sum| sum.bytes(own).map(|bytes| bytes.len()));
            let len = lens.sum::<Result<usize>>()?;
            let counts = (0..size).map(|rank| if rank == own { 0 } else { len });
            // A failed call may still use the memory. Then allocate new memory.
            let kept = Arc::into_inner(std::mem::take(&mut buffer.received));
            let mut slices = kept.unwrap_or_default();
            slices.recount(&counts.collect::<Vec<_>>())?;
            received.push(slices);
        }
        self.collective.all_to_all(&sent, &mut received, &self.wait())?;
        let mut parts = fallible::filled(Vec::new(), sums.len())?;
        for ((message, received), buffer) in messages.iter().zip(received).zip(buffers) {
            buffer.received = Arc::new(received);
            let mut first = 0;
            for index in message {
                let (sum, parts) = sums.get(*index).zip(parts.get_mut(*index)).ok_or_else(lost)?;
                let len = sum.bytes(own)?.len();
                let from = |rank: usize| {
                    if rank == own {
                        return sum.keep(self.backends, own);
                    }
                    let start = buffer.received.range(rank).start + first;
                    let here =
                        |spec| self.received_tensor(&buffer.received, start..start + len, spec);
                    sum.receive(self.backends, own, len, here)
                };
                if sum.partition.part(own).is_some() {
                    *parts = fallible::try_collect((0..size).map(from))?;
                }
                first += len;
            }
        }
        Ok(parts)
    }

    /// Returns the bytes of a message for the other ranks. A single sum in host memory is sent
    /// without a copy, other sums are packed. This rank's own part is not included.
    fn pack(
        &self,
        sums: &[OutgoingSum<'_>],
        message: &[usize],
        packed: &mut Arc<Buffer>,
    ) -> Result<SharedSlices> {
        let (own, size) = (self.collective.rank(), self.collective.size());
        if let [index] = message
            && let Some(sum) = sums.get(*index)
            && let Ok(buffer) = Buffer::of_tensor(sum.content().clone())
        {
            let range = |rank| if rank == own { Ok(0..0) } else { sum.bytes(rank) };
            let ranges = (0..size).map(range).collect::<Result<_>>()?;
            return SharedSlices::new(Arc::new(buffer), ranges);
        }
        // A failed call may still use the packed bytes.
        if Arc::get_mut(packed).is_none() {
            *packed = Arc::default();
        }
        let buffer = Arc::get_mut(packed).ok_or_else(lost)?;
        let contents = message.iter().map(|index| sums.get(*index).ok_or_else(lost));
        let contents = contents.map(|sum| sum?.content().seen_bytes());
        let contents = fallible::try_collect(contents)?;
        let mut pieces = fallible::with_capacity(contents.len().saturating_mul(size - 1))?;
        let mut ranges = fallible::filled(0..0, size)?;
        let mut end = 0;
        for (rank, range) in ranges.iter_mut().enumerate().filter(|(rank, _)| *rank != own) {
            let start = end;
            for (sum, content) in of(message, sums).zip(&contents) {
                let piece = content.get(sum.bytes(rank)?).ok_or_else(lost)?;
                end += piece.len();
                pieces.push(piece);
            }
            *range = start..end;
        }
        buffer.resize(end)?;
        let mut rest = &mut **buffer;
        for piece in pieces {
            let to;
            (to, rest) = rest.split_at_mut(piece.len());
            to.copy_from_slice(piece);
        }
        SharedSlices::new(Arc::clone(packed), ranges)
    }

    /// Returns received bytes as a tensor, without a copy if they are aligned.
    fn received_tensor(
        &self,
        slices: &Arc<Slices>,
        range: Range<usize>,
        spec: TensorSpec,
    ) -> Result<Tensor> {
        let slices = Arc::clone(slices);
        let found = slices.bytes().get(range.clone()).ok_or_else(lost)?;
        if found.as_ptr().addr().is_multiple_of(spec.dtype().size()) {
            let storage = ReceivedBytes { slices, range };
            return Tensor::from_external(self.backends, spec, Arc::new(storage));
        }
        Tensor::from_bytes(self.backends, Device::cpu(0), spec, found)
    }

    /// Gathers the parts of all ranks. Returns the complete values. `parts` has the parts of this
    /// rank, or `None` if it has no part of the value.
    pub(crate) fn gather(
        &self,
        partitions: &[&Partition],
        parts: &[Option<Tensor>],
    ) -> Result<Vec<Tensor>> {
        let (own, size) = (self.collective.rank(), self.collective.size());
        let dense_bytes = |partition: &&Partition| {
            partition.spec().num_elements() * partition.spec().dtype().size()
        };
        let messages = messages(size, partitions.iter().map(dense_bytes))?;
        let buffers = &mut self.buffers.borrow_mut().gathered;
        let mut gathered = fallible::with_capacity(messages.len())?;
        for message in &messages {
            // A message with a single value is received into its tensor, to avoid a copy.
            let total = |rank: usize| {
                of(message, partitions).map(|partition| partition.num_bytes(rank)).sum()
            };
            let counts: Vec<usize> = (0..size).map(total).collect();
            let mut slices = if let [index] = message[..] {
                let spec = partitions.get(index).ok_or_else(lost)?.spec().clone();
                let here = Tensor::allocate(self.backends, Device::cpu(0), spec)?;
                Slices::of_tensor(here, &counts)?
            } else {
                let mut slices = std::mem::take(buffers);
                slices.recount(&counts)?;
                slices
            };
            let mut slice = slices.slice_mut(own);
            for part in of(message, parts).flatten() {
                let (to, rest) = slice.split_at_mut(part.num_bytes());
                part.read_bytes(to)?;
                slice = rest;
            }
            gathered.push(slices);
        }
        self.collective.all_gather(&mut gathered, &self.wait())?;
        let mut values = fallible::filled(None, partitions.len())?;
        for (message, slices) in messages.iter().zip(gathered) {
            if let [index] = message[..] {
                *values.get_mut(index).ok_or_else(lost)? = slices.into_tensor();
                continue;
            }
            let mut firsts = fallible::zeroed::<usize>(size)?;
            for index in message {
                let partition = partitions.get(*index).ok_or_else(lost)?;
                let mut bytes = fallible::with_capacity(size)?;
                for (rank, first) in firsts.iter_mut().enumerate() {
                    let end = *first + partition.num_bytes(rank);
                    bytes.push(slices.slice(rank).get(*first..end).ok_or_else(lost)?);
                    *first = end;
                }
                let spec = partition.spec().clone();
                let value = Tensor::from_parts(self.backends, Device::cpu(0), spec, &bytes)?;
                *values.get_mut(*index).ok_or_else(lost)? = Some(value);
            }
            *buffers = slices;
        }
        fallible::try_collect(values.into_iter().map(|value| value.ok_or_else(lost)))
    }

    /// Broadcasts the values of `root`. The values of the other ranks only provide the specs.
    /// Values of at least 128 KiB are sent without a copy. Smaller values are packed.
    pub(crate) fn values_of(&self, root: usize, values: &[Value]) -> Result<Vec<Tensor>> {
        let is_root = self.collective.rank() == root;
        let mut tensors = fallible::filled(None, values.len())?;
        for message in messages(1, values.iter().map(|value| dense_bytes(value.spec())))? {
            let values = || of(&message, values);
            // A single value is sent from and received into its tensor, to avoid copies.
            if let [index] = message[..] {
                let value = values().next().ok_or_else(lost)?;
                let tensor = if is_root {
                    self.on_host(value)?
                } else {
                    Tensor::allocate(self.backends, Device::cpu(0), value.spec().clone())?
                };
                let mut buffer = Buffer::of_tensor(tensor)?;
                self.collective.broadcast(root, &mut buffer, &self.wait())?;
                *tensors.get_mut(index).ok_or_else(lost)? = buffer.into_tensor();
                continue;
            }
            let num_bytes = values().map(|value| dense_bytes(value.spec())).sum();
            let mut packed = Buffer::default();
            packed.resize(num_bytes)?;
            if is_root {
                let mut rest = &mut *packed;
                for value in values() {
                    let to;
                    (to, rest) = rest.split_at_mut(dense_bytes(value.spec()));
                    value.to_dense()?.read_bytes(to)?;
                }
            }
            self.collective.broadcast(root, &mut packed, &self.wait())?;
            let mut rest = &packed[..];
            for (index, value) in message.iter().zip(values()) {
                let (own, after) =
                    rest.split_at_checked(dense_bytes(value.spec())).ok_or_else(lost)?;
                rest = after;
                let spec = value.spec().clone();
                let tensor = Tensor::from_bytes(self.backends, Device::cpu(0), spec, own)?;
                *tensors.get_mut(*index).ok_or_else(lost)? = Some(tensor);
            }
        }
        fallible::try_collect(tensors.into_iter().map(|tensor| tensor.ok_or_else(lost)))
    }

    /// Returns the value in host memory that the store owns. It must not be borrowed, because a
    /// failed call may keep it forever.
    fn on_host(&self, value: &Value) -> Result<Tensor> {
        let value = value.to_dense()?;
        let value = match value.host_bytes() {
            Ok(_) => value,
            Err(_) => value.to_device(self.backends, Device::cpu(0))?,
        };
        value.compact()
    }

    /// Sends the bytes of every rank to all ranks. The lengths may differ between ranks.
    pub(crate) fn gather_bytes(&self, own: &[u8]) -> Result<Slices> {
        let (rank, size) = (self.collective.rank(), self.collective.size());
        let mut lens = Slices::with_counts(&fallible::filled(8, size)?)?;
        lens.slice_mut(rank).copy_from_slice(&(own.len() as u64).to_le_bytes());
        self.collective.all_gather(from_mut(&mut lens), &self.wait())?;
        let len = |rank| read_u64(lens.slice(rank)).and_then(|len| usize::try_from(len).ok());
        let counts = (0..size).map(len).collect::<Option<Vec<_>>>().ok_or_else(lost)?;
        let mut slices = Slices::with_counts(&counts)?;
        slices.slice_mut(rank).copy_from_slice(own);
        self.collective.all_gather(from_mut(&mut slices), &self.wait())?;
        Ok(slices)
    }

    /// Returns `own` if no rank has an error. Otherwise, all ranks get the first error, so that
    /// none waits for the others.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the first failed rank has this error or
    ///   [`Error::Unsupported`].
    /// - Otherwise, an error that ends the group: that of this rank, or [`Error::Internal`] with
    ///   the text of the first failed rank.
    pub(crate) fn all_or_none<T>(&self, own: Result<T>) -> Result<T> {
        let failure = self.gather_bytes(&failure_of(&own))?;
        for rank in 0..self.collective.size() {
            check_failure(rank, failure.slice(rank), own.as_ref().err())?;
        }
        own
    }

    /// Sends the bytes of `root` to all ranks. The results of other ranks are ignored.
    ///
    /// # Errors
    /// - The errors of [`Wire::all_or_none`], if `root` has one.
    pub(crate) fn result_of(&self, root: usize, own: &Result<Vec<u8>>) -> Result<Buffer> {
        check_failure(root, &self.bytes_of(root, &failure_of(own))?, own.as_ref().err())?;
        self.bytes_of(root, own.as_deref().unwrap_or_default())
    }

    /// Sends the bytes of `root` to all ranks. The bytes of other ranks are ignored.
    pub(crate) fn bytes_of(&self, root: usize, own: &[u8]) -> Result<Buffer> {
        let mut len = Buffer::from(&(own.len() as u64).to_le_bytes()[..]);
        self.collective.broadcast(root, &mut len, &self.wait())?;
        let len = read_u64(&len).and_then(|len| usize::try_from(len).ok()).ok_or_else(lost)?;
        let mut bytes = Buffer::default();
        bytes.resize(len)?;
        if self.collective.rank() == root {
            bytes.copy_from_slice(own);
        }
        self.collective.broadcast(root, &mut bytes, &self.wait())?;
        Ok(bytes)
    }
}

/// The first byte of a failure: its error rejects the call, or depends on the rank.
const REJECTED: u8 = 1;
const FAILED: u8 = 2;

/// Returns the message with the error of a result. It is empty without an error.
fn failure_of<T>(result: &Result<T>) -> Vec<u8> {
    let Err(error) = result else { return Vec::new() };
    let is_rejected = matches!(error, Error::InvalidArgument(_) | Error::Unsupported(_));
    let mut message = Vec::from([if is_rejected { REJECTED } else { FAILED }]);
    // Without memory for the text, the others get an error without it.
    let _ = fallible::extend(&mut message, error.chain().as_bytes());
    message
}

/// Returns the error in the message of a rank, if it has one. `own` is the error of this rank. It
/// is returned only if it ends the group, as the error of the other rank does.
fn check_failure(rank: usize, message: &[u8], own: Option<&Error>) -> Result<()> {
    let Some((first, text)) = message.split_first() else { return Ok(()) };
    let text = format!("rank {rank}: {}", String::from_utf8_lossy(text));
    Err(match (*first, own) {
        (REJECTED, _) => Error::InvalidArgument(text),
        (_, Some(own)) if !is_common(own) => own.duplicate(),
        _ => Error::Internal(text),
    })
}

/// Returns whether an error depends only on the call and the contents, so that all ranks have it.
/// Other errors depend on the machine, the process or messages, and end the group.
pub(crate) fn is_common(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidArgument(_)
            | Error::KeyExists { .. }
            | Error::KeyNotFound { .. }
            | Error::SpecMismatch { .. }
            | Error::Updater { .. }
            | Error::Corrupt { .. }
    )
}

/// Returns the size of a dense value in bytes.
fn dense_bytes(spec: &TensorSpec) -> usize {
    spec.num_elements() * spec.dtype().size()
}

/// Groups items of these lengths in bytes into messages between `size` ranks. Each list has the
/// indices of the items of one message. The result is the same on every rank.
fn messages(
    size: usize,
    lens: impl ExactSizeIterator<Item = usize> + Clone,
) -> Result<Vec<Vec<usize>>> {
    let has_own_message = |len: usize| len >= OWN_MESSAGE * size;
    let num_own = lens.clone().filter(|len| has_own_message(*len)).count();
    let mut packed = fallible::with_capacity(lens.len() - num_own)?;
    let mut batches = fallible::with_capacity(num_own + 1)?;
    for (index, len) in lens.enumerate() {
        if has_own_message(len) {
            batches.push(Vec::from([index]));
        } else {
            packed.push(index);
        }
    }
    if !packed.is_empty() {
        batches.insert(0, packed);
    }
    Ok(batches)
}

/// Returns the items of a message.
fn of<'a, T>(message: &'a [usize], items: &'a [T]) -> impl Iterator<Item = &'a T> + Clone {
    message.iter().filter_map(|index| items.get(*index))
}

/// Returns the first 8 bytes as a little-endian number, or `None` if there are fewer.
pub(crate) fn read_u64(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

pub(crate) fn lost() -> Error {
    Error::Internal("a collective call has lost a part of a value".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_macros, reason = "a test may panic")]

    use std::thread;

    use kvstore_core::{CpuBackend, Key};

    use super::*;
    use crate::local::LocalCollective;

    const RESULTS: [fn() -> Result<()>; 6] = [
        || Ok(()),
        || Err(Error::invalid("a")),
        || Err(Error::Unsupported("b".to_owned())),
        || Err(Error::KeyNotFound { key: Key::new("c").unwrap() }),
        || Err(Error::Poisoned { key: Key::new("d").unwrap() }),
        || Err(Error::Timeout("e".to_owned())),
    ];

    /// Two ranks that fail differently agree whether the group has ended.
    #[test]
    fn all_ranks_end_in_the_same_way() {
        let backends = Backends::new(vec![CpuBackend::with_threads(1)]);
        for (first, second) in RESULTS.iter().flat_map(|one| RESULTS.map(|two| (one, two))) {
            let ends = thread::scope(|scope| {
                let members = LocalCollective::group(2).into_iter().zip([*first, second]);
                let threads: Vec<_> = members
                    .map(|(collective, result)| {
                        let backends = &backends;
                        scope.spawn(move || {
                            let (subject, timeout) = ("test", Duration::from_secs(20));
                            let buffers = &RefCell::default();
                            let collective = &collective;
                            let wire = Wire { backends, collective, subject, timeout, buffers };
                            wire.all_or_none(result())
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            let fails = first().is_err() || second().is_err();
            assert!(ends.iter().all(|end| end.is_err() == fails), "{ends:?}");
            let are_common: Vec<_> =
                ends.iter().filter_map(|end| end.as_ref().err()).map(is_common).collect();
            assert!(are_common.windows(2).all(|pair| pair[0] == pair[1]), "{ends:?}");
        }
    }
}
