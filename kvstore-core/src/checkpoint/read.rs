//! Reads checkpoints. A file may be damaged or malicious, so all its sizes are checked against its
//! length before memory is allocated. Nothing takes effect before the entire file has been read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::chain::read_chain;
use super::format::{CHECKSUM, checksum_spec, residual_name, state_name, value_name};
use super::header::Header;
use super::limits::check_manifest;
use super::manifest::{
    BaseRecord, FileContent, KeyRecord, Manifest, RuleRecord, VersionField, repeated,
};
#[cfg(doc)]
use super::parts::PartList;
use super::parts::{is_file_name, read_folder};
use super::patch::{Found, Sources};
use crate::backend::registry::Backends;
use crate::codec::Compression;
use crate::fallible;
use crate::file::{Input, read_elements};
use crate::optimizer::{Optimizer, OptimizerState, Outline};
use crate::rows::Value;
use crate::store::{
    ActiveOptimizer, KeyCopy, Policy, Progress, RunId, SavedPolicy, SavedSettings, Snapshot,
    SnapshotFile, check_clip,
};
use crate::tensor::Tensor;
use crate::types::{DType, Error, Key, Result, Shape, TensorSpec};

impl Snapshot {
    /// Reads the checkpoint of a store into host memory. Does not change any store. `path` is a
    /// file, or the folder of a checkpoint that several servers have written (see [`PartList`]).
    /// If the file is a delta (see [`Snapshot::write_since`]), also reads the files that it needs.
    ///
    /// # Errors
    /// - [`Error::Io`] if the file, or a file that it needs, cannot be read.
    /// - [`Error::Corrupt`] if the file is not a checkpoint of a store, is damaged, or has another
    ///   version. The message names the file and the problem.
    /// - [`Error::Corrupt`] if a file that it needs is damaged or was replaced by another one. The
    ///   message names this file and the delta that needs it.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn read(backends: &Backends, path: impl AsRef<Path>) -> Result<Self> {
        let read_file = |path: &Path| read_chain(backends, path);
        let path = path.as_ref();
        if path.is_dir() { read_folder(path, read_file) } else { read_file(path) }
    }

    /// Reads the contents of a checkpoint file, as [`Snapshot::read`] does.
    ///
    /// # Errors
    /// - The errors of [`Snapshot::read`] except [`Error::Io`].
    /// - [`Error::Corrupt`] if the file is a delta, because the bytes of its base are missing.
    pub fn from_bytes(backends: &Backends, bytes: &[u8]) -> Result<Self> {
        read_bytes(bytes, "a checkpoint", |input| {
            let opened = Opened::read(input)?;
            match opened.base() {
                None => opened.snapshot(backends, None),
                Some(BaseRecord { file, .. }) => {
                    let reason = format!("it is a delta, and its base `{file}` is missing");
                    Err(opened.input.corrupt(reason))
                }
            }
        })
    }

    /// Reads the contents of a delta whose base has the contents of `base`.
    ///
    /// # Errors
    /// - The errors of [`Snapshot::read`] except [`Error::Io`].
    /// - [`Error::Corrupt`] if the file is complete, or is a delta of another file.
    pub fn from_delta_bytes(backends: &Backends, bytes: &[u8], base: &Self) -> Result<Self> {
        read_bytes(bytes, "a delta", |input| {
            Opened::read(input)?.snapshot(backends, Some(base.clone()))
        })
    }
}

/// A checkpoint of a store, or the base that must be read first.
pub(super) enum CompleteOrBase {
    Complete(Snapshot),
    Base(BaseRecord),
}

/// A file whose header was read.
pub(super) struct Opened<'a> {
    input: Input<'a>,
    header: Header,
    manifest: Manifest,
    /// The canonical path and the length, if the file can be the base of a delta.
    place: Option<(PathBuf, u64)>,
}

impl<'a> Opened<'a> {
    pub(super) fn read(input: Input<'a>) -> Result<Self> {
        let mut input = input.with_checksum();
        let mut header = Header::read(&mut input)?;
        let manifest = read_manifest(&input, header.manifest.take())?;
        if let Some(BaseRecord { file, .. }) = &manifest.base {
            if manifest.content != FileContent::Store {
                return Err(input.corrupt("it contains optimizer states, which have no base"));
            }
            if !is_file_name(file) {
                let reason = format!("its base `{file}` is not the name of a file in its folder");
                return Err(input.corrupt(reason));
            }
        }
        Ok(Self { input, header, manifest, place: None })
    }

    /// Sets the canonical path and the length of the file.
    pub(super) fn at(self, place: Option<(PathBuf, u64)>) -> Self {
        Self { place, ..self }
    }

    /// Returns the base, if the file is a delta.
    fn base(&self) -> Option<&BaseRecord> {
        self.manifest.base.as_ref()
    }

    /// Reads the file if it is complete.
    pub(super) fn complete_or_base(self, backends: &Backends) -> Result<CompleteOrBase> {
        match self.base() {
            Some(base) => Ok(CompleteOrBase::Base(base.clone())),
            None => self.snapshot(backends, None).map(CompleteOrBase::Complete),
        }
    }

    /// Reads the file. If it is a delta, `base` has the contents of its base.
    pub(super) fn snapshot(self, backends: &Backends, base: Option<Snapshot>) -> Result<Snapshot> {
        self.check_base(base.as_ref())?;
        let place = self.place.clone();
        let base_file = base.as_ref().and_then(Snapshot::file);
        let mut body = Body::read(backends, self, base)?;
        if body.content != FileContent::Store {
            return Err(body.input.corrupt("it contains optimizer states, not a store"));
        }
        let rule = match &body.optimizer {
            Some(optimizer) => {
                SavedPolicy::Known(Policy::Optimizer(ActiveOptimizer::begin(optimizer.clone())))
            }
            None if body.has_updater => SavedPolicy::SomeUpdater,
            None => SavedPolicy::Known(Policy::Assign),
        };
        // All states belong to the run of the optimizer that has just begun.
        let run = match &rule {
            SavedPolicy::Known(Policy::Optimizer(running)) => running.run,
            SavedPolicy::Known(_) | SavedPolicy::SomeUpdater => RunId::default(),
        };
        // `find_key` has checked every tensor, so the keys only have to take their tensors.
        let copies = std::mem::take(&mut body.keys).into_iter().map(|found| {
            let FoundKey { key, spec, num_rows, num_pushes, outline, num_residuals } = *found;
            let value = match num_rows {
                Some(num_rows) => body.found.rows(&body.input, &key, &spec, num_rows)?,
                None => body.take(&value_name(key.as_str())).map(Value::Dense)?,
            };
            let residuals = 0..num_residuals;
            let residuals = residuals.map(|index| body.take(&residual_name(index, key.as_str())));
            let residuals = fallible::try_collect(residuals)?;
            let state = outline.map(|outline| body.state(&key, &spec, outline)).transpose()?;
            let run = if state.is_some() { run } else { RunId::default() };
            let progress = Progress { run, state: state.unwrap_or_default(), residuals };
            Ok(Arc::new(KeyCopy { key, value, progress, num_pushes }))
        });
        let copies = fallible::try_collect(copies)?;
        let (compression, clip_global_norm) = (body.compression, body.clip_global_norm);
        let settings = SavedSettings { policy: rule, compression, clip_global_norm };
        let checksum = body.checksum;
        let snapshot = Snapshot::of_file(&body.store, settings, copies, Some(checksum));
        snapshot.file_slot().set(place.map(|(path, num_bytes)| {
            SnapshotFile::new(path, checksum, num_bytes, base_file.map(Arc::new))
        }));
        Ok(snapshot)
    }

    /// Checks that `base` has the contents that the delta expects.
    fn check_base(&self, base: Option<&Snapshot>) -> Result<()> {
        let (record, base) = match (self.base(), base) {
            (None, None) => return Ok(()),
            (Some(record), Some(base)) => (record, base),
            (Some(BaseRecord { file, .. }), None) => {
                return Err(self.input.corrupt(format!("its base `{file}` is missing")));
            }
            (None, Some(_)) => return Err(self.input.corrupt("it is complete, not a delta")),
        };
        let found = base.file().map(|file| file.checksum()).or(base.checksum());
        if found == Some(record.checksum) {
            return Ok(());
        }
        let found = found.map_or("no file".to_owned(), |found| format!("checksum {found:08x}"));
        let BaseRecord { file, checksum, .. } = record;
        Err(self
            .input
            .corrupt(format!("its base `{file}`: expected checksum {checksum:08x}, found {found}")))
    }
}

/// The contents of a file that [`Snapshot::write_optimizer_states`] wrote.
#[derive(Debug)]
pub struct OptimizerStates {
    /// The optimizer, if the file was written with `dump`.
    pub optimizer: Option<Optimizer>,
    /// The states of all keys that have been updated.
    pub states: BTreeMap<Key, OptimizerState>,
}

impl OptimizerStates {
    /// Reads a file of optimizer states.
    ///
    /// # Errors
    /// - [`Error::Io`] if the file cannot be read.
    /// - [`Error::Corrupt`] if the file is not a file of optimizer states, is damaged, or has
    ///   another version. The message names the file and the problem.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn read(backends: &Backends, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let failed = |source| Error::Io {
            path: path.to_owned(),
            operation: "reading a checkpoint".to_owned(),
            source,
        };
        let file = File::open(path).map_err(failed)?;
        let num_bytes = file.metadata().map_err(failed)?.len();
        Self::read_from(backends, Input::of_file(&mut BufReader::new(file), num_bytes, path))
    }

    /// Reads the contents of a file of optimizer states, as [`OptimizerStates::read`] does.
    ///
    /// # Errors
    /// - The errors of [`OptimizerStates::read`] except [`Error::Io`].
    pub fn from_bytes(backends: &Backends, bytes: &[u8]) -> Result<Self> {
        let read = |input: Input<'_>| Self::read_from(backends, input);
        read_bytes(bytes, "a file of optimizer states", read)
    }

    fn read_from(backends: &Backends, input: Input<'_>) -> Result<Self> {
        let mut body = Body::read(backends, Opened::read(input)?, None)?;
        if body.content == FileContent::Store {
            return Err(body
                .input
                .corrupt("it is the checkpoint of a store, not a file of optimizer states"));
        }
        let mut states = BTreeMap::new();
        for found in std::mem::take(&mut body.keys) {
            let FoundKey { key, spec, outline, .. } = *found;
            let Some(outline) = outline else { continue };
            let state = body.state(&key, &spec, outline)?;
            states.insert(key, state);
        }
        let is_dumped = body.content == FileContent::OptimizerAndStates;
        Ok(Self { optimizer: body.optimizer.filter(|_| is_dumped), states })
    }
}

fn read_bytes<T>(
    bytes: &[u8],
    subject: &'static str,
    read: impl FnOnce(Input<'_>) -> Result<T>,
) -> Result<T> {
    let (mut reader, num_bytes) = (bytes, bytes.len() as u64);
    read(Input::of_bytes(&mut reader, num_bytes, subject))
}

/// The validated contents of a file.
struct Body<'a> {
    input: Input<'a>,
    content: FileContent,
    store: String,
    optimizer: Option<Optimizer>,
    has_updater: bool,
    compression: Option<Compression>,
    clip_global_norm: Option<f64>,
    #[allow(clippy::vec_box, reason = "a growing list of unboxed keys is longer than their text")]
    keys: Vec<Box<FoundKey>>,
    checksum: u32,
    found: Found,
}

/// A key whose tensors are all in the file.
struct FoundKey {
    key: Key,
    spec: TensorSpec,
    /// The number of rows of a row-sparse value, or `None` for a dense value.
    num_rows: Option<usize>,
    num_pushes: u64,
    outline: Option<Outline>,
    num_residuals: usize,
}

impl<'a> Body<'a> {
    fn read(backends: &Backends, opened: Opened<'a>, base: Option<Snapshot>) -> Result<Self> {
        let Opened { mut input, header, manifest, .. } = opened;
        let mut sources = Sources::new(header, base)?;
        // Checks the entire manifest first. Elements are read only if every tensor is expected.
        if let Some(key) = repeated(&manifest.keys.records)? {
            return Err(input.corrupt(format!("key `{key}` appears twice")));
        }
        let said = |error: Error| input.corrupt(error.to_string());
        let (optimizer, has_updater) = match manifest.rule {
            RuleRecord::Assign => (None, false),
            RuleRecord::Updater => (None, true),
            RuleRecord::Optimizer(record) => (Some(record.try_into().map_err(said)?), false),
        };
        let compression = manifest.compression.map(Compression::try_from);
        let compression = compression.transpose().map_err(said)?;
        let clip_global_norm = manifest.clip_global_norm;
        check_clip(compression.as_ref(), clip_global_norm).map_err(said)?;
        let content = manifest.content;
        let mut find = |record: Box<KeyRecord>| {
            find_key(&mut sources, content, optimizer.is_some(), *record).map(Box::new)
        };
        let keys = manifest.keys.records.into_iter().map(|record| find(record).map_err(said));
        let keys = fallible::try_collect(keys)?;
        let Sources { header, base } = sources;
        let (tensors, checksum) = read_tensors(backends, &mut input, header)?;
        let found = Found { tensors, base };
        let store = manifest.store;
        Ok(Self {
            input,
            content,
            store,
            optimizer,
            has_updater,
            compression,
            clip_global_norm,
            keys,
            checksum,
            found,
        })
    }

    fn take(&mut self, name: &str) -> Result<Tensor> {
        self.found.take(&self.input, name)
    }

    fn state(
        &mut self,
        key: &Key,
        weight: &TensorSpec,
        outline: Outline,
    ) -> Result<OptimizerState> {
        let indices = 0..outline.specs(weight).count();
        let tensors = indices.map(|index| self.take(&state_name(index, key.as_str())));
        let tensors = fallible::try_collect(tensors)?;
        let optimizer = self.optimizer.as_ref().ok_or_else(|| self.input.corrupt(NO_OPTIMIZER))?;
        Ok(OptimizerState::restored(optimizer, weight, outline, tensors))
    }
}

pub(super) const DAMAGED: &str = "its checksum does not match its contents";
const NO_OPTIMIZER: &str = "it has optimizer states but no optimizer";

fn read_manifest(input: &Input<'_>, text: Option<String>) -> Result<Manifest> {
    let text = text
        .ok_or_else(|| input.corrupt("it is a safetensors file but not a checkpoint of a store"))?;
    check_manifest(&text).map_err(|reason| input.corrupt(format!("its metadata: {reason}")))?;
    let said = |error: serde_json::Error| input.corrupt(format!("its metadata: {error}"));
    let version: VersionField = serde_json::from_str(&text).map_err(said)?;
    version.check().map_err(|reason| input.corrupt(reason))?;
    let mut manifest: Manifest = serde_json::from_str(&text).map_err(said)?;
    manifest.keys.failure.take().map_or(Ok(manifest), Err)
}

/// Finds the tensors of a key in the header.
fn find_key(
    sources: &mut Sources,
    content: FileContent,
    has_optimizer: bool,
    mut record: KeyRecord,
) -> Result<FoundKey> {
    let key = Key::new(&record.key)?;
    let spec = TensorSpec::new(Shape::from(record.shape), DType::from_name(&record.dtype)?);
    if spec.num_elements() == 0 {
        return Err(Error::invalid(format!("key `{key}`: {spec} has no elements")));
    }
    match (content, record.num_rows) {
        (FileContent::Store, None) => sources.expect(&value_name(&record.key), &spec)?,
        (FileContent::Store, Some(num_rows)) => {
            // A push of a dense value converts the stored value to dense.
            spec.check_addressable(&format!("key `{key}`"))?;
            sources.expect_rows(&record.key, &spec, num_rows)?;
        }
        (FileContent::OptimizerStates | FileContent::OptimizerAndStates, _) => {}
    }
    // The loop ends early if `num_residuals` is wrong, because the header has no such tensors.
    let arithmetic = spec.dtype().arithmetic().map(|dtype| spec.with_dtype(dtype));
    let no_float = || {
        Error::invalid(format!("key `{key}`: a value of {spec} cannot have states or residuals"))
    };
    for index in 0..record.num_residuals {
        let arithmetic = arithmetic.as_ref().ok_or_else(no_float)?;
        sources.expect(&residual_name(index, &record.key), arithmetic)?;
    }
    let outline = record.state.take().map(Outline::try_from).transpose()?;
    if let Some(outline) = &outline {
        arithmetic.as_ref().ok_or_else(no_float)?;
        for (index, state) in outline.specs(&spec).enumerate() {
            sources.expect(&state_name(index, &record.key), &state)?;
        }
        if !has_optimizer {
            return Err(Error::invalid(NO_OPTIMIZER));
        }
    }
    let KeyRecord { num_pushes, num_rows, num_residuals, .. } = record;
    Ok(FoundKey { key, spec, num_rows, num_pushes, outline, num_residuals })
}

/// Reads every tensor and compares the checksum. Returns the tensors and the checksum.
fn read_tensors(
    backends: &Backends,
    input: &mut Input<'_>,
    mut header: Header,
) -> Result<(BTreeMap<String, Tensor>, u32)> {
    header.expect(CHECKSUM, &checksum_spec()).map_err(|error| input.corrupt(error.to_string()))?;
    let mut tensors = BTreeMap::new();
    let mut last = None;
    for (name, spec, is_expected) in header.tensors()? {
        if !is_expected {
            return Err(input.corrupt(format!("tensor `{name}` belongs to no key")));
        }
        // The stored checksum covers all bytes before it, so the last value taken here counts.
        let checksum = input.checksum();
        let tensor = read_elements(backends, input, spec.clone())?;
        last = Some((name == CHECKSUM, checksum));
        tensors.insert(name.to_owned(), tensor);
    }
    let Some((true, checksum)) = last else {
        return Err(input.corrupt("the last tensor is not the checksum"));
    };
    let found = tensors.remove(CHECKSUM).map(|tensor| tensor.to_bytes()).transpose()?;
    if found.as_deref() != Some(&checksum.to_le_bytes()) {
        return Err(input.corrupt(DAMAGED));
    }
    Ok((tensors, checksum))
}
