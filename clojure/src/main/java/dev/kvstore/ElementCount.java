package dev.kvstore;

import static java.util.Objects.requireNonNull;

/**
 * Checks the number of elements before the native library does, because its message would not name
 * the data type of the array.
 */
final class ElementCount {
    private ElementCount() {}

    static void check(long found, Shape shape, DType dtype) {
        requireNonNull(shape, "shape");
        requireNonNull(dtype, "dtype");
        if (found != shape.product()) {
            throw KVStoreException.lengthMismatch(
                    "elements for " + dtype + " " + shape, shape.product(), found);
        }
    }

    static void check(long found, NDArray array) {
        array.handle();
        check(found, array.shape(), array.dtype());
    }
}
