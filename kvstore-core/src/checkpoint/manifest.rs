//! [`Manifest`]: the JSON data of a checkpoint, besides its tensors.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use super::format::VERSION;
use crate::codec::Compression;
use crate::fallible;
use crate::file::short_list;
use crate::optimizer::{LrScheduler, Optimizer, Outline};
use crate::rule::{Initial, UpdateRule};
use crate::types::{Error, Key, Result};

/// The maximum update count. No program reaches it, and counts up to it are exact in `f64`.
const MAX_UPDATES: u64 = 1 << 53;

/// The version only. It is read first, because files of other versions may have other fields.
#[derive(Deserialize)]
pub(super) struct VersionField {
    version: u64,
}

impl VersionField {
    /// Checks that this library can read the version.
    ///
    /// # Errors
    /// - A description of the problem.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.version == u64::from(VERSION) {
            return Ok(());
        }
        Err(format!(
            "its format has version {}, this library reads version {VERSION}",
            self.version
        ))
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) version: u32,
    pub(super) content: FileContent,
    /// The name of the store.
    pub(super) store: String,
    pub(super) rule: RuleRecord,
    pub(super) compression: Option<CompressionRecord>,
    /// Omitted if there is no bound. Files from before this field existed can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) clip_global_norm: Option<f64>,
    /// The file whose tensors a delta changes. Omitted if the file is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) base: Option<BaseRecord>,
    /// The keys in the order of initialisation.
    pub(super) keys: KeyRecords,
}

/// The base of a delta.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BaseRecord {
    /// The name of the file in the folder of the delta.
    pub(super) file: String,
    /// The CRC-32 at the end of the file.
    pub(super) checksum: u32,
    /// The length of the file.
    pub(super) num_bytes: u64,
}

/// The records of the keys, in memory that is reserved fallibly.
#[derive(Debug, Default)]
pub(super) struct KeyRecords {
    #[allow(
        clippy::vec_box,
        reason = "a growing list of unboxed records is longer than their text"
    )]
    pub(super) records: Vec<Box<KeyRecord>>,
    /// The [`Error::OutOfMemory`] of a failed reservation. The parser would only keep its message.
    pub(super) failure: Option<Error>,
}

impl Serialize for KeyRecords {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.records.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for KeyRecords {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(KeyRecordsVisitor)
    }
}

struct KeyRecordsVisitor;

impl<'de> Visitor<'de> for KeyRecordsVisitor {
    type Value = KeyRecords;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of keys")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut sequence: S) -> Result<KeyRecords, S::Error> {
        let mut keys = KeyRecords::default();
        while let Some(record) = sequence.next_element()? {
            if let Err(error) = fallible::push(&mut keys.records, record) {
                keys.failure = Some(error);
                // Skips the other elements, because the parser fails if a visitor leaves some.
                while sequence.next_element::<IgnoredAny>()?.is_some() {}
            }
        }
        Ok(keys)
    }
}

/// The contents of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FileContent {
    /// A complete store.
    Store,
    /// The optimizer states of a store.
    OptimizerStates,
    /// The optimizer states of a store, and the optimizer to set when they are loaded.
    OptimizerAndStates,
}

/// What the store does with the sum of a push.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum RuleRecord {
    /// The sum replaces the value.
    Assign,
    /// The store has an updater. The file does not contain it.
    Updater,
    /// The store passes the sum to this optimizer.
    Optimizer(OptimizerRecord),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OptimizerRecord {
    name: String,
    hyper_parameters: BTreeMap<String, f64>,
    scheduler: Option<LrScheduler>,
    lr_multipliers: BTreeMap<String, f64>,
    wd_multipliers: BTreeMap<String, f64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CompressionRecord {
    name: String,
    threshold: f64,
}

/// A key. Its tensors are in the file under the names of `format.rs`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyRecord {
    pub(super) key: String,
    /// The dtype of the value.
    pub(super) dtype: String,
    #[serde(deserialize_with = "short_list")]
    pub(super) shape: Vec<usize>,
    /// The number of rows of a row-sparse value, or `None` for a dense value.
    pub(super) num_rows: Option<usize>,
    pub(super) num_pushes: u64,
    pub(super) state: Option<StateRecord>,
    pub(super) num_residuals: usize,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StateRecord {
    /// The formula of the last update. It determines the first state tensors.
    formula: String,
    /// The initial contents of the other state tensors, which only another formula of the optimizer
    /// uses.
    #[serde(deserialize_with = "short_list")]
    parked: Vec<InitialRecord>,
    num_updates: u64,
    momentum_product: f64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum InitialRecord {
    Zero,
    Weight,
    RowZero,
}

impl Optimizer {
    /// Serializes the optimizer to JSON, with its hyper-parameters, its learning rate scheduler and
    /// the multipliers of keys. [`Optimizer::from_json`] returns an equal optimizer.
    ///
    /// # Errors
    /// - [`Error::Internal`] if serialization fails.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(&OptimizerRecord::from(self))
            .map_err(|error| Error::Internal(format!("an optimizer as JSON: {error}")))
    }

    /// Returns the optimizer that [`Optimizer::to_json`] serialized.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the JSON does not describe an optimizer. The message names
    ///   the problem.
    pub fn from_json(text: &str) -> Result<Self> {
        let record: OptimizerRecord = serde_json::from_str(text)
            .map_err(|error| Error::invalid(format!("invalid JSON of an optimizer: {error}")))?;
        record.try_into()
    }
}

impl From<&Optimizer> for OptimizerRecord {
    fn from(optimizer: &Optimizer) -> Self {
        let [lr_multipliers, wd_multipliers] = optimizer.multipliers().map(|factors| {
            let named = |(key, factor): (&Key, &f64)| (key.as_str().to_owned(), *factor);
            factors.iter().map(named).collect()
        });
        let hyper_parameters = optimizer.hyper_parameters().into_iter();
        Self {
            name: optimizer.name().to_owned(),
            hyper_parameters: hyper_parameters.map(|(name, at)| (name.to_owned(), at)).collect(),
            scheduler: optimizer.scheduler().cloned(),
            lr_multipliers,
            wd_multipliers,
        }
    }
}

impl TryFrom<OptimizerRecord> for Optimizer {
    type Error = Error;

    fn try_from(record: OptimizerRecord) -> Result<Self> {
        let mut optimizer = Self::new(&record.name)?;
        for (name, value) in &record.hyper_parameters {
            optimizer.set(name, *value)?;
        }
        for (key, factor) in record.lr_multipliers {
            optimizer = optimizer.with_lr_multiplier(Key::new(&key)?, factor)?;
        }
        for (key, factor) in record.wd_multipliers {
            optimizer = optimizer.with_wd_multiplier(Key::new(&key)?, factor)?;
        }
        Ok(match record.scheduler {
            Some(scheduler) => optimizer.with_scheduler(scheduler),
            None => optimizer,
        })
    }
}

impl From<Compression> for CompressionRecord {
    fn from(compression: Compression) -> Self {
        Self { name: compression.name().to_owned(), threshold: compression.threshold() }
    }
}

impl TryFrom<CompressionRecord> for Compression {
    type Error = Error;

    fn try_from(record: CompressionRecord) -> Result<Self> {
        Self::new(&record.name, record.threshold)
    }
}

impl From<Outline> for StateRecord {
    fn from(outline: Outline) -> Self {
        let record = |initial| match initial {
            Initial::Zero => InitialRecord::Zero,
            Initial::Weight => InitialRecord::Weight,
            Initial::RowZero => InitialRecord::RowZero,
        };
        Self {
            formula: outline.formula.formula().to_owned(),
            parked: outline.parked.into_iter().map(record).collect(),
            num_updates: outline.num_updates,
            momentum_product: outline.momentum_product,
        }
    }
}

impl TryFrom<StateRecord> for Outline {
    type Error = Error;

    fn try_from(record: StateRecord) -> Result<Self> {
        let formula = UpdateRule::of_formula(&record.formula)
            .ok_or_else(|| Error::invalid(format!("unknown formula `{}`", record.formula)))?;
        if record.num_updates > MAX_UPDATES {
            return Err(Error::invalid(format!(
                "a state cannot have {} updates",
                record.num_updates
            )));
        }
        let initial = |record| match record {
            InitialRecord::Zero => Initial::Zero,
            InitialRecord::Weight => Initial::Weight,
            InitialRecord::RowZero => Initial::RowZero,
        };
        Ok(Self {
            formula,
            parked: record.parked.into_iter().map(initial).collect(),
            num_updates: record.num_updates,
            momentum_product: record.momentum_product,
        })
    }
}

/// Returns a key that is in the list twice, if there is one.
pub(super) fn repeated(keys: &[Box<KeyRecord>]) -> Result<Option<&str>> {
    let mut seen = fallible::hash_set(keys.len())?;
    Ok(keys.iter().map(|record| record.key.as_str()).find(|key| !seen.insert(*key)))
}
