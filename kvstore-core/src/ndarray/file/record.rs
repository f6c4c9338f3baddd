//! One array of a file.
//!
//! | bytes | | |
//! |---|---|---|
//! | 4 | version | [`V2`] is written; older ones are read, of which the oldest has its rank here |
//! | 4 | storage | 0 dense, 1 row-sparse, 2 CSR; only from `V2` on |
//! | | shape of what is stored | sparse only |
//! | | shape | rank (4), and 8 bytes per length; in the oldest version 4 |
//! | 4 + 4 | device | kind and ordinal; everything is read to `cpu(0)` |
//! | 4 | dtype | by its code |
//! | | dtypes and shapes of the positions | sparse only |
//! | | elements | row-major |
//! | | positions | sparse only |

use std::io::{self, Write};

use super::sparse::{self, Storage};
use crate::backend::registry::Backends;
use crate::fallible;
use crate::file::{Input, read_elements, write_elements};
use crate::tensor::Tensor;
use crate::types::{DType, Device, Result, Shape, TensorSpec};

/// The first version with 8 bytes per length.
const V1: u32 = 0xF993_FAC8;
/// The version that everybody writes.
const V2: u32 = 0xF993_FAC9;
/// As `V2`, of programs in which no axes mean a scalar and not an empty array.
const V3: u32 = 0xF993_FACA;

/// An array without a shape in the oldest version: rank 0 instead of a version number.
pub(super) const NO_SHAPE: [u8; 4] = [0; 4];

const CPU: i32 = 1;

/// Room for the header of an array of the usual number of axes.
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
        // An array that never got a shape: nothing follows.
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

/// Reads a rank, and as many lengths of 8 bytes; none for an array that never got a shape.
pub(super) fn shape(input: &mut Input<'_>) -> Result<Option<Shape>> {
    rank(input)?.map(|rank| dims(input, rank, 8)).transpose()
}

/// Reads a shape of the version for which a rank of 0 is that of a number, and -1 that of an array that
/// never got a shape.
fn numpy_shape(input: &mut Input<'_>) -> Result<Option<Shape>> {
    match input.i32("a rank")? {
        -1 => Ok(None),
        rank => match u32::try_from(rank) {
            Ok(rank) => dims(input, rank, 8).map(Some),
            Err(_) => Err(input.corrupt(format!("a rank of {rank}"))),
        },
    }
}

/// Reads a rank that is not 0.
fn rank(input: &mut Input<'_>) -> Result<Option<u32>> {
    let rank = input.i32("a rank")?;
    match u32::try_from(rank) {
        Ok(0) => Ok(None),
        Ok(rank) => Ok(Some(rank)),
        Err(_) => Err(input.corrupt(format!("a rank of {rank}"))),
    }
}

/// Reads that many lengths of 4 or 8 bytes.
fn dims(input: &mut Input<'_>, rank: u32, bytes_each: u64) -> Result<Shape> {
    // Bounds the rank, and so the reserved memory, by the remaining bytes.
    input.expect(u64::from(rank) * bytes_each, "a shape")?;
    let mut dims = fallible::with_capacity(usize::try_from(rank).unwrap_or(usize::MAX))?;
    for _ in 0..rank {
        let dim = match bytes_each {
            4 => u64::from(input.u32("a shape")?),
            _ => input.u64("a shape")?,
        };
        // Half of all numbers are negative lengths.
        let dim = i64::try_from(dim).ok().and_then(|dim| usize::try_from(dim).ok());
        dims.push(dim.ok_or_else(|| input.corrupt("a length below zero"))?);
    }
    Ok(Shape::from(dims))
}

/// Returns how many bytes the elements have.
pub(super) fn num_bytes(input: &Input<'_>, spec: &TensorSpec) -> Result<u64> {
    let num_bytes = spec.num_bytes().map_err(|error| input.corrupt(error.to_string()))?;
    Ok(num_bytes as u64)
}
