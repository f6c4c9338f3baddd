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

    /** The native memory of a value. */
    static long numBytes(Value value) {
        return value instanceof RowSparse rows ? rows.numBytes() : ((NDArray) value).numBytes();
    }
}
