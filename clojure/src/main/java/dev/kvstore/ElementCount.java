package dev.kvstore;

import static java.util.Objects.requireNonNull;

/** Checks the number of elements, because native messages name the type of the data instead. */
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
