package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.lang.ref.Reference;

/** Computes with an {@link NDArray} as a vector or a matrix. */
public sealed interface LinearAlgebra permits NDArray {
    /**
     * Returns the inner product of two vectors or the product of two matrices.
     *
     * @param other the right operand
     * @return a new array, of shape {@code (1)} for two vectors
     * @throws KVStoreException with {@code SPEC_MISMATCH} when the operands do not fit
     */
    default NDArray dot(NDArray other) {
        requireNonNull(other, "other");
        return array().derive(handle -> NativeNDArray.dot(handle, other.handle()), other);
    }

    /**
     * Returns the matrix with rows and columns exchanged.
     *
     * @return a new array
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this array has not two dimensions
     */
    default NDArray transpose() {
        return array().derive(NativeNDArray::transpose);
    }

    /**
     * Returns the column of the greatest element of each row.
     *
     * @return a new array with one dimension
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this array has not two dimensions
     */
    default NDArray argmaxChannel() {
        return array().derive(0, NativeNDArray::argmaxChannel);
    }

    /**
     * Returns one element of each row of this matrix.
     *
     * @param columns the column of the element, for each row
     * @return a new array with one dimension
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this array has not two dimensions
     *     or there is no such column, with {@code LENGTH_MISMATCH} when there are not as many
     *     columns as rows
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
     * Sets one element of each row of this matrix to one and all others to zero.
     *
     * @param columns the column of the one, for each row
     * @return this array
     * @throws KVStoreException as {@link #chooseElements} does
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
