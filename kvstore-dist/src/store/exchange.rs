//! [`Exchange`]: the sums of all ranks become one, each rank's part of it on that rank.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use kvstore_core::storage::Storage;
use kvstore_core::{Backends, Compression, DType, Device, Error, Result, Tensor, TensorSpec};

use super::cut::Cut;
use crate::buffer::{Buffer, Slices};
use crate::collective::{Collective, Wait};

/// Codes are cut between words of this many elements.
const WORD: usize = 32;

/// What one call needs to move bytes.
#[derive(Clone, Copy)]
pub(crate) struct Exchange<'a> {
    pub(crate) backends: &'a Backends,
    pub(crate) collective: &'a dyn Collective,
    pub(crate) subject: &'a str,
    pub(crate) timeout: Duration,
    pub(crate) room: &'a RefCell<Room>,
}

/// Memory for what travels, kept between calls: to get it from the system anew takes as long as to fill it.
#[derive(Debug, Default)]
pub(crate) struct Room {
    sent: Slices,
    /// What is made of it reads it here, until the call is over.
    received: Arc<Slices>,
    gathered: Slices,
}

/// Some bytes of what has been received.
#[derive(Debug)]
struct Received {
    slices: Arc<Slices>,
    range: Range<usize>,
}

impl Storage for Received {
    fn num_bytes(&self) -> usize {
        self.range.len()
    }

    fn lent(&self) -> Option<&[u8]> {
        self.slices.whole().get(self.range.clone())
    }
}

/// A dense sum on its way: itself, or as codes.
pub(crate) struct Sent<'a> {
    pub(crate) cut: &'a Cut,
    pub(crate) content: Content,
}

pub(crate) enum Content {
    Value(Tensor),
    Codes(Tensor, Compression),
}

impl Sent<'_> {
    /// Returns the elements of a rank's part as they travel: codes by whole words.
    fn elements(&self, rank: usize) -> Range<usize> {
        let elements = self.cut.elements(rank);
        match self.content {
            Content::Value(_) => elements,
            Content::Codes(..) if elements.is_empty() => elements,
            Content::Codes(..) => {
                let end = elements.end.next_multiple_of(WORD);
                elements.start / WORD * WORD..end.min(self.cut.whole().num_elements())
            }
        }
    }

    /// Returns the bytes of a rank's part.
    fn bytes(&self, rank: usize) -> Result<Range<usize>> {
        let elements = self.elements(rank);
        match &self.content {
            Content::Value(_) => {
                let size = self.cut.whole().dtype().size();
                Ok(elements.start * size..elements.end * size)
            }
            Content::Codes(_, compression) => {
                let code = compression.of(self.cut.whole().dtype())?.code;
                let start = code.num_bytes(elements.start);
                Ok(start..start + code.num_bytes(elements.len()))
            }
        }
    }

    fn content(&self) -> &Tensor {
        match &self.content {
            Content::Value(tensor) | Content::Codes(tensor, _) => tensor,
        }
    }

    /// Makes this rank's part of its own sum, whose bytes these are: without a copy, where the host sees them.
    fn keep(&self, backends: &Backends, own: usize, bytes: &[u8]) -> Result<Tensor> {
        match &self.content {
            Content::Value(value) if value.host_bytes().is_ok() => {
                let part = self.cut.part(own).ok_or_else(lost)?;
                value.view(self.cut.elements(own).start, part.shape().clone())
            }
            _ => {
                let bytes = bytes.get(self.bytes(own)?).ok_or_else(lost)?;
                let here = |spec| Tensor::from_bytes(backends, Device::cpu(0), spec, bytes);
                self.receive(backends, own, bytes.len(), here)
            }
        }
    }

    /// Makes a rank's part of what travelled: so many bytes, of which `tensor` makes elements.
    fn receive(
        &self,
        backends: &Backends,
        rank: usize,
        num_bytes: usize,
        tensor: impl FnOnce(TensorSpec) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let part = self.cut.part(rank).ok_or_else(lost)?;
        match &self.content {
            Content::Value(_) => tensor(part),
            Content::Codes(_, compression) => {
                let codes = tensor(TensorSpec::new([num_bytes], DType::U8))?;
                let words = self.elements(rank);
                let spec = TensorSpec::new([words.len()], part.dtype());
                let value = compression.decode(backends, &codes, spec)?;
                let first = self.cut.elements(rank).start - words.start;
                value.view(first, part.shape().clone())
            }
        }
    }
}

impl Exchange<'_> {
    pub(crate) fn wait(&self) -> Wait<'_> {
        Wait::new(&self.subject, self.timeout)
    }

    /// Sends every rank its part of each sum. Returns this rank's part of each as every rank has sent it, in the order
    /// of ranks; nothing for a sum of which this rank has no part.
    pub(crate) fn scatter(&self, sums: &[Sent<'_>]) -> Result<Vec<Vec<Tensor>>> {
        let (own, size) = (self.collective.rank(), self.collective.size());
        let contents = sums.iter().map(|sum| sum.content().seen_bytes());
        let contents = contents.collect::<Result<Vec<_>>>()?;
        let total = |rank: usize| {
            let lens = sums.iter().map(|sum| sum.bytes(rank).map(|bytes| bytes.len()));
            lens.sum::<Result<usize>>()
        };
        // What a rank has for itself stays where it is.
        let for_others = |rank: usize| if rank == own { Ok(0) } else { total(rank) };
        let counts = (0..size).map(for_others).collect::<Result<Vec<_>>>()?;
        let mut room = self.room.borrow_mut();
        let Room { sent, received: shared, .. } = &mut *room;
        if Arc::get_mut(shared).is_none() {
            // A call that has failed may still hold what it got.
            *shared = Arc::default();
        }
        let received = Arc::get_mut(shared).ok_or_else(lost)?;
        sent.recount(&counts);
        for (rank, mut slice) in sent.iter_mut().enumerate().filter(|(rank, _)| *rank != own) {
            for (sum, content) in sums.iter().zip(&contents) {
                let bytes = content.get(sum.bytes(rank)?).ok_or_else(lost)?;
                let (to, rest) = slice.split_at_mut(bytes.len());
                to.copy_from_slice(bytes);
                slice = rest;
            }
        }
        let len = total(own)?;
        let counts: Vec<usize> = (0..size).map(|rank| if rank == own { 0 } else { len }).collect();
        received.recount(&counts);
        self.collective.all_to_all(sent, received, &self.wait())?;
        let mut parts = Vec::with_capacity(sums.len());
        let mut first = 0;
        for (sum, content) in sums.iter().zip(&contents) {
            let len = sum.bytes(own)?.len();
            let from = |rank: usize| {
                if rank == own {
                    return sum.keep(self.backends, own, content);
                }
                let start = shared.range(rank).start + first;
                let here = |spec| self.lend(shared, start..start + len, spec);
                sum.receive(self.backends, own, len, here)
            };
            let has_part = sum.cut.part(own).is_some();
            parts.push((0..if has_part { size } else { 0 }).map(from).collect::<Result<_>>()?);
            first += len;
        }
        Ok(parts)
    }

    /// Returns a tensor of what has been received, which is read where it lies if numbers may lie there.
    fn lend(&self, slices: &Arc<Slices>, range: Range<usize>, spec: TensorSpec) -> Result<Tensor> {
        let slices = Arc::clone(slices);
        let found = slices.whole().get(range.clone()).ok_or_else(lost)?;
        if found.as_ptr().addr().is_multiple_of(spec.dtype().size()) {
            let storage = Received { slices, range };
            return Tensor::lent(self.backends, spec, Arc::new(storage));
        }
        Tensor::from_bytes(self.backends, Device::cpu(0), spec, found)
    }

    /// Gives every rank the parts of all: returns the whole values. `parts` has this rank's, where it has any.
    pub(crate) fn gather(&self, cuts: &[&Cut], parts: &[Option<Tensor>]) -> Result<Vec<Tensor>> {
        let (own, size) = (self.collective.rank(), self.collective.size());
        let total = |rank: usize| cuts.iter().map(|cut| cut.num_bytes(rank)).sum();
        let counts: Vec<usize> = (0..size).map(total).collect();
        let mut room = self.room.borrow_mut();
        let slices = &mut room.gathered;
        slices.recount(&counts);
        let mut slice = slices.slice_mut(own);
        for part in parts.iter().flatten() {
            let (to, rest) = slice.split_at_mut(part.num_bytes());
            part.read_bytes(to)?;
            slice = rest;
        }
        self.collective.all_gather(slices, &self.wait())?;
        let mut firsts = vec![0; size];
        let mut values = Vec::with_capacity(cuts.len());
        for cut in cuts {
            let mut bytes = Vec::with_capacity(size);
            for (rank, first) in firsts.iter_mut().enumerate() {
                let end = *first + cut.num_bytes(rank);
                bytes.push(slices.slice(rank).get(*first..end).ok_or_else(lost)?);
                *first = end;
            }
            let spec = cut.whole().clone();
            values.push(Tensor::from_parts(self.backends, Device::cpu(0), spec, &bytes)?);
        }
        Ok(values)
    }

    /// Gives every rank some bytes of each. They may be of different lengths.
    pub(crate) fn gather_bytes(&self, own: &[u8]) -> Result<Slices> {
        let (rank, size) = (self.collective.rank(), self.collective.size());
        let mut lens = Slices::zeroed(&vec![8; size]);
        lens.slice_mut(rank).copy_from_slice(&(own.len() as u64).to_le_bytes());
        self.collective.all_gather(&mut lens, &self.wait())?;
        let len = |rank| read_u64(lens.slice(rank)).and_then(|len| usize::try_from(len).ok());
        let counts = (0..size).map(len).collect::<Option<Vec<_>>>().ok_or_else(lost)?;
        let mut slices = Slices::zeroed(&counts);
        slices.slice_mut(rank).copy_from_slice(own);
        self.collective.all_gather(&mut slices, &self.wait())?;
        Ok(slices)
    }

    /// Gives every rank the bytes of one, `root`.
    pub(crate) fn bytes_of(&self, root: usize, own: &[u8]) -> Result<Buffer> {
        let mut len = Buffer::from(&(own.len() as u64).to_le_bytes()[..]);
        self.collective.broadcast(root, &mut len, &self.wait())?;
        let len = read_u64(&len).and_then(|len| usize::try_from(len).ok()).ok_or_else(lost)?;
        let mut bytes = Buffer::zeroed(len);
        if self.collective.rank() == root {
            bytes.copy_from_slice(own);
        }
        self.collective.broadcast(root, &mut bytes, &self.wait())?;
        Ok(bytes)
    }
}

/// Returns the first number in some bytes.
pub(crate) fn read_u64(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

pub(crate) fn lost() -> Error {
    Error::Internal("a call of all ranks has lost a part of a value".to_owned())
}
