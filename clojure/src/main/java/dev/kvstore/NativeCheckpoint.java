package dev.kvstore;

/** Entry points of the native library for the files of stores. */
final class NativeCheckpoint {
    private NativeCheckpoint() {}

    static native long begin(long snapshot, String file);

    static native long bytes(long checkpoint);

    static native long bytesWritten(long checkpoint);

    /** Blocks until the file is in its place; once for every checkpoint. */
    static native void awaitEnd(long checkpoint);

    static native void release(long checkpoint);

    /** Waits for all checkpoints of the process. Returns failures that no caller has seen. */
    static native String[] finish();

    static native void restore(long store, String file);

    static native void saveOptimizerStates(long store, String file, boolean dumpOptimizer);

    static native void loadOptimizerStates(long store, String file);
}
