//! Writing a checkpoint: straight from the values, with no copy of them.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crc32fast::Hasher;
use safetensors::tensor::{Metadata, TensorInfo};

use super::format::{
    CHECKSUM, CHECKSUM_BYTES, DTYPES, MAX_HEADER_BYTES, METADATA, VERSION, checksum_spec,
    residual_name, row_indices_name, rows_name, state_name, value_name,
};
use super::limits::{check_header, check_manifest};
use super::manifest::{Content, KeyRecord, Manifest, RuleRecord};
use crate::fallible;
use crate::file::{MAX_ITEMS, Replacement, write_elements};
use crate::optimizer::OptimizerState;
use crate::rows::{RowSparse, Value};
use crate::store::{Policy, Rule, Snapshot};
use crate::tensor::Tensor;
use crate::types::{DType, Error, Result, TensorSpec};

/// How many bytes go to the file at a time, while they are in the processor's cache for the checksum.
const CHUNK: usize = 256 << 10;

impl Snapshot {
    /// Writes a checkpoint of the store: beside the file, synced, then renamed into place, so that after a crash
    /// at any moment the old or the new file is whole. Values are written from where they are.
    ///
    /// # Errors
    /// [`Error::Io`] naming the file; [`Error::Unsupported`] for so many keys that the format has no
    /// room for their names; [`Error::InvalidArgument`] for a key whose names take more than 64 KiB in the file.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let file = CheckpointFile::of_store(self)?;
        file.write(Replacement::begin(path.as_ref()), &AtomicU64::new(0))
    }

    /// Returns what [`Snapshot::write`] writes.
    ///
    /// # Errors
    /// - Those of [`Snapshot::write`] except [`Error::Io`].
    /// - [`Error::OutOfMemory`].
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        CheckpointFile::of_store(self)?.to_bytes()
    }

    /// Writes the states of the optimizer, with the optimizer itself if it is dumped too.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when the store had no optimizer, and those of [`Snapshot::write`].
    pub fn write_optimizer_states(&self, path: impl AsRef<Path>, dump: bool) -> Result<()> {
        let file = CheckpointFile::of_states(self, dump)?;
        file.write(Replacement::begin(path.as_ref()), &AtomicU64::new(0))
    }

    /// Returns what [`Snapshot::write_optimizer_states`] writes.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] and [`Error::Unsupported`], as there.
    pub fn optimizer_states_to_bytes(&self, dump: bool) -> Result<Vec<u8>> {
        CheckpointFile::of_states(self, dump)?.to_bytes()
    }
}

/// A checkpoint of which everything is known but the checksum.
pub(super) struct CheckpointFile {
    /// With its length before it.
    header: Vec<u8>,
    /// In the order of the file; they share the snapshot's memory.
    tensors: Vec<Tensor>,
}

impl CheckpointFile {
    pub(super) fn of_store(snapshot: &Snapshot) -> Result<Self> {
        Self::new(snapshot, Content::Store)
    }

    fn of_states(snapshot: &Snapshot, dump: bool) -> Result<Self> {
        if snapshot.optimizer().is_none() {
            return Err(Error::invalid("the store has no optimizer whose states to save"));
        }
        let content = if dump { Content::OptimizerAndStates } else { Content::OptimizerStates };
        Self::new(snapshot, content)
    }

    fn new(snapshot: &Snapshot, content: Content) -> Result<Self> {
        let (manifest, mut named) = describe(snapshot, content)?;
        // Each then stands at a multiple of its element's size, as readers that map the file expect.
        named.sort_by_key(|(_, tensor)| std::cmp::Reverse(tensor.dtype().size()));
        let text = serde_json::to_string(&manifest).map_err(|error| no_json(&error))?;
        check_manifest(&text).map_err(|reason| no_room(&reason))?;
        let metadata = HashMap::from([(METADATA.to_owned(), text)]);
        let mut end = 0;
        let mut place = |spec: &TensorSpec| -> Result<TensorInfo> {
            let start = end;
            end += spec.num_bytes()?;
            let (_, dtype) = DTYPES
                .iter()
                .find(|(dtype, _)| *dtype == spec.dtype())
                .ok_or_else(|| Error::Internal(format!("{} has no name in files", spec.dtype())))?;
            let shape = fallible::copied(spec.shape().dims())?;
            Ok(TensorInfo { dtype: *dtype, shape, data_offsets: (start, end) })
        };
        let mut infos = fallible::with_capacity(named.len() + 1)?;
        let mut tensors = fallible::with_capacity(named.len())?;
        for (name, tensor) in named {
            infos.push((name, place(tensor.spec())?));
            tensors.push(tensor.clone());
        }
        infos.push((CHECKSUM.to_owned(), place(&checksum_spec())?));
        let header = Metadata::new(Some(metadata), infos);
        let header = header.map_err(|error| Error::Internal(format!("a header: {error}")))?;
        let mut header = serde_json::to_vec(&header).map_err(|error| no_json(&error))?;
        check_header(&header).map_err(|reason| no_room(&reason))?;
        let padded = header.len().next_multiple_of(8);
        header.extend(std::iter::repeat_n(b' ', padded - header.len()));
        let num_bytes = header.len() as u64;
        if num_bytes > MAX_HEADER_BYTES {
            return Err(Error::Unsupported(format!(
                "{} keys need a header of {num_bytes} bytes, more than the {MAX_HEADER_BYTES} that a \
                 file may have",
                snapshot.len()
            )));
        }
        header.splice(0..0, num_bytes.to_le_bytes());
        Ok(Self { header, tensors })
    }

    /// Returns how long the file gets.
    pub(super) fn num_bytes(&self) -> u64 {
        let tensors: usize = self.tensors.iter().map(Tensor::num_bytes).sum();
        (self.header.len() + tensors + CHECKSUM_BYTES) as u64
    }

    /// Writes the file; `written` counts its bytes.
    pub(super) fn write(&self, place: Replacement, written: &AtomicU64) -> Result<()> {
        place.write(|file| self.write_to(file, written))
    }

    fn to_bytes(&self) -> Result<Vec<u8>> {
        let num_bytes = usize::try_from(self.num_bytes()).unwrap_or(usize::MAX);
        let mut bytes = fallible::with_capacity(num_bytes)?;
        let written = self.write_to(&mut bytes, &AtomicU64::new(0));
        written.map_err(|error| Error::Internal(format!("writing to memory: {error}")))?;
        Ok(bytes)
    }

    fn write_to(&self, file: &mut dyn Write, written: &AtomicU64) -> io::Result<()> {
        let mut out = Output { file, checksum: Hasher::new(), written };
        out.write_all(&self.header)?;
        for tensor in &self.tensors {
            write_elements(&mut out, tensor)?;
        }
        let checksum = out.checksum.clone().finalize();
        out.write_all(&checksum.to_le_bytes())
    }
}

/// Returns what a file says, and the tensors that it says it of.
fn describe(snapshot: &Snapshot, content: Content) -> Result<(Manifest, Vec<(String, Tensor)>)> {
    let is_whole = content == Content::Store;
    let mut tensors = Vec::new();
    let mut keys = fallible::with_capacity(snapshot.len())?;
    for copy in snapshot.copies() {
        let (key, shape) = (copy.key.as_str(), copy.value.spec().shape());
        if shape.rank() > MAX_ITEMS {
            let text = format!("key `{key}`: a file holds no value of {} axes", shape.rank());
            return Err(Error::Unsupported(text));
        }
        let state = snapshot.state_of(copy);
        let outline = state.and_then(OptimizerState::outline);
        if is_whole {
            match &copy.value {
                Value::Dense(value) => tensors.push((value_name(key), value.clone())),
                Value::Rows(rows) => {
                    let spec = TensorSpec::new([rows.num_rows()], DType::I64);
                    let mut indices = rows.rows().allocate_like(spec)?;
                    indices.write_slice(rows.indices())?;
                    tensors.push((row_indices_name(key), indices));
                    tensors.push((rows_name(key), rows.rows().clone()));
                }
            }
            let residuals = copy.progress.residuals.iter().enumerate();
            tensors.extend(residuals.map(|(index, it)| (residual_name(index, key), it.clone())));
        } else if outline.is_none() {
            continue;
        }
        if let (Some(state), Some(_)) = (state, &outline) {
            let states = state.all_tensors().enumerate();
            tensors.extend(states.map(|(index, it)| (state_name(index, key), it.clone())));
        }
        keys.push(Box::new(KeyRecord {
            key: key.to_owned(),
            dtype: copy.value.spec().dtype().name().to_owned(),
            shape: fallible::copied(shape.dims())?,
            num_rows: copy.value.rows().map(RowSparse::num_rows).filter(|_| is_whole),
            num_pushes: copy.num_pushes,
            state: outline.map(Into::into),
            num_residuals: if is_whole { copy.progress.residuals.len() } else { 0 },
        }));
    }
    let rule = match snapshot.rule() {
        Rule::Known(Policy::Assign) => RuleRecord::Assign,
        Rule::Known(Policy::Updater(_)) | Rule::SomeUpdater => RuleRecord::Updater,
        Rule::Known(Policy::Optimizer(running)) => {
            RuleRecord::Optimizer((&*running.optimizer).into())
        }
    };
    let compression = snapshot.compression().filter(|_| is_whole).map(Into::into);
    let store = snapshot.store_name().to_owned();
    Ok((Manifest { version: VERSION, content, store, rule, compression, keys }, tensors))
}

fn no_json(error: &serde_json::Error) -> Error {
    Error::Internal(format!("a header as JSON: {error}"))
}

/// Returns the error for what no reader would take, by its own check.
fn no_room(reason: &str) -> Error {
    Error::invalid(format!("a key is too long for a file: {reason}"))
}

/// A file whose bytes are counted and summed up.
struct Output<'a> {
    file: &'a mut dyn Write,
    checksum: Hasher,
    written: &'a AtomicU64,
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = bytes.get(..CHUNK).unwrap_or(bytes);
        self.checksum.update(bytes);
        self.file.write_all(bytes)?;
        self.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
