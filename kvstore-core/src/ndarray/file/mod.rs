//! Files of arrays in the format of MXNet. [`ArrayList::read`] reads the files of `mx.nd.save`, and
//! `mx.nd.load` reads the files of [`ArrayList::write`].
//!
//! A file has a list of arrays and a list of names. The list of names is as long as the list of
//! arrays, or empty. All numbers are little endian:
//!
//! | bytes | contents |
//! |---|---|
//! | 8 | [`LIST_MAGIC`] |
//! | 8 | 0 |
//! | 8 | number of arrays |
//! | | the arrays: see [`record`] |
//! | 8 | number of names |
//! | | the names: 8 bytes of length each, then UTF-8 |

mod record;
mod sparse;

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::Path;

use super::NDArray;
use crate::backend::registry::Backends;
use crate::fallible;
use crate::file::{Input, Replacement};
use crate::tensor::Tensor;
use crate::types::{Error, Result};

const LIST_MAGIC: u64 = 0x112;
/// The name of the input in errors, if it is not a file.
const CONTENT: &str = "a serialized array";
/// The approximate memory of an array without its elements. In a file, an empty array of the oldest
/// version has only 4 bytes.
const BYTES_OF_AN_ARRAY: u64 = 8 * 1024;

/// The arrays of a file. Either each array has a name, or no array has one.
///
/// ```no_run
/// # use kvstore_core::{ArrayList, Backends, CpuBackend, Device, NDArray, Tensor};
/// # let backends = Backends::new(vec![CpuBackend::new()]);
/// # let weights = NDArray::new(Tensor::from_slice(&backends, Device::cpu(0), [2], &[1f32, 2.0])?);
/// ArrayList::named([("w", weights)])?.write("model.params")?;
/// let list = ArrayList::read(&backends, "model.params")?;
/// assert_eq!(list.get("w").expect("the name").to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), kvstore_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ArrayList {
    arrays: Vec<NDArray>,
    names: Vec<String>,
}

impl ArrayList {
    /// Returns a list of arrays without names.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn unnamed(arrays: impl IntoIterator<Item = NDArray>) -> Result<Self> {
        Ok(Self { arrays: fallible::gather(arrays)?, names: Vec::new() })
    }

    /// Returns a list of arrays with names.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn named<N: Into<String>>(pairs: impl IntoIterator<Item = (N, NDArray)>) -> Result<Self> {
        let mut list = Self::default();
        for (name, array) in pairs {
            fallible::push(&mut list.names, name.into())?;
            fallible::push(&mut list.arrays, array)?;
        }
        Ok(list)
    }

    /// Returns the arrays in the order of the file.
    pub fn arrays(&self) -> &[NDArray] {
        &self.arrays
    }

    /// Returns the names of the arrays, or an empty slice if they have no names.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the array with this name. If several arrays have it, returns the last one.
    pub fn get(&self, name: &str) -> Option<&NDArray> {
        let position = self.names.iter().rposition(|known| known == name)?;
        self.arrays.get(position)
    }

    /// Writes a temporary file in the same folder, then renames it, so that the file is always
    /// complete.
    ///
    /// All arrays are written as arrays of `cpu(0)`. An array without axes is written with shape
    /// `[1]`, because the format has no scalars.
    ///
    /// # Errors
    /// - [`Error::Io`] if the file cannot be written.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let tensors: Vec<Tensor> = fallible::collect(self.arrays.iter().map(NDArray::tensor))?;
        Replacement::begin(path.as_ref()).write(|file| {
            write_u64(file, LIST_MAGIC)?;
            write_u64(file, 0)?;
            write_u64(file, tensors.len() as u64)?;
            for tensor in &tensors {
                record::write(file, tensor)?;
            }
            write_u64(file, self.names.len() as u64)?;
            for name in &self.names {
                write_u64(file, name.len() as u64)?;
                file.write_all(name.as_bytes())?;
            }
            Ok(())
        })
    }

    /// Reads a file of any version of the format. Arrays are read to `cpu(0)`. Sparse arrays become
    /// dense.
    ///
    /// The file may be untrusted: allocations are limited by its length.
    ///
    /// # Errors
    /// - [`Error::Io`] if the file cannot be read.
    /// - [`Error::Corrupt`] if the file has another format or is damaged.
    /// - [`Error::Unsupported`] if the arrays would take more than 1024 times the length of the
    ///   file. Sparse arrays count with their dense size.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn read(backends: &Backends, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let failed = |source| Error::Io {
            path: path.to_owned(),
            operation: "reading arrays".to_owned(),
            source,
        };
        let file = File::open(path).map_err(failed)?;
        let num_bytes = file.metadata().map_err(failed)?.len();
        let mut reader = BufReader::new(file);
        Self::read_from(backends, &mut Input::of_file(&mut reader, num_bytes, path))
    }

    /// Reads the contents of a file, as [`ArrayList::read`] does.
    ///
    /// # Errors
    /// - The errors of [`ArrayList::read`] except [`Error::Io`].
    pub fn from_bytes(backends: &Backends, bytes: &[u8]) -> Result<Self> {
        let (mut reader, num_bytes) = (bytes, bytes.len() as u64);
        Self::read_from(backends, &mut Input::of_bytes(&mut reader, num_bytes, CONTENT))
    }

    fn read_from(backends: &Backends, input: &mut Input<'_>) -> Result<Self> {
        if input.u64("the magic number")? != LIST_MAGIC {
            return Err(input.corrupt("it is not a file of arrays"));
        }
        input.u64("a reserved number")?;
        let num_arrays = input.u64("the number of arrays")?;
        let mut list = Self::default();
        // The number of arrays is untrusted, so the list grows with the arrays that are read.
        for _ in 0..num_arrays {
            input.spend(BYTES_OF_AN_ARRAY, "an array")?;
            fallible::push(&mut list.arrays, NDArray::new(record::read(backends, input)?))?;
        }
        let num_names = input.u64("the number of names")?;
        if num_names != 0 && num_names != num_arrays {
            return Err(input.corrupt(format!("{num_names} names for {num_arrays} arrays")));
        }
        for _ in 0..num_names {
            let len = input.u64("the length of a name")?;
            let name = String::from_utf8(input.bytes(len, "a name")?);
            let name = name.map_err(|_| input.corrupt("a name is not UTF-8"))?;
            fallible::push(&mut list.names, name)?;
        }
        Ok(list)
    }
}

impl NDArray {
    /// Serializes the array as a single record of a file of arrays.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn serialize(&self) -> Result<Vec<u8>> {
        let tensor = self.tensor();
        let mut bytes = fallible::with_capacity(record::HEADER_BYTES + tensor.num_bytes())?;
        let written = record::write(&mut bytes, &tensor);
        written.map_err(|error| Error::Internal(format!("writing to memory: {error}")))?;
        Ok(bytes)
    }

    /// Returns the array that [`NDArray::serialize`] or MXNet's function of this name serialized.
    ///
    /// # Errors
    /// - The errors of [`ArrayList::read`] except [`Error::Io`].
    /// - [`Error::Corrupt`] if there are trailing bytes.
    /// - [`Error::Corrupt`] if the bytes begin with four zero bytes. In an old file, these are an
    ///   array without a shape. Without a file, they are ambiguous.
    pub fn deserialize(backends: &Backends, bytes: &[u8]) -> Result<Self> {
        let (mut reader, num_bytes) = (bytes, bytes.len() as u64);
        let mut input = Input::of_bytes(&mut reader, num_bytes, CONTENT);
        let tensor = record::read(backends, &mut input)?;
        if bytes.starts_with(&record::NO_SHAPE) {
            return Err(input.corrupt("it begins with four zero bytes instead of a version"));
        }
        match input.remaining() {
            0 => Ok(Self::new(tensor)),
            left => Err(input.corrupt(format!("{left} bytes after the end of the array"))),
        }
    }
}

fn write_u64(out: &mut (impl Write + ?Sized), number: u64) -> io::Result<()> {
    out.write_all(&number.to_le_bytes())
}
