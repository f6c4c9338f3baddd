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

/// Row indices as bytes.
struct Indices<I>(I);

impl<I: AsRef<[i64]>> AsRef<[u8]> for Indices<I> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(self.0.as_ref())
    }
}

/// The row indices of a value. They keep the value alive.
struct IndicesOf(RowSparse);

impl AsRef<[i64]> for IndicesOf {
    fn as_ref(&self) -> &[i64] {
        self.0.indices()
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

    /// Appends the row indices of a value, then its elements.
    pub(crate) fn push_rows(&mut self, rows: &RowSparse) -> Result<()> {
        self.push_bytes(Bytes::from_owner(Indices(IndicesOf(rows.clone()))));
        self.push(rows.rows())
    }

    /// Appends row indices.
    pub(crate) fn push_indices(&mut self, indices: Vec<i64>) {
        self.push_bytes(Bytes::from_owner(Indices(indices)));
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

    /// Returns the frames for a range of the data, or `None` if it is not within them.
    pub(crate) fn range(&self, first: u64, num_bytes: u64) -> Option<impl Iterator<Item = Bytes>> {
        let (mut first, num_bytes) =
            (usize::try_from(first).ok()?, usize::try_from(num_bytes).ok()?);
        if first.checked_add(num_bytes)? > self.num_bytes {
            return None;
        }
        let mut part = Self::default();
        for content in &self.contents {
            let len = content.len().saturating_sub(first).min(num_bytes - part.num_bytes);
            if len > 0 {
                part.push_bytes(content.slice(first..first + len));
            }
            first = first.saturating_sub(content.len());
        }
        Some(std::iter::from_fn(move || Some(part.next_chunk()).filter(|data| !data.is_empty())))
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
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    /// Tensors in host memory, in the order of their data.
    parts: Vec<Part>,
    /// The part that the next data belong to, and the position in it.
    next: usize,
    position: usize,
    /// The number of bytes that are missing.
    missing: usize,
}

#[derive(Debug)]
struct Part {
    tensor: Tensor,
    role: Role,
}

/// What a received tensor is.
#[derive(Debug)]
enum Role {
    Value,
    /// The row indices of a value of this type. Its rows follow.
    IndicesOf(TensorSpec),
    Rows,
}

/// The values of a message that is about to be received.
#[derive(Debug)]
pub(crate) struct IncomingValues(Vec<IncomingPart>);

#[derive(Debug)]
struct IncomingPart {
    spec: TensorSpec,
    role: Role,
}

impl IncomingValues {
    /// Returns the values that these messages describe. With a compression, dense values are
    /// received as their codes.
    pub(crate) fn new(values: &[proto::Value], compression: Option<&Compression>) -> Result<Self> {
        let mut parts = fallible::with_capacity(values.len())?;
        for value in values {
            let mut spec = parse_spec(value.spec.as_ref())?;
            let Some(num_rows) = value.num_rows else {
                if let Some(compression) = compression {
                    let code = compression.of(spec.dtype())?.code;
                    spec = TensorSpec::new([code.num_bytes(spec.num_elements())], DType::U8);
                }
                fallible::push(&mut parts, IncomingPart { spec, role: Role::Value })?;
                continue;
            };
            if spec.shape().rank() == 0 {
                let key = Key::new(&value.key)?;
                let text = format!("key `{key}`: a row-sparse value has at least one axis");
                return Err(Error::invalid(text));
            }
            let num_rows = usize::try_from(num_rows).unwrap_or(usize::MAX);
            let mut dims = Vec::from(spec.shape().dims());
            dims[0] = num_rows;
            let rows = TensorSpec::new(dims, spec.dtype());
            let indices = TensorSpec::new([num_rows], DType::I64);
            let role = Role::IndicesOf(spec);
            fallible::push(&mut parts, IncomingPart { spec: indices, role })?;
            fallible::push(&mut parts, IncomingPart { spec: rows, role: Role::Rows })?;
        }
        Ok(Self(parts))
    }

    /// Returns dense values of these types.
    pub(crate) fn of_specs(specs: impl IntoIterator<Item = TensorSpec>) -> Result<Self> {
        let part = |spec| IncomingPart { spec, role: Role::Value };
        fallible::gather(specs.into_iter().map(part)).map(Self)
    }

    /// Returns the memory that the values need.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if no machine has as much.
    pub(crate) fn num_bytes(&self) -> Result<usize> {
        self.0.iter().try_fold(0_usize, |sum, part| Ok(sum.saturating_add(part.spec.num_bytes()?)))
    }
}

impl Receiver {
    /// Allocates the values.
    pub(crate) fn new(backends: &Backends, expected: IncomingValues) -> Result<Self> {
        let parts = expected.0.into_iter().map(|part| {
            let tensor = Tensor::allocate(backends, Device::cpu(0), part.spec)?;
            Ok(Part { tensor, role: part.role })
        });
        Ok(Self::of(fallible::try_collect(parts)?))
    }

    /// Allocates one tensor.
    pub(crate) fn of_tensor(backends: &Backends, spec: TensorSpec) -> Result<Self> {
        let tensor = Tensor::allocate(backends, Device::cpu(0), spec)?;
        Ok(Self::of(Vec::from([Part { tensor, role: Role::Value }])))
    }

    fn of(parts: Vec<Part>) -> Self {
        let missing = parts.iter().map(|part| part.tensor.num_bytes()).sum();
        Self { parts, next: 0, position: 0, missing }
    }

    /// Returns the tensor.
    ///
    /// # Errors
    /// - [`Error::Corrupt`] if data are missing.
    pub(crate) fn finish_tensor(self) -> Result<Tensor> {
        let mut values = self.finish()?.into_iter();
        values.next().ok_or_else(|| damaged("the tensor is missing"))?.to_dense()
    }

    /// Adds data.
    ///
    /// # Errors
    /// - [`Error::Corrupt`] if there are more data than the values have.
    pub(crate) fn take(&mut self, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            let Some(part) = self.parts.get_mut(self.next) else {
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

    /// Returns the number of bytes that are missing.
    pub(crate) fn num_missing(&self) -> usize {
        self.missing
    }

    /// Returns whether data are missing.
    pub(crate) fn is_waiting(&self) -> bool {
        self.missing > 0
    }

    /// Returns the memory of the values, in the order of their data.
    pub(crate) fn data(&self) -> Result<Vec<&[u8]>> {
        fallible::try_collect(self.parts.iter().map(|part| part.tensor.host_bytes()))
    }

    /// Returns the values.
    ///
    /// # Errors
    /// - [`Error::Corrupt`] if data are missing.
    pub(crate) fn finish(self) -> Result<Vec<Value>> {
        if self.is_waiting() {
            return Err(damaged("elements are missing"));
        }
        let mut values = fallible::with_capacity(self.parts.len())?;
        let mut parts = self.parts.into_iter();
        while let Some(part) = parts.next() {
            let Role::IndicesOf(spec) = part.role else {
                fallible::push(&mut values, Value::Dense(part.tensor))?;
                continue;
            };
            let rows = parts.next().ok_or_else(|| damaged("the rows are missing"))?;
            let rows = RowSparse::new(spec.shape().clone(), part.tensor.to_vec()?, rows.tensor)?;
            fallible::push(&mut values, Value::Rows(rows))?;
        }
        Ok(values)
    }
}

fn damaged(reason: &str) -> Error {
    Error::Corrupt { subject: "the message".to_owned(), reason: reason.to_owned() }
}
