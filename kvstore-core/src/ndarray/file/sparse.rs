//! Reads sparse arrays of a file, and converts them to dense ones.

use super::record::{dtype, num_bytes, shape};
use crate::backend::registry::Backends;
use crate::fallible;
use crate::file::{Input, swap_on_big_endian};
use crate::tensor::Tensor;
use crate::types::{DType, Device, Result, Shape, TensorSpec};

/// How the elements of an array are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    Dense,
    /// Some rows and their indices. The other rows are 0.
    RowSparse,
    /// The non-zero elements of each row and their columns.
    Csr,
}

impl Storage {
    const ALL: [Self; 3] = [Self::Dense, Self::RowSparse, Self::Csr];

    pub(super) fn code(self) -> i32 {
        match self {
            Self::Dense => 0,
            Self::RowSparse => 1,
            Self::Csr => 2,
        }
    }

    pub(super) fn read(input: &mut Input<'_>) -> Result<Self> {
        let code = input.i32("a storage type")?;
        let known = Self::ALL.into_iter().find(|storage| storage.code() == code);
        known.ok_or_else(|| input.corrupt(format!("unknown storage type {code}")))
    }
}

/// Reads the rest of a sparse array. `spec` is its dense spec, and `stored` the shape of its stored
/// elements.
pub(super) fn read(
    backends: &Backends,
    input: &mut Input<'_>,
    storage: Storage,
    spec: &TensorSpec,
    stored: Option<Shape>,
) -> Result<Tensor> {
    // A row-sparse array has a list of row indices. A CSR array has the position of the first
    // element of each row, and a list of columns.
    let num_lists = if storage == Storage::Csr { 2 } else { 1 };
    let mut lists = Vec::new();
    for _ in 0..num_lists {
        let dtype = dtype(input)?;
        lists.push(TensorSpec::new(shape(input)?.unwrap_or(Shape::from([0])), dtype));
    }
    let stored = TensorSpec::new(stored.unwrap_or(Shape::from([0])), spec.dtype());
    let mut elements = input.bytes(num_bytes(input, &stored)?, "the elements")?;
    swap_on_big_endian(&mut elements, spec.dtype());
    let lists = lists.iter().map(|list| positions(input, list)).collect::<Result<Vec<_>>>()?;

    let mut dense = zeros(input, spec)?;
    let placed = match (storage, &*lists) {
        (Storage::RowSparse, [rows]) => place_rows(&mut dense, spec, &elements, rows),
        (Storage::Csr, [starts, columns]) => {
            place_columns(&mut dense, spec, &elements, starts, columns)
        }
        _ => None,
    };
    placed.ok_or_else(|| input.corrupt("indices that do not fit the array"))?;
    Tensor::from_bytes(backends, Device::default(), spec.clone(), &dense)
}

/// Reads a list of indices.
fn positions(input: &mut Input<'_>, spec: &TensorSpec) -> Result<Vec<usize>> {
    let bytes = input.bytes(num_bytes(input, spec)?, "the positions")?;
    let number = |bytes: &[u8]| match spec.dtype() {
        DType::I64 => usize::try_from(i64::from_le_bytes(bytes.try_into().ok()?)).ok(),
        DType::I32 => usize::try_from(i32::from_le_bytes(bytes.try_into().ok()?)).ok(),
        _ => None,
    };
    let places = bytes.chunks_exact(spec.dtype().size());
    let mut numbers = fallible::with_capacity(places.len())?;
    for place in places {
        numbers.push(number(place).ok_or_else(|| {
            input.corrupt(format!("indices that are negative or have the dtype {}", spec.dtype()))
        })?);
    }
    Ok(numbers)
}

/// Returns the bytes of a dense array of zeros. They count against the input's limit for
/// allocations.
fn zeros(input: &mut Input<'_>, spec: &TensorSpec) -> Result<Vec<u8>> {
    let wanted = num_bytes(input, spec)?;
    input.spend(wanted, &format!("a sparse array of {spec}, made dense,"))?;
    let num_bytes = usize::try_from(wanted).unwrap_or(usize::MAX);
    fallible::zeroed(num_bytes)
}

/// Copies rows to their indices in the dense array. Returns `None` if a row or index does not fit.
fn place_rows(dense: &mut [u8], spec: &TensorSpec, elements: &[u8], rows: &[usize]) -> Option<()> {
    let row_bytes = spec.shape().row().num_elements().checked_mul(spec.dtype().size())?;
    if elements.len() != rows.len().checked_mul(row_bytes)? {
        return None;
    }
    if row_bytes == 0 {
        return rows.iter().all(|&row| row < spec.shape().num_rows()).then_some(());
    }
    for (&row, elements) in rows.iter().zip(elements.chunks_exact(row_bytes)) {
        let start = row.checked_mul(row_bytes)?;
        dense.get_mut(start..start.checked_add(row_bytes)?)?.copy_from_slice(elements);
    }
    Some(())
}

/// Copies elements to their columns in the dense matrix. Row `i` has the elements
/// `starts[i]..starts[i + 1]`. Returns `None` if a list does not fit.
fn place_columns(
    dense: &mut [u8],
    spec: &TensorSpec,
    elements: &[u8],
    starts: &[usize],
    columns: &[usize],
) -> Option<()> {
    let &[num_rows, num_columns] = spec.shape().dims() else { return None };
    let size = spec.dtype().size();
    // All numbers come from an untrusted file, so every index is checked.
    let fits = starts.len() == num_rows.checked_add(1)?
        && elements.len() == columns.len().checked_mul(size)?
        && (starts.first(), starts.last()) == (Some(&0), Some(&columns.len()));
    if !fits {
        return None;
    }
    for (row, limits) in starts.windows(2).enumerate() {
        let &[start, stop] = limits else { return None };
        let elements = elements.get(start * size..stop.checked_mul(size)?)?;
        for (&column, element) in columns.get(start..stop)?.iter().zip(elements.chunks_exact(size))
        {
            if column >= num_columns {
                return None;
            }
            let position = (row * num_columns + column) * size;
            dense.get_mut(position..position + size)?.copy_from_slice(element);
        }
    }
    Some(())
}
