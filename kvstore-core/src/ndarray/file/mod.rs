//! Files of arrays in the format of MXNet, so that they can be taken along: `mx.nd.save` writes what
//! [`ArrayList::read`] reads, and the reverse.
//!
//! A file is a list of arrays, and a list of as many names or of none. All numbers are little endian:
//!
//! | bytes | |
//! |---|---|
//! | 8 | [`LIST_MAGIC`] |
//! | 8 | 0 |
//! | 8 | number of arrays, which follow: see [`record`] |
//! | 8 | number of names, which follow: 8 bytes of length, and UTF-8 |

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
/// What is read when it is no file.
const CONTENT: &str = "a serialized array";
/// About what an array takes beside its elements. An empty one of the oldest version has 4 bytes in a
/// file.
const BYTES_OF_AN_ARRAY: u64 = 8 * 1024;

/// The arrays of a file: each with a name, or none of them.
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
    /// Returns a list without names.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn unnamed(arrays: impl IntoIterator<Item = NDArray>) -> Result<Self> {
        Ok(Self { arrays: fallible::gather(arrays)?, names: Vec::new() })
    }

    /// Returns a list of arrays with their names.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
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

    /// Returns the names of the arrays, or nothing at all.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the array with this name; of several the last one.
    pub fn get(&self, name: &str) -> Option<&NDArray> {
        let position = self.names.iter().rposition(|known| known == name)?;
        self.arrays.get(position)
    }

    /// Writes the file: beside, then renamed into place, so that there is never half of it.
    ///
    /// All arrays are written as those of `cpu(0)`, and one without axes as one of shape `[1]`: the
    /// format has no scalars.
    ///
    /// # Errors
    /// [`Error::Io`].
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

    /// Reads a file of any version of the format. Arrays go to `cpu(0)`; sparse ones become dense.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] for what is no such file or a damaged one: whatever it says
    /// of itself, nothing is allocated that it has no bytes for. [`Error::Unsupported`] when its sparse
    /// arrays would together take more than 1024 times its length as dense ones.
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

    /// Reads the content of a file.
    ///
    /// # Errors
    /// [`Error::Corrupt`], as [`ArrayList::read`].
    pub fn from_bytes(backends: &Backends, bytes: &[u8]) -> Result<Self> {
        let (mut reader, num_bytes) = (bytes, bytes.len() as u64);
        Self::read_from(backends, &mut Input::of_bytes(&mut reader, num_bytes, CONTENT))
    }

    fn read_from(backends: &Backends, input: &mut Input<'_>) -> Result<Self> {
        if input.u64("the magic number")? != LIST_MAGIC {
            return Err(input.corrupt("it is no file of arrays"));
        }
        input.u64("a reserved number")?;
        let num_arrays = input.u64("the number of arrays")?;
        let mut list = Self::default();
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
    /// Returns the array as one record of a file of arrays, without the file around it.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn serialize(&self) -> Result<Vec<u8>> {
        let tensor = self.tensor();
        let mut bytes = fallible::with_capacity(record::HEADER_BYTES + tensor.num_bytes())?;
        let written = record::write(&mut bytes, &tensor);
        written.map_err(|error| Error::Internal(format!("writing to memory: {error}")))?;
        Ok(bytes)
    }

    /// Returns the array of [`NDArray::serialize`], or of MXNet's function with that name.
    ///
    /// # Errors
    /// - [`Error::Corrupt`], as [`ArrayList::read`].
    /// - [`Error::Corrupt`] for trailing bytes.
    /// - [`Error::Corrupt`] for four zero bytes. In an old file they are an array without a shape;
    ///   alone they are ambiguous.
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
