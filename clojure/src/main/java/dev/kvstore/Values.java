package dev.kvstore;

import static java.util.Objects.requireNonNull;

/** Converts values to the form that the native library takes. */
final class Values {
    private Values() {}

    /**
     * Returns a number for each value. For a dense array it is the handle, which is positive. For a
     * row-sparse value it is the bitwise complement of the handle, which is negative.
     */
    static long[] handles(Value[] values) {
        long[] handles = new long[values.length];
        for (int i = 0; i < values.length; i++) {
            handles[i] = requireNonNull(values[i], "values") instanceof RowSparse rows
                    ? ~rows.handle()
                    : ((NDArray) values[i]).handle();
        }
        return handles;
    }

    /** Returns the size of a value in host memory, which is 0 for a value on a GPU. */
    static long numHostBytes(Value value) {
        if (!value.context().isHost()) {
            return 0;
        }
        return value instanceof RowSparse rows ? rows.numBytes() : ((NDArray) value).numBytes();
    }
}
