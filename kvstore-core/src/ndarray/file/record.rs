//! Reads and writes one array of a file.
//!
//! | bytes | contents | notes |
//! |---|---|---|
//! | 4 | version | [`V2`] is written, and all versions are read; the oldest has the rank here |
//! | 4 | storage type | 0 dense, 1 row-sparse, 2 CSR; from `V2` on |
//! | | shape of the stored elements | sparse only |
//! | | shape | 4 bytes for the rank, 8 per length; in the oldest version 4 per length |
//! | 4 + 4 | device | kind and ordinal; ignored |
//! | 4 | dtype | a code |
//! | | dtypes and shapes of the index lists | sparse only |
//! | | elements | row-major |
//! | | index lists | sparse only |

use std::io::{self, Write};

use super::sparse::{self, Storage};
use crate::backend::registry::Backends;
use crate::fallible;
use crate::file::{Input, read_elements, write_elements};
use crate::tensor::Tensor;
use crate::types::{DType, Device, Result, Shape, TensorSpec};

/// The first version with 8 bytes per length.
const V1: u32 = 0xF993_FAC8;
/// The version that this library and most programs write.
const V2: u32 = 0xF993_FAC9;
/// Like `V2`, but a rank of 0 is a scalar instead of an array without a shape.
const V3: u32 = 0xF993_FACA;

/// An array without a shape in the oldest version: rank 0 instead of a version number.
pub(super) const NO_SHAPE: [u8; 4] = [0; 4];

const CPU: i32 = 1;

/// The reserved size for the header of an array. It suffices for usual numbers of axes.
pub(super) const HEADER_BYTES: usize = 128;

/// Writes an array.
pub(super) fn write(out: &mut (impl Write + ?Sized), tensor: &Tensor) -> io::Result<()> {
    let dims = match tensor.shape().dims() {
        [] => &[1],
        dims => dims,
    };
    out.write_all(&V2.to_le_bytes())?;
    write_i32(out, Storage::Dense.code())?;
    write_i32(out, i32::try_from(dims.len()).map_err(io::Error::other)?)?;
    for &dim in dims {
        out.write_all(&i64::try_from(dim).map_err(io::Error::other)?.to_le_bytes())?;
    }
    write_i32(out, CPU)?;
    write_i32(out, 0)?;
    write_i32(out, i32::from(tensor.dtype().code()))?;
    write_elements(out, tensor)
}

fn write_i32(out: &mut (impl Write + ?Sized), number: i32) -> io::Result<()> {
    out.write_all(&number.to_le_bytes())
}

/// Reads an array.
pub(super) fn read(backends: &Backends, input: &mut Input<'_>) -> Result<Tensor> {
    let version = input.u32("the version of an array")?;
    let storage = match version {
        V2 | V3 => Storage::read(input)?,
        _ => Storage::Dense,
    };
    let stored = match storage {
        Storage::Dense => None,
        Storage::RowSparse | Storage::Csr => Some(shape(input)?),
    };
    let shape = match version {
        V1 | V2 => shape(input)?,
        V3 => numpy_shape(input)?,
        0 => None,
        rank => Some(dims(input, rank, 4)?),
    };
    let Some(shape) = shape else {
        // Nothing follows the header of an array without a shape. It becomes an empty array.
        let nothing = TensorSpec::new([0], DType::F32);
        return Tensor::allocate(backends, Device::default(), nothing);
    };
    input.i32("the kind of a device")?;
    input.i32("the number of a device")?;
    let spec = TensorSpec::new(shape, dtype(input)?);
    match stored {
        None => read_elements(backends, input, spec),
        Some(stored) => sparse::read(backends, input, storage, &spec, stored),
    }
}

/// Reads a dtype.
pub(super) fn dtype(input: &mut Input<'_>) -> Result<DType> {
    let code = input.i32("a dtype")?;
    DType::from_code(code).map_err(|error| input.corrupt(error.to_string()))
}

/// Reads a rank and lengths of 8 bytes. Returns `None` for an array without a shape.
pub(super) fn shape(input: &mut Input<'_>) -> Result<Option<Shape>> {
    rank(input)?.map(|rank| dims(input, rank, 8)).transpose()
}

/// Reads a shape of version `V3`: a rank of 0 is a scalar, and -1 an array without a shape.
fn numpy_shape(input: &mut Input<'_>) -> Result<Option<Shape>> {
    match input.i32("a rank")? {
        -1 => Ok(None),
        rank => match u32::try_from(rank) {
            Ok(rank) => dims(input, rank, 8).map(Some),
            Err(_) => Err(input.corrupt(format!("an array has the rank {rank}"))),
        },
    }
}

/// Reads a rank. Returns `None` if it is 0.
fn rank(input: &mut Input<'_>) -> Result<Option<u32>> {
    let rank = input.i32("a rank")?;
    match u32::try_from(rank) {
        Ok(0) => Ok(None),
        Ok(rank) => Ok(Some(rank)),
        Err(_) => Err(input.corrupt(format!("an array has the rank {rank}"))),
    }
}

/// Reads `rank` lengths of 4 or 8 bytes each.
fn dims(input: &mut Input<'_>, rank: u32, bytes_each: u64) -> Result<Shape> {
    // Bounds the rank, and so the reserved memory, by the remaining bytes.
    input.expect(u64::from(rank) * bytes_each, "a shape")?;
    let mut dims = fallible::with_capacity(usize::try_from(rank).unwrap_or(usize::MAX))?;
    for _ in 0..rank {
        let dim = match bytes_each {
            4 => u64::from(input.u32("a shape")?),
            _ => input.u64("a shape")?,
        };
        // Lengths are signed in the format, but a negative length is an error.
        let dim = i64::try_from(dim).ok().and_then(|dim| usize::try_from(dim).ok());
        dims.push(dim.ok_or_else(|| input.corrupt("a length below zero"))?);
    }
    Ok(Shape::from(dims))
}

/// Returns the size of the elements in bytes.
pub(super) fn num_bytes(input: &Input<'_>, spec: &TensorSpec) -> Result<u64> {
    let num_bytes = spec.num_bytes().map_err(|error| input.corrupt(error.to_string()))?;
    Ok(num_bytes as u64)
}
