package dev.kvstore;

import static java.util.Objects.requireNonNull;

/** Creates views of an {@link NDArray}: arrays that share its elements. */
public sealed interface ArrayViews permits NDArray {
    /**
     * Returns a range of rows. The result shares its elements with this array.
     *
     * @param start the first row
     * @param stop the row after the last one
     * @return a view of the same rank
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if this array has no such rows
     */
    default NDArray slice(long start, long stop) {
        return array().view(handle -> NativeNDArray.slice(handle, start, stop));
    }

    /**
     * Returns one row of this array without its leading dimension. The result shares its elements
     * with this array.
     *
     * @param index the row
     * @return a view, of shape {@code (1)} if this array has one dimension
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if this array has no such row
     */
    default NDArray at(long index) {
        return array().view(handle -> NativeNDArray.at(handle, index));
    }

    /**
     * Returns this array in another shape. The result shares its elements with this array.
     *
     * @param dimensions the new dimensions, where some numbers have a special meaning. -1 is
     *     inferred from the size and the other dimensions; 0 copies the dimension at the same
     *     position; -2 copies all remaining dimensions; -3 multiplies the next two dimensions; -4
     *     splits the next dimension into the two numbers that follow
     * @return a view of the same size
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the sizes differ
     */
    default NDArray reshape(long... dimensions) {
        requireNonNull(dimensions, "dimensions");
        return array().view(handle -> NativeNDArray.reshape(handle, dimensions));
    }

    private NDArray array() {
        return (NDArray) this;
    }
}
