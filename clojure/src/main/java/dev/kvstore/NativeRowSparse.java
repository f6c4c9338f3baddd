package dev.kvstore;

/** Entry points of the native library for values of rows. */
final class NativeRowSparse {
    private NativeRowSparse() {}

    /**
     * Returns the description of a new value. Where {@code ids} is set the numbers may come in any order, and rows
     * of one number are summed; otherwise they ascend.
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
     * Returns the descriptions of new values, one after the other: some rows of each key. {@code ids} are the row
     * numbers for all keys, {@code counts} how many of them each key has.
     */
    static native long[] pull(long store, String[] keys, long[] ids, long[] counts);
}
