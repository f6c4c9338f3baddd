package dev.kvstore;

import static java.util.Objects.requireNonNull;

/** Values as the native library takes them. */
final class Values {
    private Values() {}

    /**
     * Returns a number for each value: the handle of an array, which is positive, or the bitwise complement
     * of the handle of rows, which is negative.
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

    /** What a value has of the host's memory: one on a GPU has nothing of it. */
    static long numHostBytes(Value value) {
        if (!value.context().isHost()) {
            return 0;
        }
        return value instanceof RowSparse rows ? rows.numBytes() : ((NDArray) value).numBytes();
    }
}
