package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.lang.ref.Reference;

/** Vector and matrix operations of an {@link NDArray}. */
public sealed interface LinearAlgebra permits NDArray {
    /**
     * Returns the inner product of two vectors or the product of two matrices.
     *
     * @param other the right operand
     * @return a new array, of shape {@code (1)} for two vectors
     * @throws KVStoreException with {@code SPEC_MISMATCH} if the shapes or data types do not match
     */
    default NDArray dot(NDArray other) {
        requireNonNull(other, "other");
        return array().derive(handle -> NativeNDArray.dot(handle, other.handle()), other);
    }

    /**
     * Returns the transposed matrix.
     *
     * @return a new array
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if this array does not have two
     *     dimensions
     */
    default NDArray transpose() {
        return array().derive(NativeNDArray::transpose);
    }

    /**
     * Returns the column index of the maximum of each row.
     *
     * @return a new array with one dimension
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if this array does not have two
     *     dimensions
     */
    default NDArray argmaxChannel() {
        return array().derive(0, NativeNDArray::argmaxChannel);
    }

    /**
     * Returns one element of each row of this matrix.
     *
     * @param columns the column index of the element, for each row
     * @return a new array with one dimension
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if this array does not have two
     *     dimensions or has no such column
     * @throws KVStoreException with {@code LENGTH_MISMATCH} if the number of column indices is not
     *     the row count
     */
    default NDArray chooseElements(NDArray columns) {
        requireNonNull(columns, "columns");
        NDArray array = array();
        return array.derive(
                array.dtype().inBytes(columns.size()),
                handle -> NativeNDArray.chooseElements(handle, columns.handle()),
                columns);
    }

    /**
     * Sets one element of each row of this matrix to one and all other elements to zero.
     *
     * @param columns for each row, the column index of the element that is set to one
     * @return this array
     * @throws KVStoreException see {@link #chooseElements}
     */
    default NDArray setOneHot(NDArray columns) {
        requireNonNull(columns, "columns");
        try {
            return array().change(handle -> NativeNDArray.setOneHot(handle, columns.handle()));
        } finally {
            Reference.reachabilityFence(columns);
        }
    }

    private NDArray array() {
        return (NDArray) this;
    }
}
