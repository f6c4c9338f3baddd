//! Writes a checkpoint directly from the stored values, without a copy of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crc32fast::Hasher;
use safetensors::tensor::TensorInfo;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::base::DeltaBase;
use super::delta::{Change, change_of, change_of_rows};
use super::file_tensor::FileTensor;
use super::format::{
    CHECKSUM, CHECKSUM_BYTES, MAX_HEADER_BYTES, METADATA, VERSION, changed_row_indices_name,
    changed_rows_name, checksum_spec, residual_name, row_indices_name, rows_name, state_name,
    value_name,
};
use super::limits::{check_header, check_manifest};
use super::manifest::{FileContent, KeyRecord, KeyRecords, Manifest, RuleRecord};
use crate::fallible;
use crate::file::{MAX_ITEMS, Replacement};
use crate::optimizer::OptimizerState;
use crate::rows::{RowSparse, Value};
use crate::store::{HeldSnapshot, KeyCopy, Policy, SavedPolicy, Snapshot, SnapshotFile};
use crate::tensor::Tensor;
use crate::types::{DType, Error, Result, TensorSpec};

/// The number of bytes to write at once. They stay in cache between the checksum and the write.
const CHUNK: usize = 256 << 10;
/// The size of the length before the header.
const LENGTH_BYTES: usize = 8;

impl Snapshot {
    /// Writes a checkpoint of the store, without copying values in host memory.
    ///
    /// Writes a temporary file in the same folder, syncs it, and renames it. After a crash at any
    /// moment, either the old or the new file is complete.
    ///
    /// # Errors
    /// - [`Error::Io`] if the file cannot be written. The message names the file.
    /// - The errors of [`Snapshot::to_bytes`].
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let file = CheckpointFile::of_store(self)?;
        let written = file.write(Replacement::begin(path.as_ref()), &AtomicU64::new(0))?;
        self.file_slot().set(written);
        Ok(())
    }

    /// Returns the contents of the file that [`Snapshot::write`] writes.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if there are so many keys that the header exceeds the limit of the
    ///   format, 100 MB.
    /// - [`Error::Unsupported`] if a value has more than 4096 axes.
    /// - [`Error::InvalidArgument`] if the name of a key takes more than 64 KiB in the file.
    /// - The errors of [`Snapshot::load`].
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        CheckpointFile::of_store(self)?.to_bytes()
    }

    /// Returns the pieces of the file that [`Snapshot::write`] writes. They share the memory of the
    /// values.
    ///
    /// # Errors
    /// - The errors of [`Snapshot::to_bytes`].
    pub fn to_pieces(&self) -> Result<SnapshotPieces> {
        let file = CheckpointFile::of_store(self)?;
        let checksum = file.write_to(&mut io::sink(), &AtomicU64::new(0));
        let checksum = checksum.map_err(|error| Error::Internal(format!("a checksum: {error}")))?;
        let mut tensors = fallible::with_capacity(file.tensors.len())?;
        for tensor in file.tensors {
            tensors.push(tensor.into_tensor()?);
        }
        Ok(SnapshotPieces { header: file.header, tensors, checksum })
    }

    /// Writes the optimizer states. With `dump`, reading them with
    /// [`OptimizerStates::read`](super::OptimizerStates::read) also returns the optimizer.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the snapshot has no optimizer.
    /// - The errors of [`Snapshot::write`].
    pub fn write_optimizer_states(&self, path: impl AsRef<Path>, dump: bool) -> Result<()> {
        let file = CheckpointFile::of_states(self, dump)?;
        file.write(Replacement::begin(path.as_ref()), &AtomicU64::new(0)).map(drop)
    }

    /// Returns the contents of the file that [`Snapshot::write_optimizer_states`] writes.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the snapshot has no optimizer.
    /// - The errors of [`Snapshot::to_bytes`].
    pub fn optimizer_states_to_bytes(&self, dump: bool) -> Result<Vec<u8>> {
        CheckpointFile::of_states(self, dump)?.to_bytes()
    }
}

/// The pieces of a checkpoint in the order of its file: header, elements of the tensors, checksum.
#[derive(Clone, Debug)]
pub struct SnapshotPieces {
    /// The length of the header, and the header.
    pub header: Vec<u8>,
    /// The tensors, whose elements follow each other.
    pub tensors: Vec<Tensor>,
    /// The checksum of all bytes before it.
    pub checksum: [u8; CHECKSUM_BYTES],
}

/// A checkpoint that is ready to be written. Writing it computes the checksum.
pub(super) struct CheckpointFile {
    /// The length of the header, then the header.
    header: Vec<u8>,
    /// The tensors in the order of the file. They share the snapshot's memory.
    tensors: Vec<FileTensor>,
    /// The base, if the file is a delta.
    base: Option<Arc<SnapshotFile>>,
}

impl CheckpointFile {
    pub(super) fn of_store(snapshot: &Snapshot) -> Result<Self> {
        Self::new(snapshot, FileContent::Store, None)
    }

    /// Prepares a delta. This reads the tensors that the snapshots do not share.
    pub(super) fn of_delta(snapshot: &Snapshot, base: &DeltaBase) -> Result<Self> {
        Self::new(snapshot, FileContent::Store, Some(base))
    }

    fn of_states(snapshot: &Snapshot, dump: bool) -> Result<Self> {
        if snapshot.optimizer().is_none() {
            return Err(Error::invalid("cannot save optimizer states: the store has no optimizer"));
        }
        let content =
            if dump { FileContent::OptimizerAndStates } else { FileContent::OptimizerStates };
        Self::new(snapshot, content, None)
    }

    fn new(snapshot: &Snapshot, content: FileContent, base: Option<&DeltaBase>) -> Result<Self> {
        let (manifest, named) = describe(snapshot, content, base)?;
        let mut order = fallible::collect(0..named.len())?;
        // Larger element types come first. Each tensor then begins at a multiple of its element
        // size, as readers that map the file into memory expect.
        order.sort_unstable_by_key(|index| {
            let size = named.get(*index).map(|(_, tensor)| tensor.dtype().size());
            (Reverse(size), *index)
        });
        let mut text = Json::default();
        text.append(&manifest)?;
        let text = str::from_utf8(&text.bytes).map_err(|error| no_json(&error))?;
        check_manifest(text).map_err(|reason| no_room(&reason))?;
        let mut end = 0;
        let mut place = |spec: &TensorSpec| -> Result<TensorInfo> {
            let start = end;
            end += spec.num_bytes()?;
            let shape = fallible::copied(spec.shape().dims())?;
            Ok(TensorInfo { dtype: spec.dtype().safetensors(), shape, data_offsets: (start, end) })
        };
        let mut infos = fallible::with_capacity(named.len() + 1)?;
        let mut tensors = fallible::with_capacity(named.len())?;
        for (name, tensor) in order.iter().filter_map(|index| named.get(*index)) {
            infos.push((name.as_str(), place(&tensor.spec())?));
            tensors.push(tensor.clone());
        }
        infos.push((CHECKSUM, place(&checksum_spec())?));
        let mut header = Json::default();
        // Reserves room for the length, which is only known at the end.
        fallible::extend(&mut header.bytes, &[0; LENGTH_BYTES])?;
        header.append(&Header { manifest: text, infos: &infos })?;
        let mut header = header.bytes;
        let (_, json) = header.split_at(LENGTH_BYTES);
        check_header(json).map_err(|reason| no_room(&reason))?;
        let padding = json.len().next_multiple_of(8) - json.len();
        fallible::extend(&mut header, &[b' '; 8][..padding])?;
        let num_bytes = (header.len() - LENGTH_BYTES) as u64;
        if num_bytes > MAX_HEADER_BYTES {
            return Err(Error::Unsupported(format!(
                "the header of {} keys: expected at most {MAX_HEADER_BYTES} bytes, found \
                 {num_bytes}",
                snapshot.len()
            )));
        }
        let (length, _) = header.split_at_mut(LENGTH_BYTES);
        length.copy_from_slice(&num_bytes.to_le_bytes());
        Ok(Self { header, tensors, base: base.map(|base| Arc::clone(base.file())) })
    }

    /// Returns the size of the complete file.
    pub(super) fn num_bytes(&self) -> u64 {
        // The offsets in the header were computed from the same sizes without an overflow.
        let tensors: usize = self.tensors.iter().filter_map(|tensor| tensor.num_bytes().ok()).sum();
        (self.header.len() + tensors + CHECKSUM_BYTES) as u64
    }

    /// Writes the file, and adds the number of bytes to `written` on the way. Returns the file, or
    /// `None` if it cannot be read again, for example because it is a pipe.
    pub(super) fn write(
        &self,
        place: Replacement,
        written: &AtomicU64,
    ) -> Result<Option<SnapshotFile>> {
        let path = place.path().to_owned();
        let mut checksum = [0; CHECKSUM_BYTES];
        place.write(|file| {
            checksum = self.write_to(file, written)?;
            Ok(())
        })?;
        let path = fs::canonicalize(path).ok().filter(|path| path.is_file());
        let checksum = u32::from_le_bytes(checksum);
        Ok(path.map(|path| SnapshotFile::new(path, checksum, self.num_bytes(), self.base.clone())))
    }

    fn to_bytes(&self) -> Result<Vec<u8>> {
        let num_bytes = usize::try_from(self.num_bytes()).unwrap_or(usize::MAX);
        let mut bytes = fallible::with_capacity(num_bytes)?;
        let written = self.write_to(&mut bytes, &AtomicU64::new(0));
        written.map_err(|error| Error::Internal(format!("writing to memory: {error}")))?;
        Ok(bytes)
    }

    /// Returns the checksum at the end of the file.
    fn write_to(
        &self,
        file: &mut dyn Write,
        written: &AtomicU64,
    ) -> io::Result<[u8; CHECKSUM_BYTES]> {
        let mut out = Output { file, checksum: Hasher::new(), written };
        out.write_all(&self.header)?;
        for tensor in &self.tensors {
            tensor.write(&mut out)?;
        }
        let checksum = out.checksum.clone().finalize().to_le_bytes();
        out.write_all(&checksum)?;
        Ok(checksum)
    }
}

/// Returns the manifest of a file, and its tensors with their names.
fn describe(
    snapshot: &Snapshot,
    content: FileContent,
    base: Option<&DeltaBase>,
) -> Result<(Manifest, Vec<(String, FileTensor)>)> {
    let is_complete = content == FileContent::Store;
    let held = snapshot.held()?;
    let mut tensors = TensorList(fallible::with_capacity(snapshot.len())?);
    let mut keys = fallible::with_capacity(snapshot.len())?;
    for copy in held.copies() {
        let (key, shape) = (copy.key.as_str(), copy.value.spec().shape());
        if shape.rank() > MAX_ITEMS {
            let text = format!("key `{key}`: a file cannot store a value of {} axes", shape.rank());
            return Err(Error::Unsupported(text));
        }
        let state = held.state_of(copy);
        let outline = state.and_then(OptimizerState::outline);
        let old = base.and_then(|base| OldKey::find(base.contents(), copy));
        if is_complete {
            match &copy.value {
                Value::Dense(value) => {
                    let old = old.as_ref().and_then(OldKey::dense);
                    tensors.add(value_name(key), value, old)?;
                }
                Value::Rows(rows) => {
                    tensors.add_rows(key, rows, old.as_ref().and_then(OldKey::rows))?;
                }
            }
            for (index, residual) in copy.progress.residuals.iter().enumerate() {
                let old = old.as_ref().and_then(|old| old.copy.progress.residuals.get(index));
                tensors.add(residual_name(index, key), residual, old)?;
            }
        } else if outline.is_none() {
            // A file of states omits keys that the optimizer has never updated.
            continue;
        }
        if let (Some(state), Some(_)) = (state, &outline) {
            let mut old = old.as_ref().and_then(|old| old.state).map(OptimizerState::all_tensors);
            for (index, tensor) in state.all_tensors().enumerate() {
                let old = old.as_mut().and_then(Iterator::next);
                tensors.add(state_name(index, key), tensor, old)?;
            }
        }
        keys.push(Box::new(KeyRecord {
            key: key.to_owned(),
            dtype: copy.value.spec().dtype().name().to_owned(),
            shape: fallible::copied(shape.dims())?,
            num_rows: copy.value.rows().map(RowSparse::num_rows).filter(|_| is_complete),
            num_pushes: copy.num_pushes,
            state: outline.map(Into::into),
            num_residuals: if is_complete { copy.progress.residuals.len() } else { 0 },
        }));
    }
    let rule = match snapshot.policy() {
        SavedPolicy::Known(Policy::Assign) => RuleRecord::Assign,
        SavedPolicy::Known(Policy::Updater(_)) | SavedPolicy::SomeUpdater => RuleRecord::Updater,
        SavedPolicy::Known(Policy::Optimizer(running)) => {
            RuleRecord::Optimizer((&*running.optimizer).into())
        }
    };
    let compression = snapshot.compression().filter(|_| is_complete).map(Into::into);
    let clip_global_norm = snapshot.clip_global_norm().filter(|_| is_complete);
    let base = base.map(|base| base.record().clone());
    let store = snapshot.store_name().to_owned();
    let keys = KeyRecords { records: keys, failure: None };
    let version = VERSION;
    let manifest =
        Manifest { version, content, store, rule, compression, clip_global_norm, base, keys };
    Ok((manifest, tensors.0))
}

/// A key of the base of a delta.
struct OldKey<'a> {
    copy: &'a KeyCopy,
    /// The state, if the file of the base has it.
    state: Option<&'a OptimizerState>,
}

impl<'a> OldKey<'a> {
    fn find(base: &'a HeldSnapshot, copy: &KeyCopy) -> Option<Self> {
        let copy = base.copy(&copy.key)?;
        let state = base.state_of(copy).filter(|state| state.outline().is_some());
        Some(Self { copy, state })
    }

    fn dense(&self) -> Option<&'a Tensor> {
        match &self.copy.value {
            Value::Dense(tensor) => Some(tensor),
            Value::Rows(_) => None,
        }
    }

    fn rows(&self) -> Option<&'a RowSparse> {
        self.copy.value.rows()
    }
}

/// The tensors of a file with their names.
struct TensorList(Vec<(String, FileTensor)>);

impl TensorList {
    /// Adds a tensor, or only its difference from the tensor of the base.
    fn add(&mut self, name: String, tensor: &Tensor, old: Option<&Tensor>) -> Result<()> {
        match old.map_or(Ok(Change::All), |old| change_of(tensor, old))? {
            Change::None => Ok(()),
            Change::All => {
                fallible::push(&mut self.0, (name, FileTensor::Complete(tensor.clone())))
            }
            Change::Rows(positions) => {
                let positions = Arc::new(positions);
                self.add_changed_rows(&name, tensor, Arc::clone(&positions), positions)
            }
        }
    }

    /// Adds a row-sparse value, or only its difference from the value of the base.
    fn add_rows(&mut self, key: &str, rows: &RowSparse, old: Option<&RowSparse>) -> Result<()> {
        match old.map_or(Ok(Change::All), |old| change_of_rows(rows, old))? {
            Change::None => Ok(()),
            Change::All => {
                // The row indices are a list, so this is the only data that is copied.
                let spec = TensorSpec::new([rows.num_rows()], DType::I64);
                let mut indices = rows.rows().allocate_like(spec)?;
                indices.write_slice(rows.indices())?;
                let indices = (row_indices_name(key), FileTensor::Complete(indices));
                fallible::push(&mut self.0, indices)?;
                let rows = (rows_name(key), FileTensor::Complete(rows.rows().clone()));
                fallible::push(&mut self.0, rows)
            }
            Change::Rows(positions) => {
                let index_at = |position: &i64| {
                    let position = usize::try_from(*position).unwrap_or(usize::MAX);
                    rows.indices().get(position).copied().unwrap_or_default()
                };
                let indices = Arc::new(fallible::collect(positions.iter().map(index_at))?);
                self.add_changed_rows(&rows_name(key), rows.rows(), indices, Arc::new(positions))
            }
        }
    }

    fn add_changed_rows(
        &mut self,
        name: &str,
        tensor: &Tensor,
        indices: Arc<Vec<i64>>,
        positions: Arc<Vec<i64>>,
    ) -> Result<()> {
        let indices = (changed_row_indices_name(name), FileTensor::Indices(indices));
        fallible::push(&mut self.0, indices)?;
        let rows = FileTensor::Rows { tensor: tensor.clone(), positions };
        fallible::push(&mut self.0, (changed_rows_name(name), rows))
    }
}

fn no_json(error: &dyn Display) -> Error {
    Error::Internal(format!("a header as JSON: {error}"))
}

/// The header of a safetensors file.
struct Header<'a> {
    manifest: &'a str,
    infos: &'a [(&'a str, TensorInfo)],
}

impl Serialize for Header<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1 + self.infos.len()))?;
        map.serialize_entry("__metadata__", &BTreeMap::from([(METADATA, self.manifest)]))?;
        for (name, info) in self.infos {
            map.serialize_entry(name, info)?;
        }
        map.end()
    }
}

/// JSON in memory that is reserved fallibly.
#[derive(Default)]
struct Json {
    bytes: Vec<u8>,
    /// The error of a failed `write`, because `serde_json` keeps only its text.
    failure: Option<Error>,
}

impl Json {
    fn append(&mut self, value: &impl Serialize) -> Result<()> {
        let written = serde_json::to_writer(&mut *self, value);
        written.map_err(|error| self.failure.take().unwrap_or_else(|| no_json(&error)))
    }
}

impl Write for Json {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Err(error) = fallible::extend(&mut self.bytes, bytes) {
            self.failure = Some(error);
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the error for a header that the check of the reader rejects.
fn no_room(reason: &str) -> Error {
    Error::invalid(format!("a key is too long to be stored in a file: {reason}"))
}

/// A file, with the number and the checksum of the bytes written so far.
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
