package dev.kvstore;

import static java.util.Objects.requireNonNull;

/** Values as the native library takes them: two lists of handles, of which 0 is none. */
final class Values {
    private Values() {}

    /** The handles of the arrays. */
    static long[] arrays(Value[] values) {
        long[] handles = new long[values.length];
        for (int i = 0; i < values.length; i++) {
            if (requireNonNull(values[i], "values") instanceof NDArray array) {
                handles[i] = array.handle();
            }
        }
        return handles;
    }

    /** The handles of the values of rows; null when there are none, as in most calls. */
    static long[] rows(Value[] values) {
        long[] handles = null;
        for (int i = 0; i < values.length; i++) {
            if (values[i] instanceof RowSparse rows) {
                handles = handles == null ? new long[values.length] : handles;
                handles[i] = rows.handle();
            }
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
