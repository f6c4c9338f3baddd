//! Reading the header of a safetensors file: what it says takes little more memory than its text.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Display};

use safetensors::tensor::{Metadata, TensorInfo};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::MAX_HEADER_BYTES;
use crate::error::Result;
use crate::file::{Input, short_list};

/// Reads the header, and returns with it the names of the tensors in the order of their places; the format's
/// library checks that places are without gaps and fit dtypes and shapes.
pub(super) fn read_header(input: &mut Input<'_>) -> Result<(Metadata, Vec<String>)> {
    let num_bytes = input.u64("the length of the header")?;
    if num_bytes > MAX_HEADER_BYTES {
        return Err(input.corrupt(format!("a header of {num_bytes} bytes is no header")));
    }
    let header = input.bytes(num_bytes, "the header")?;
    let no_header =
        |error: &dyn Display| input.corrupt(format!("it is no safetensors file: {error}"));
    let RawHeader { metadata, mut tensors } =
        serde_json::from_slice(&header).map_err(|error| no_header(&error))?;
    tensors.sort_by_key(|(_, info)| info.data_offsets);
    let names: Vec<String> = tensors.iter().map(|(name, _)| name.clone()).collect();
    let mut seen = HashSet::with_capacity(names.len());
    if let Some(name) = names.iter().find(|name| !seen.insert(*name)) {
        return Err(input.corrupt(format!("tensor `{name}` stands twice in its header")));
    }
    let header = Metadata::new(metadata, tensors).map_err(|error| no_header(&error))?;
    if header.data_len() as u64 != input.remaining() {
        return Err(input.corrupt(format!(
            "the tensors of its header have {} bytes, {} are there",
            header.data_len(),
            input.remaining()
        )));
    }
    Ok((header, names))
}

/// A header as it stands there. The library's own way to read one of many small tensors took
/// thirteen times its length.
struct RawHeader {
    metadata: Option<HashMap<String, String>>,
    tensors: Vec<(String, TensorInfo)>,
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = RawHeader;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<RawHeader, M::Error> {
                let mut header = RawHeader { metadata: None, tensors: Vec::new() };
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        header.metadata = Some(map.next_value()?);
                    } else {
                        let RawInfo { dtype, shape, data_offsets } = map.next_value()?;
                        header.tensors.push((name, TensorInfo { dtype, shape, data_offsets }));
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// What a header says of a tensor.
#[derive(Deserialize)]
struct RawInfo {
    dtype: safetensors::Dtype,
    #[serde(deserialize_with = "short_list")]
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}
