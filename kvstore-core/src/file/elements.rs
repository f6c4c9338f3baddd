//! Reads and writes the elements of a tensor, row-major and little endian.

use std::io::{self, Write};

use super::input::Input;
use crate::backend::InOut;
use crate::backend::registry::Backends;
use crate::fallible;
use crate::tensor::Tensor;
use crate::types::{DType, Device, Result, TensorSpec};

/// The number of bytes to read or write at once.
const CHUNK: usize = 1 << 20;

/// Writes the elements. Does not copy elements in host memory, except on big-endian machines.
pub(crate) fn write_elements(out: &mut (impl Write + ?Sized), tensor: &Tensor) -> io::Result<()> {
    let bytes = tensor.seen_bytes().map_err(io::Error::other)?;
    if cfg!(target_endian = "little") {
        return out.write_all(&bytes);
    }
    for chunk in bytes.chunks(CHUNK) {
        let mut chunk = fallible::copied(chunk).map_err(io::Error::other)?;
        swap_on_big_endian(&mut chunk, tensor.dtype());
        out.write_all(&chunk)?;
    }
    Ok(())
}

/// Reads the elements of a tensor into host memory.
///
/// # Errors
/// - [`Error::Corrupt`](crate::types::Error::Corrupt) if the input has fewer bytes.
/// - [`Error::Io`](crate::types::Error::Io) if the file cannot be read.
/// - [`Error::OutOfMemory`](crate::types::Error::OutOfMemory) if there is not enough memory.
pub(crate) fn read_elements(
    backends: &Backends,
    input: &mut Input<'_>,
    spec: TensorSpec,
) -> Result<Tensor> {
    let (dtype, num_elements) = (spec.dtype(), spec.num_elements());
    let num_bytes = spec.num_bytes().map_err(|error| input.corrupt(error.to_string()))?;
    // Checked before the allocation, because the spec may come from an untrusted file.
    let num_bytes = input.expect(num_bytes as u64, "the elements")?;
    let mut tensor = Tensor::allocate(backends, Device::default(), spec)?;
    let mut buffer = fallible::zeroed(CHUNK.min(num_bytes))?;
    let mut first = 0;
    while first < num_elements {
        let count = (num_elements - first).min(CHUNK / dtype.size());
        let (chunk, _) = buffer.split_at_mut(count * dtype.size());
        input.fill(chunk, "the elements")?;
        swap_on_big_endian(chunk, dtype);
        tensor.mutate_part(first, count, |backend, in_out| match in_out {
            InOut::InPlace(dst) | InOut::Into { dst, .. } => backend.write(dst, chunk),
        })?;
        first += count;
    }
    Ok(tensor)
}

/// Converts elements between the byte order of this machine and little endian, the order of files.
pub(crate) fn swap_on_big_endian(elements: &mut [u8], dtype: DType) {
    if cfg!(target_endian = "big") {
        elements.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
    }
}
