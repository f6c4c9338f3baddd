package dev.kvstore;

import static java.util.Objects.requireNonNull;

/** Makes views of an {@link NDArray}: arrays that share its elements. */
public sealed interface ArrayViews permits NDArray {
    /**
     * Returns rows of this array. The result shares its elements with this array.
     *
     * @param start the first row
     * @param stop the row after the last one
     * @return a view of the same rank
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when there are no such rows
     */
    default NDArray slice(long start, long stop) {
        return array().view(handle -> NativeNDArray.slice(handle, start, stop));
    }

    /**
     * Returns one row of this array without its leading dimension. The result shares its elements
     * with this array.
     *
     * @param index the row
     * @return a view, of shape {@code (1)} when this array has one dimension
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when there is no such row
     */
    default NDArray at(long index) {
        return array().view(handle -> NativeNDArray.at(handle, index));
    }

    /**
     * Returns this array in another shape. The result shares its elements with this array.
     *
     * @param dimensions the new dimensions. -1 stands for the one that follows from the others, 0
     *     for the dimension in the same place, -2 for all remaining ones, -3 for the product of the
     *     next two, and -4 splits the next one into the two numbers that follow
     * @return a view of the same size
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when the sizes differ
     */
    default NDArray reshape(long... dimensions) {
        requireNonNull(dimensions, "dimensions");
        return array().view(handle -> NativeNDArray.reshape(handle, dimensions));
    }

    private NDArray array() {
        return (NDArray) this;
    }
}
