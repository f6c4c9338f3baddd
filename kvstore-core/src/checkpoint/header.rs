//! Reads the header of a safetensors file. No allocation is longer than the header.
//!
//! This module does not use the reader of the `safetensors` crate. That reader collects all tensors
//! in maps and vectors. They become longer than the header, and abort if memory is missing.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::{self, Display};

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::format::{MAX_HEADER_BYTES, METADATA};
use super::limits::check_header;
use super::unescape::unescape;
use crate::fallible;
use crate::file::{Input, short_list};
use crate::types::{DType, Error, Result, Shape, TensorSpec};

/// A validated header. The tensors are adjacent, and they end at the end of the file.
pub(super) struct Header {
    /// The library's entry in the metadata, if there is one.
    pub(super) manifest: Option<String>,
    /// A tree, because its allocations stay small. With many small tensors, a growing vector would
    /// become longer than the header.
    tensors: BTreeMap<String, TensorEntry>,
}

/// A tensor of a file.
struct TensorEntry {
    spec: TensorSpec,
    /// The offset of the first byte, from the end of the header.
    start: usize,
    is_expected: bool,
}

impl Header {
    /// Reads the header and checks it against the length of the file.
    ///
    /// # Errors
    /// - [`Error::Corrupt`] if the header is not valid, or if its tensors do not fill the file.
    /// - [`Error::Io`] if the file cannot be read.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub(super) fn read(input: &mut Input<'_>) -> Result<Self> {
        let num_bytes = input.u64("the length of the header")?;
        if num_bytes > MAX_HEADER_BYTES {
            return Err(input.corrupt(format!("a header cannot have {num_bytes} bytes")));
        }
        let text = input.bytes(num_bytes, "the header")?;
        // Checked before parsing, because the parser allocates for long strings and deep nesting.
        check_header(&text).map_err(|reason| input.corrupt(format!("its header: {reason}")))?;
        let no_header =
            |error: &dyn Display| input.corrupt(format!("it is not a safetensors file: {error}"));
        let Entries { manifest, tensors } =
            serde_json::from_slice(&text).map_err(|error| no_header(&error))?;
        let manifest = match manifest {
            Some(json) => {
                let text = fallible::string(json.get().len())?;
                Some(unescape(json, text).map_err(|error| no_header(&error))?)
            }
            None => None,
        };
        let header = Self { manifest, tensors };
        let num_bytes = header.check()?.map_err(|error| no_header(&error))?;
        if num_bytes as u64 != input.remaining() {
            return Err(input.corrupt(format!(
                "its header describes {num_bytes} bytes of tensors, the file has {}",
                input.remaining()
            )));
        }
        Ok(header)
    }

    /// Checks that there are no gaps between the tensors. Returns their total size, or a
    /// description of the problem.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    fn check(&self) -> Result<Result<usize, String>> {
        let mut end = 0;
        for (name, entry) in self.places()? {
            let next =
                entry.spec.num_bytes().ok().and_then(|length| entry.start.checked_add(length));
            let Some(next) = next.filter(|_| entry.start == end) else {
                let text = format!("tensor `{name}` does not begin where the previous tensor ends");
                return Ok(Err(text));
            };
            end = next;
        }
        Ok(Ok(end))
    }

    /// Returns the tensors in the order of the file.
    fn places(&self) -> Result<Vec<(&str, &TensorEntry)>> {
        let mut places: Vec<_> =
            fallible::collect(self.tensors.iter().map(|(name, entry)| (&**name, entry)))?;
        // Empty tensors come before the tensor that begins at the same byte.
        places
            .sort_unstable_by_key(|(name, entry)| (entry.start, entry.spec.num_elements(), *name));
        Ok(places)
    }

    /// Returns the name and spec of each tensor in the order of the file, and whether
    /// [`Header::expect`] was called for it.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub(super) fn tensors(&self) -> Result<impl Iterator<Item = (&str, &TensorSpec, bool)>> {
        let places = self.places()?.into_iter();
        Ok(places.map(|(name, entry)| (name, &entry.spec, entry.is_expected)))
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Returns the spec of a tensor, or `None` if the file has no tensor of this name.
    pub(super) fn spec(&self, name: &str) -> Option<&TensorSpec> {
        self.tensors.get(name).map(|entry| &entry.spec)
    }

    /// Marks a tensor as expected.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the file has no tensor of this name.
    /// - [`Error::InvalidArgument`] if the tensor has another shape or dtype.
    pub(super) fn expect(&mut self, name: &str, spec: &TensorSpec) -> Result<()> {
        let missing = || Error::invalid(missing(name));
        let entry = self.tensors.get_mut(name).ok_or_else(missing)?;
        if entry.spec != *spec {
            let found = &entry.spec;
            return Err(Error::invalid(format!("tensor `{name}`: expected {spec}, found {found}")));
        }
        entry.is_expected = true;
        Ok(())
    }
}

pub(super) fn missing(name: &str) -> String {
    format!("tensor `{name}` is missing")
}

/// A parsed header, before its tensors are checked against each other.
struct Entries<'a> {
    manifest: Option<&'a RawValue>,
    tensors: BTreeMap<String, TensorEntry>,
}

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tensors;

        impl<'de> Visitor<'de> for Tensors {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Entries<'de>, M::Error> {
                let mut header = Entries { manifest: None, tensors: BTreeMap::new() };
                // Rejects duplicates: readers disagree on which of two entries they use.
                let mut has_metadata = false;
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        if std::mem::replace(&mut has_metadata, true) {
                            return Err(M::Error::custom("`__metadata__` appears twice"));
                        }
                        header.manifest = map.next_value::<Metadata<'_>>()?.kvstore;
                        continue;
                    }
                    let entry =
                        map.next_value::<TensorInfo>()?.entry(&name).map_err(M::Error::custom)?;
                    match header.tensors.entry(name) {
                        Entry::Vacant(free) => free.insert(entry),
                        Entry::Occupied(taken) => {
                            let text = format!("tensor `{}` appears twice", taken.key());
                            return Err(M::Error::custom(text));
                        }
                    };
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(Tensors)
    }
}

/// The metadata. Ignores the entries of other programs.
struct Metadata<'a> {
    /// The library's entry as raw JSON, with quotes and escapes. May be something else than a
    /// string.
    kvstore: Option<&'a RawValue>,
}

impl<'de> Deserialize<'de> for Metadata<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MetadataVisitor;

        impl<'de> Visitor<'de> for MetadataVisitor {
            type Value = Metadata<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Metadata<'de>, M::Error> {
                let mut kvstore = None;
                // Keeps the library's entry raw: `unescape` decodes it with less memory than the
                // parser.
                while let Some(name) = map.next_key::<String>()? {
                    if name != METADATA {
                        map.next_value::<IgnoredString>()?;
                    } else if kvstore.replace(map.next_value()?).is_some() {
                        return Err(M::Error::custom(format!("`{METADATA}` appears twice")));
                    }
                }
                Ok(Metadata { kvstore })
            }
        }
        deserializer.deserialize_map(MetadataVisitor)
    }
}

/// A string that is checked and then ignored.
struct IgnoredString;

impl<'de> Deserialize<'de> for IgnoredString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = IgnoredString;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E>(self, _: &str) -> Result<IgnoredString, E> {
                Ok(IgnoredString)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// The entry of a tensor. Unknown fields are errors, as in the `safetensors` crate.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TensorInfo {
    dtype: safetensors::Dtype,
    #[serde(deserialize_with = "short_list")]
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

impl TensorInfo {
    /// Checks the entry: the offsets must match the dtype and shape.
    fn entry(self, name: &str) -> Result<TensorEntry, String> {
        let Self { dtype, shape, data_offsets: (start, end) } = self;
        let known = DType::ALL.into_iter().find(|ours| ours.safetensors() == dtype);
        let Some(dtype) = known else {
            return Err(format!("tensor `{name}`: the element type {dtype:?} is not supported"));
        };
        let spec = TensorSpec::new(Shape::from(shape), dtype);
        match (spec.num_bytes(), end.checked_sub(start)) {
            (Ok(expected), Some(found)) if expected == found => {
                Ok(TensorEntry { spec, start, is_expected: false })
            }
            _ => Err(format!(
                "tensor `{name}`: bytes {start} to {end} do not have the size of {spec}"
            )),
        }
    }
}
