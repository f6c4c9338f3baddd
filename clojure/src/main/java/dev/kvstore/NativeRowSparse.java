package dev.kvstore;

/** Native methods for row-sparse values. */
final class NativeRowSparse {
    private NativeRowSparse() {}

    /**
     * Returns the description of a new value. If {@code ids} is true, the row indices may have any
     * order, and rows with the same index are summed. Otherwise the indices must be in ascending
     * order.
     */
    static native long[] create(long rows, long[] indices, long[] shape, boolean ids);

    static native void release(long rowSparse);

    static native int numRows(long rowSparse);

    static native long[] indices(long rowSparse);

    /** Returns the description of a new array. */
    static native long[] rows(long rowSparse);

    /** Returns the description of a new array. */
    static native long[] toDense(long rowSparse);

    /**
     * Returns the descriptions of new values, concatenated: some rows of each key. {@code ids}
     * contains the row indices of all keys, {@code counts} the number of row indices of each key.
     */
    static native long[] pull(long store, String[] keys, long[] ids, long[] counts);
}
