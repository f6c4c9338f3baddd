package dev.kvstore;

/** Entry points of the native library for snapshots of stores, and for the files of them. */
final class NativeSnapshot {
    private NativeSnapshot() {}

    static native long take(long store);

    static native long read(String file);

    static native void release(long snapshot);

    static native void rollback(long store, long snapshot);

    static native String storeType(long snapshot);

    static native String[] keys(long snapshot);

    /** Returns the description of a new array. */
    static native long[] get(long snapshot, String key);

    static native String[] changedKeys(long snapshot, long other);

    static native boolean isIdentical(long snapshot, long other);

    static native void saveOptimizerStates(long store, String file, boolean dumpOptimizer);

    static native void loadOptimizerStates(long store, String file);

    static native long beginCheckpoint(long snapshot, String file);

    static native long checkpointBytes(long checkpoint);

    static native long checkpointBytesWritten(long checkpoint);

    /** Blocks until the file is in its place; once for every checkpoint. */
    static native void awaitCheckpoint(long checkpoint);

    static native void releaseCheckpoint(long checkpoint);
}
