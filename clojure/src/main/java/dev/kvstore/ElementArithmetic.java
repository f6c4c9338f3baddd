package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.lang.ref.Reference;

/** Element-wise operators, functions and reductions of an {@link NDArray}. */
public sealed interface ElementArithmetic permits NDArray {
    /**
     * Returns {@code this op other}, element by element.
     *
     * @param op the operation
     * @param other the right operand
     * @return a new array
     * @throws KVStoreException with {@code SPEC_MISMATCH} if the operands have different shapes or
     *     data types. Comparisons broadcast dimensions of size 1
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if an integer is divided by zero
     */
    default NDArray apply(BinaryOp op, NDArray other) {
        requireNonNull(op, "op");
        requireNonNull(other, "other");
        return array().derive(
                handle -> NativeNDArray.binary(handle, op.code, other.handle()), other);
    }

    /**
     * Returns {@code this op scalar}, element by element.
     *
     * @param op the operation
     * @param scalar the right operand
     * @return a new array
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if an integer is divided by zero
     */
    default NDArray apply(BinaryOp op, double scalar) {
        return applyScalar(op, scalar, false);
    }

    /**
     * Returns {@code this op scalar}, element by element. The scalar is not rounded to a double, so
     * more than 53 bits are exact.
     *
     * @param op the operation
     * @param scalar the right operand
     * @return a new array
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if an integer is divided by zero
     */
    default NDArray apply(BinaryOp op, long scalar) {
        return applyScalar(op, scalar, false);
    }

    /**
     * Returns {@code scalar op this}, element by element.
     *
     * @param op the operation
     * @param scalar the left operand
     * @return a new array
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if an integer is divided by zero
     */
    default NDArray applyReversed(BinaryOp op, double scalar) {
        return applyScalar(op, scalar, true);
    }

    /**
     * Returns {@code scalar op this}, element by element. The scalar is not rounded to a double, so
     * more than 53 bits are exact.
     *
     * @param op the operation
     * @param scalar the left operand
     * @return a new array
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if an integer is divided by zero
     */
    default NDArray applyReversed(BinaryOp op, long scalar) {
        return applyScalar(op, scalar, true);
    }

    private NDArray applyScalar(BinaryOp op, double scalar, boolean reversed) {
        requireNonNull(op, "op");
        return array().derive(
                handle -> NativeNDArray.binaryDouble(handle, op.code, scalar, reversed));
    }

    private NDArray applyScalar(BinaryOp op, long scalar, boolean reversed) {
        requireNonNull(op, "op");
        return array().derive(
                handle -> NativeNDArray.binaryLong(handle, op.code, scalar, reversed));
    }

    /**
     * Replaces the elements with {@code this op other}.
     *
     * @param op the operation
     * @param other the right operand
     * @return this array
     * @throws KVStoreException with {@code SPEC_MISMATCH} if the operands have different shapes or
     *     data types
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if an integer is divided by zero
     */
    default NDArray applyInPlace(BinaryOp op, NDArray other) {
        requireNonNull(op, "op");
        requireNonNull(other, "other");
        try {
            return array().change(
                    handle -> NativeNDArray.binaryAssign(handle, op.code, other.handle()));
        } finally {
            Reference.reachabilityFence(other);
        }
    }

    /**
     * Replaces the elements with {@code this op scalar}.
     *
     * @param op the operation
     * @param scalar the right operand
     * @return this array
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if an integer is divided by zero
     */
    default NDArray applyInPlace(BinaryOp op, double scalar) {
        requireNonNull(op, "op");
        return array().change(
                handle -> NativeNDArray.binaryAssignDouble(handle, op.code, scalar));
    }

    /**
     * Replaces the elements with {@code this op scalar}. The scalar is not rounded to a double, so
     * more than 53 bits are exact.
     *
     * @param op the operation
     * @param scalar the right operand
     * @return this array
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if an integer is divided by zero
     */
    default NDArray applyInPlace(BinaryOp op, long scalar) {
        requireNonNull(op, "op");
        return array().change(
                handle -> NativeNDArray.binaryAssignLong(handle, op.code, scalar));
    }

    /**
     * Returns the sum.
     *
     * @param other the right operand
     * @return a new array
     */
    default NDArray add(NDArray other) {
        return apply(BinaryOp.ADD, other);
    }

    /**
     * Returns the sum.
     *
     * @param scalar the right operand
     * @return a new array
     */
    default NDArray add(double scalar) {
        return apply(BinaryOp.ADD, scalar);
    }

    /**
     * Adds the operand to this array.
     *
     * @param other the right operand
     * @return this array
     */
    default NDArray addInPlace(NDArray other) {
        return applyInPlace(BinaryOp.ADD, other);
    }

    /**
     * Adds the operand to this array.
     *
     * @param scalar the right operand
     * @return this array
     */
    default NDArray addInPlace(double scalar) {
        return applyInPlace(BinaryOp.ADD, scalar);
    }

    /**
     * Returns the difference.
     *
     * @param other the right operand
     * @return a new array
     */
    default NDArray subtract(NDArray other) {
        return apply(BinaryOp.SUB, other);
    }

    /**
     * Returns the difference.
     *
     * @param scalar the right operand
     * @return a new array
     */
    default NDArray subtract(double scalar) {
        return apply(BinaryOp.SUB, scalar);
    }

    /**
     * Subtracts the operand from this array.
     *
     * @param other the right operand
     * @return this array
     */
    default NDArray subtractInPlace(NDArray other) {
        return applyInPlace(BinaryOp.SUB, other);
    }

    /**
     * Subtracts the operand from this array.
     *
     * @param scalar the right operand
     * @return this array
     */
    default NDArray subtractInPlace(double scalar) {
        return applyInPlace(BinaryOp.SUB, scalar);
    }

    /**
     * Returns the product, element by element.
     *
     * @param other the right operand
     * @return a new array
     */
    default NDArray multiply(NDArray other) {
        return apply(BinaryOp.MUL, other);
    }

    /**
     * Returns the product.
     *
     * @param scalar the right operand
     * @return a new array
     */
    default NDArray multiply(double scalar) {
        return apply(BinaryOp.MUL, scalar);
    }

    /**
     * Multiplies this array by the operand, element by element.
     *
     * @param other the right operand
     * @return this array
     */
    default NDArray multiplyInPlace(NDArray other) {
        return applyInPlace(BinaryOp.MUL, other);
    }

    /**
     * Multiplies this array by a scalar.
     *
     * @param scalar the right operand
     * @return this array
     */
    default NDArray multiplyInPlace(double scalar) {
        return applyInPlace(BinaryOp.MUL, scalar);
    }

    /**
     * Returns the quotient, element by element.
     *
     * @param other the right operand
     * @return a new array
     */
    default NDArray divide(NDArray other) {
        return apply(BinaryOp.DIV, other);
    }

    /**
     * Returns the quotient.
     *
     * @param scalar the right operand
     * @return a new array
     */
    default NDArray divide(double scalar) {
        return apply(BinaryOp.DIV, scalar);
    }

    /**
     * Divides this array by the operand, element by element.
     *
     * @param other the right operand
     * @return this array
     */
    default NDArray divideInPlace(NDArray other) {
        return applyInPlace(BinaryOp.DIV, other);
    }

    /**
     * Divides this array by a scalar.
     *
     * @param scalar the right operand
     * @return this array
     */
    default NDArray divideInPlace(double scalar) {
        return applyInPlace(BinaryOp.DIV, scalar);
    }

    /**
     * Applies a function to each element.
     *
     * @param op the function
     * @return a new array
     */
    default NDArray apply(UnaryOp op) {
        requireNonNull(op, "op");
        return array().derive(handle -> NativeNDArray.unary(handle, op.code));
    }

    /**
     * Reduces all elements to one.
     *
     * @param reduction the reduction
     * @return a new array of shape {@code (1)}
     */
    default NDArray reduce(Reduction reduction) {
        requireNonNull(reduction, "reduction");
        return array().derive(0, handle -> NativeNDArray.reduce(handle, reduction.code));
    }

    /**
     * Returns the elements, clamped to a range.
     *
     * @param low the minimum of the result
     * @param high the maximum of the result
     * @return a new array
     */
    default NDArray clip(double low, double high) {
        return array().derive(handle -> NativeNDArray.clip(handle, low, high));
    }

    private NDArray array() {
        return (NDArray) this;
    }
}
