package dev.kvstore;

/** Native methods for checkpoints and optimizer state files. */
final class NativeCheckpoint {
    private NativeCheckpoint() {}

    static native long begin(long snapshot, String file);

    /** Starts to write a delta of the snapshot {@code base}. */
    static native long beginSince(long snapshot, String file, long base);

    static native long bytes(long checkpoint);

    static native long bytesWritten(long checkpoint);

    /** Waits until the file is in place. Call this once per checkpoint. */
    static native void awaitEnd(long checkpoint);

    static native void release(long checkpoint);

    /** Waits for all checkpoints of the process. Returns failures that no caller has seen. */
    static native String[] finish();

    static native void restore(long store, String file);

    static native void saveOptimizerStates(long store, String file, boolean dumpOptimizer);

    static native void loadOptimizerStates(long store, String file);
}
