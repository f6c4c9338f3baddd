//! [`FileTensor`]: the elements that a file stores under one name.

use std::io::{self, Write};
use std::sync::Arc;

use crate::file::write_elements;
use crate::tensor::Tensor;
use crate::types::{DType, Error, Result, TensorSpec};

/// The elements that a file stores under one name. Writing them copies no elements in host memory.
#[derive(Clone)]
pub(super) enum FileTensor {
    Complete(Tensor),
    /// Some rows of a tensor.
    Rows {
        tensor: Tensor,
        positions: Arc<Vec<i64>>,
    },
    /// Row indices.
    Indices(Arc<Vec<i64>>),
}

impl FileTensor {
    pub(super) fn dtype(&self) -> DType {
        match self {
            Self::Complete(tensor) | Self::Rows { tensor, .. } => tensor.dtype(),
            Self::Indices(_) => DType::I64,
        }
    }

    pub(super) fn spec(&self) -> TensorSpec {
        match self {
            Self::Complete(tensor) => tensor.spec().clone(),
            Self::Rows { tensor, positions } => {
                TensorSpec::new(tensor.shape().with_num_rows(positions.len()), tensor.dtype())
            }
            Self::Indices(indices) => TensorSpec::new([indices.len()], DType::I64),
        }
    }

    /// Returns the size of the elements.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the size overflows.
    pub(super) fn num_bytes(&self) -> Result<usize> {
        self.spec().num_bytes()
    }

    /// Returns the complete tensor.
    ///
    /// # Errors
    /// - [`Error::Internal`] if these are only rows, which a complete file does not have.
    pub(super) fn into_tensor(self) -> Result<Tensor> {
        match self {
            Self::Complete(tensor) => Ok(tensor),
            Self::Rows { .. } | Self::Indices(_) => {
                Err(Error::Internal("changed rows in a complete file".to_owned()))
            }
        }
    }

    /// Writes the elements, row-major and little endian.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Complete(tensor) => write_elements(out, tensor),
            Self::Rows { tensor, positions } => {
                for run in positions.chunk_by(|left, right| left + 1 == *right) {
                    write_elements(out, &rows_of(tensor, run).map_err(io::Error::other)?)?;
                }
                Ok(())
            }
            Self::Indices(indices) => {
                indices.iter().try_for_each(|index| out.write_all(&index.to_le_bytes()))
            }
        }
    }
}

/// Returns the rows of a tensor at these consecutive positions. They share its memory.
fn rows_of(tensor: &Tensor, run: &[i64]) -> Result<Tensor> {
    let first = run.first().and_then(|first| usize::try_from(*first).ok()).unwrap_or(usize::MAX);
    let first_element = first.saturating_mul(tensor.shape().row().num_elements());
    tensor.view(first_element, tensor.shape().with_num_rows(run.len()))
}
