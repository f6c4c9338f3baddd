//! Arithmetic, comparison, reduction and matrix operations of tensors.

use super::Tensor;
use crate::backend::{Check, MatmulSize, Operand};
use crate::types::{BinaryOp, DType, Error, Reduction, Result, Scalar, Shape, TensorSpec, UnaryOp};

impl Tensor {
    /// Returns `self op other` on the device of `self`.
    ///
    /// Arithmetic requires equal shapes and dtypes. A comparison requires equal dtypes, and
    /// broadcasts axes of length 1.
    ///
    /// # Errors
    /// - [`Error::SpecMismatch`] if the shapes or dtypes do not match.
    /// - [`Error::InvalidArgument`] for an integer division by zero.
    pub fn binary(&self, op: BinaryOp, other: &Self) -> Result<Self> {
        let mut result = self.clone();
        if op.is_comparison() && self.shape() != other.shape() && self.dtype() == other.dtype() {
            let shape = broadcast_shape(op, self, other)?;
            result = self.expand(&shape)?;
            result.binary_assign(op, &other.expand(&shape)?)?;
        } else {
            result.binary_assign(op, other)?;
        }
        Ok(result)
    }

    /// Returns `self op number`, or `number op self` if `reversed` is true.
    ///
    /// Converts the number to the tensor's dtype first.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] for an integer division by zero.
    pub fn binary_scalar(&self, op: BinaryOp, number: Scalar, reversed: bool) -> Result<Self> {
        let mut result = self.clone();
        let dtype = self.dtype();
        result.mutate(|backend, in_out| {
            backend.binary(op, dtype, in_out, Operand::Scalar(number), reversed)
        })?;
        Ok(result)
    }

    /// Replaces `self` by `self op other`. The tensor is unchanged if the call fails.
    ///
    /// # Errors
    /// - [`Error::SpecMismatch`] if the shapes or dtypes differ.
    /// - [`Error::InvalidArgument`] for an integer division by zero.
    pub fn binary_assign(&mut self, op: BinaryOp, other: &Self) -> Result<()> {
        if self.spec() != other.spec() {
            return Err(Error::operand_mismatch(op.name(), self.spec(), other.spec()));
        }
        let other = other.to_device_of(self)?;
        let dtype = self.dtype();
        self.mutate(|backend, in_out| {
            backend.binary(op, dtype, in_out, Operand::Span(other.span()), false)
        })
    }

    /// Replaces `self` by `self op number`. The tensor is unchanged if the call fails.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] for an integer division by zero.
    pub fn binary_scalar_assign(&mut self, op: BinaryOp, number: Scalar) -> Result<()> {
        let dtype = self.dtype();
        self.mutate(|backend, in_out| {
            backend.binary(op, dtype, in_out, Operand::Scalar(number), false)
        })
    }

    /// Returns the result of `op` for each element.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn unary(&self, op: UnaryOp) -> Result<Self> {
        let mut result = self.clone();
        let dtype = self.dtype();
        result.mutate(|backend, in_out| backend.unary(op, dtype, in_out))?;
        Ok(result)
    }

    /// Returns every element clipped to `[low, high]`. NaN stays NaN, and a limit that is NaN does
    /// not limit. For integer tensors, the limits are truncated to integers.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn clip(&self, low: Scalar, high: Scalar) -> Result<Self> {
        let mut result = self.clone();
        let dtype = self.dtype();
        let low = low.to_limit(dtype, f64::NEG_INFINITY);
        let high = high.to_limit(dtype, f64::INFINITY);
        result.mutate(|backend, in_out| backend.clip(dtype, in_out, low, high))?;
        Ok(result)
    }

    /// Returns all elements reduced to one. The result has the shape `[1]`.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] for the largest or smallest element of an empty tensor.
    pub fn reduce(&self, op: Reduction) -> Result<Self> {
        let mut result = self.allocate_like(TensorSpec::new([1], self.dtype()))?;
        let dtype = self.dtype();
        result.overwrite(|backend, dst| backend.reduce(op, dtype, dst, self.span()))?;
        Ok(result)
    }

    /// Returns the inner product of two vectors as a tensor of shape `[1]`, or the product of
    /// matrices and vectors.
    ///
    /// # Errors
    /// - [`Error::SpecMismatch`] if the inner lengths or the dtypes differ.
    /// - [`Error::InvalidArgument`] if an operand is neither a vector nor a matrix.
    /// - [`Error::Unsupported`] if the dtype is neither `F32` nor `F64`.
    pub fn dot(&self, other: &Self) -> Result<Self> {
        self.dot_checked(other, &|| Ok(()))
    }

    /// Returns the product like [`Tensor::dot`]. The calling thread calls `check` between blocks.
    /// An error of `check` cancels the product.
    ///
    /// # Errors
    /// - The errors of [`Tensor::dot`].
    /// - The error of `check`.
    pub fn dot_checked(&self, other: &Self, check: &Check<'_>) -> Result<Self> {
        let (size, shape) = product_size(self, other)?;
        let other = other.to_device_of(self)?;
        let mut result = self.allocate_like(TensorSpec::new(shape, self.dtype()))?;
        let dtype = self.dtype();
        result.overwrite(|backend, dst| {
            backend.matmul(dtype, dst, self.span(), other.span(), size, check)
        })?;
        Ok(result)
    }

    /// Returns the transpose of a matrix.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the tensor is not a matrix.
    pub fn transpose(&self) -> Result<Self> {
        let &[rows, columns] = self.shape().dims() else {
            return Err(Error::invalid(format!(
                "transpose: expected a matrix, found {}",
                self.spec()
            )));
        };
        let mut result = self.allocate_like(TensorSpec::new([columns, rows], self.dtype()))?;
        let dtype = self.dtype();
        result.overwrite(|backend, dst| backend.transpose(dtype, dst, self.span(), rows))?;
        Ok(result)
    }

    /// Returns the column of the largest element of each row of a matrix. Of equal elements, the
    /// first one wins.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the tensor is not a matrix.
    /// - [`Error::InvalidArgument`] if the rows are empty.
    pub fn argmax_channel(&self) -> Result<Self> {
        let &[rows, columns] = self.shape().dims() else {
            return Err(Error::invalid(format!(
                "argmax: expected a matrix, found {}",
                self.spec()
            )));
        };
        if columns == 0 {
            return Err(Error::invalid("argmax: the rows have no elements"));
        }
        let mut result = self.allocate_like(TensorSpec::new([rows], self.dtype()))?;
        let dtype = self.dtype();
        result.overwrite(|backend, dst| backend.argmax(dtype, dst, self.span(), rows))?;
        Ok(result)
    }

    /// Repeats the axes of length 1 up to `shape`. Both shapes have the same number of axes.
    fn expand(&self, shape: &Shape) -> Result<Self> {
        if self.shape() == shape {
            return Ok(self.clone());
        }
        let mut result = self.allocate_like(TensorSpec::new(shape, self.dtype()))?;
        let (dtype, from) = (self.dtype(), self.shape().dims());
        result.overwrite(|backend, dst| {
            backend.expand(dtype, dst, shape.dims(), self.span(), from)
        })?;
        Ok(result)
    }

    /// Returns the tensors concatenated along `axis`, on the device of the first one.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if there are no tensors.
    /// - [`Error::InvalidArgument`] if the tensors have no such axis.
    /// - [`Error::SpecMismatch`] if the dtypes differ, or the lengths of an axis other than `axis`.
    pub fn concatenate(tensors: &[Self], axis: usize) -> Result<Self> {
        let Some(first) = tensors.first() else {
            return Err(Error::invalid("concatenate: no arrays"));
        };
        let shape = joined_shape(first, tensors, axis)?;
        let outer: usize = shape.dims().iter().take(axis).product();
        let mut result = first.allocate_like(TensorSpec::new(shape, first.dtype()))?;
        let row: usize = result.num_elements().checked_div(outer).unwrap_or(0);
        let mut offset = 0;
        // A tensor has `outer` contiguous parts. They are not neighbours in the result, so each
        // needs a copy of its own.
        for tensor in tensors {
            let tensor = tensor.to_device_of(first)?;
            let part = tensor.num_elements().checked_div(outer).unwrap_or(0);
            for index in 0..outer {
                let source = tensor.view(index * part, Shape::from([part]))?;
                result.mutate_part(index * row + offset, part, |backend, in_out| match in_out {
                    crate::backend::InOut::InPlace(dst)
                    | crate::backend::InOut::Into { dst, .. } => backend.copy(dst, source.span()),
                })?;
            }
            offset += part;
        }
        Ok(result)
    }

    /// Returns the only element of a tensor, as `f64`.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the tensor does not have exactly one element.
    pub fn to_scalar(&self) -> Result<f64> {
        match self.read_as::<f64>()?.as_slice() {
            &[number] => Ok(number),
            _ => Err(Error::invalid(format!(
                "expected an array with one element, found {}",
                self.spec()
            ))),
        }
    }
}

fn broadcast_shape(op: BinaryOp, left: &Tensor, right: &Tensor) -> Result<Shape> {
    let mismatch = || Error::operand_mismatch(op.name(), left.spec(), right.spec());
    let (a, b) = (left.shape().dims(), right.shape().dims());
    if a.len() != b.len() {
        return Err(mismatch());
    }
    let dims = a.iter().zip(b).map(|pair| match pair {
        (&a, &b) if a == b || b == 1 => Ok(a),
        (1, &b) => Ok(b),
        _ => Err(mismatch()),
    });
    Ok(Shape::from(dims.collect::<Result<Vec<_>>>()?))
}

fn product_size(left: &Tensor, right: &Tensor) -> Result<(MatmulSize, Shape)> {
    let dtype = left.dtype();
    if !matches!(dtype, DType::F32 | DType::F64) {
        return Err(Error::Unsupported(format!(
            "dot: expected the dtype f32 or f64, found {dtype}"
        )));
    }
    let mismatch = |shape: Vec<usize>| {
        Error::operand_mismatch("dot", &TensorSpec::new(shape, dtype), right.spec())
    };
    // A vector is a row on the left and a column on the right.
    let (size, shape) = match (left.shape().dims(), right.shape().dims()) {
        (&[k], &[_]) => (MatmulSize { m: 1, k, n: 1 }, Vec::from([1])),
        (&[m, k], &[_]) => (MatmulSize { m, k, n: 1 }, Vec::from([m])),
        (&[k], &[_, n]) => (MatmulSize { m: 1, k, n }, Vec::from([n])),
        (&[m, k], &[_, n]) => (MatmulSize { m, k, n }, Vec::from([m, n])),
        _ => {
            return Err(Error::invalid(format!(
                "dot: expected vectors or matrices, found {} and {}",
                left.spec(),
                right.spec()
            )));
        }
    };
    if right.shape().num_rows() != size.k || right.dtype() != dtype {
        let mut expected = Vec::from(right.shape().dims());
        if let Some(inner) = expected.first_mut() {
            *inner = size.k;
        }
        return Err(mismatch(expected));
    }
    Ok((size, Shape::from(shape)))
}

fn joined_shape(first: &Tensor, tensors: &[Tensor], axis: usize) -> Result<Shape> {
    let mut joined = Vec::from(first.shape().dims());
    if axis >= joined.len() {
        return Err(Error::invalid(format!(
            "concatenate: axis {axis} is out of range for {}: expected less than {}",
            first.spec(),
            joined.len()
        )));
    }
    let mut length = 0;
    for tensor in tensors {
        // The tensor may differ from the first one only in the length of `axis`.
        let mut expected = Vec::from(first.shape().dims());
        let own = tensor.shape().dims().get(axis).copied().unwrap_or(0);
        if let Some(dim) = expected.get_mut(axis) {
            *dim = own;
        }
        if expected != tensor.shape().dims() || tensor.dtype() != first.dtype() {
            let expected = TensorSpec::new(expected, first.dtype());
            return Err(Error::operand_mismatch("concatenate", &expected, tensor.spec()));
        }
        length += own;
    }
    if let Some(dim) = joined.get_mut(axis) {
        *dim = length;
    }
    Ok(Shape::from(joined))
}
