package dev.kvstore;

/** Native methods for snapshots of stores. */
final class NativeSnapshot {
    private NativeSnapshot() {}

    static native long take(long store);

    static native long read(String file);

    /** Returns the handle of a snapshot with all values in the memory of this process. */
    static native long load(long snapshot);

    /** Returns the files that restoring the snapshot needs, the newest first. */
    static native String[] files(long snapshot);

    static native void release(long snapshot);

    static native void rollback(long store, long snapshot);

    static native String storeType(long snapshot);

    static native String[] keys(long snapshot);

    /** Returns the description of a new array. */
    static native long[] get(long snapshot, String key);

    /** Returns the same as {@link NativeKVStore#stats}. */
    static native Object[] stats(long snapshot);

    /** Returns the same as {@link NativeKVStore#hyperParameters}. */
    static native Object[] hyperParameters(long snapshot);

    /** Returns the handle of a new state, or 0 if the key has no state. */
    static native long optimizerState(long snapshot, String key);

    static native String[] changedKeys(long snapshot, long other);

    static native boolean isIdentical(long snapshot, long other);
}
