//! The elements of values as data of frames, without copies on the sending side.

use std::collections::VecDeque;

use bytes::Bytes;
use kvstore_core::{
    Backends, Compression, DType, Device, Error, Key, Result, RowSparse, Tensor, TensorSpec, Value,
    fallible,
};

use super::values::parse_spec;
use crate::proto;

/// The most bytes of data in a frame. Larger frames would delay other calls of the connection.
const CHUNK: usize = 512 << 10;

/// Shorter elements share a frame with others.
const SHORT: usize = 16 << 10;

/// The bytes of a tensor on the host. They keep the tensor alive.
struct Content(Tensor);

impl AsRef<[u8]> for Content {
    fn as_ref(&self) -> &[u8] {
        // `Elements::push` has checked that the host can access the memory.
        self.0.host_bytes().unwrap_or_default()
    }
}

/// The elements of several values, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Elements {
    contents: VecDeque<Bytes>,
    num_bytes: usize,
}

impl Elements {
    /// Appends the elements of a tensor. Copies them only from devices.
    pub(crate) fn push(&mut self, tensor: &Tensor) -> Result<()> {
        let bytes = match tensor.host_bytes() {
            Ok(_) => Bytes::from_owner(Content(tensor.clone())),
            Err(_) => Bytes::from(tensor.to_bytes()?),
        };
        self.push_bytes(bytes);
        Ok(())
    }

    /// Appends bytes.
    pub(crate) fn push_bytes(&mut self, bytes: Bytes) {
        self.num_bytes += bytes.len();
        // An empty frame would end the data.
        if !bytes.is_empty() {
            self.contents.push_back(bytes);
        }
    }

    /// Returns the number of bytes.
    pub(crate) fn num_bytes(&self) -> usize {
        self.num_bytes
    }

    /// Removes the data of the next frame: up to [`CHUNK`] bytes, or nothing at the end.
    #[expect(clippy::disallowed_methods, reason = "a chunk is short")]
    pub(crate) fn next_chunk(&mut self) -> Bytes {
        let Some(mut first) = self.contents.pop_front() else { return Bytes::new() };
        if first.len() > CHUNK {
            let rest = first.split_off(CHUNK);
            self.contents.push_front(rest);
        } else if first.len() <= SHORT && self.is_next_short() {
            let mut joined = Vec::with_capacity(self.num_bytes.min(CHUNK));
            joined.extend_from_slice(&first);
            while self.is_next_short() && joined.len() + SHORT <= CHUNK {
                joined.extend_from_slice(&self.contents.pop_front().unwrap_or_default());
            }
            first = Bytes::from(joined);
        }
        self.num_bytes -= first.len();
        first
    }

    fn is_next_short(&self) -> bool {
        self.contents.front().is_some_and(|next| next.len() <= SHORT)
    }
}

/// Assembles values from data.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// The values, each with its tensor in host memory.
    values: Vec<Part>,
    /// The value that the next data belong to, and the position in it.
    next: usize,
    position: usize,
    /// The number of bytes that are missing.
    missing: usize,
}

#[derive(Debug)]
struct Part {
    tensor: Tensor,
    /// The shape of the value and the indices of the rows that `tensor` contains.
    rows: Option<(TensorSpec, Vec<i64>)>,
}

/// The values of a message that is about to be received.
#[derive(Debug)]
pub(crate) struct IncomingValues(Vec<IncomingPart>);

#[derive(Debug)]
struct IncomingPart {
    /// The elements that are received.
    received: TensorSpec,
    /// The shape of the value and the indices of its rows.
    rows: Option<(TensorSpec, Vec<i64>)>,
}

impl IncomingValues {
    /// Returns the values that these messages describe. With a compression, dense values are
    /// received as their codes.
    pub(crate) fn new(values: &[proto::Value], compression: Option<&Compression>) -> Result<Self> {
        let parts = values.iter().map(|value| {
            let mut spec = parse_spec(value.spec.as_ref())?;
            if let (Some(compression), None) = (compression, &value.rows) {
                let num_bytes = compression.of(spec.dtype())?.code.num_bytes(spec.num_elements());
                spec = TensorSpec::new([num_bytes], DType::U8);
            }
            let Some(rows) = &value.rows else {
                return Ok(IncomingPart { received: spec, rows: None });
            };
            if spec.shape().rank() == 0 {
                let key = Key::new(&value.key)?;
                let text = format!("key `{key}`: a row-sparse value has at least one axis");
                return Err(Error::invalid(text));
            }
            let mut dims = Vec::from(spec.shape().dims());
            dims[0] = rows.indices.len();
            let received = TensorSpec::new(dims, spec.dtype());
            Ok(IncomingPart { received, rows: Some((spec, rows.indices.clone())) })
        });
        fallible::try_collect(parts).map(Self)
    }

    /// Returns the memory that the values need.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if no machine has as much.
    pub(crate) fn num_bytes(&self) -> Result<usize> {
        self.0
            .iter()
            .try_fold(0_usize, |sum, part| Ok(sum.saturating_add(part.received.num_bytes()?)))
    }
}

impl Receiver {
    /// Allocates the values.
    pub(crate) fn new(backends: &Backends, expected: IncomingValues) -> Result<Self> {
        let parts = expected.0.into_iter().map(|part| {
            let tensor = Tensor::allocate(backends, Device::cpu(0), part.received)?;
            Ok(Part { tensor, rows: part.rows })
        });
        Ok(Self::of(fallible::try_collect(parts)?))
    }

    /// Allocates the memory for a file of this length.
    pub(crate) fn of_bytes(backends: &Backends, num_bytes: usize) -> Result<Self> {
        let spec = TensorSpec::new([num_bytes], DType::U8);
        let tensor = Tensor::allocate(backends, Device::cpu(0), spec)?;
        Ok(Self::of(Vec::from([Part { tensor, rows: None }])))
    }

    fn of(values: Vec<Part>) -> Self {
        let missing = values.iter().map(|part| part.tensor.num_bytes()).sum();
        Self { values, next: 0, position: 0, missing }
    }

    /// Returns the file.
    ///
    /// # Errors
    /// - [`Error::Corrupt`] if data are missing.
    pub(crate) fn finish_bytes(self) -> Result<Tensor> {
        let mut values = self.finish()?.into_iter();
        let file = values.next().ok_or_else(|| damaged("the file is missing"))?;
        file.to_dense()
    }

    /// Adds data.
    ///
    /// # Errors
    /// - [`Error::Corrupt`] if there are more data than the values have.
    pub(crate) fn take(&mut self, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            let Some(part) = self.values.get_mut(self.next) else {
                return Err(damaged("there are more data than elements"));
            };
            let bytes = part.tensor.host_bytes_mut()?;
            let rest = bytes.get_mut(self.position..).unwrap_or_default();
            let len = rest.len().min(data.len());
            let (now, later) = data.split_at(len);
            rest[..len].copy_from_slice(now);
            data = later;
            self.position += len;
            self.missing -= len;
            if self.position == bytes.len() {
                (self.next, self.position) = (self.next + 1, 0);
            }
        }
        Ok(())
    }

    /// Returns whether data are missing.
    pub(crate) fn is_waiting(&self) -> bool {
        self.missing > 0
    }

    /// Returns the values.
    ///
    /// # Errors
    /// - [`Error::Corrupt`] if data are missing.
    pub(crate) fn finish(self) -> Result<Vec<Value>> {
        if self.is_waiting() {
            return Err(damaged("elements are missing"));
        }
        let value = |part: Part| match part.rows {
            None => Ok(Value::Dense(part.tensor)),
            Some((spec, indices)) => {
                RowSparse::new(spec.shape().clone(), indices, part.tensor).map(Value::Rows)
            }
        };
        fallible::try_collect(self.values.into_iter().map(value))
    }
}

fn damaged(reason: &str) -> Error {
    Error::Corrupt { subject: "the message".to_owned(), reason: reason.to_owned() }
}
