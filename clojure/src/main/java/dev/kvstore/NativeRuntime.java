package dev.kvstore;

/** Entry points of the native library that concern neither one array nor one store. */
final class NativeRuntime {
    private NativeRuntime() {}

    /** Makes ready what a full Java heap would have no room for. */
    static native void prepare();

    static native long liveBytes();

    /** Those of the live bytes that are in the host's memory. */
    static native long hostLiveBytes();

    static native long pooledBytes();

    /** Returns for each device its kind and number, live bytes, bytes kept for reuse, and all bytes or -1. */
    static native long[] deviceMemory();

    static native int numGpus();

    static native void trim();

    /** Returns the limit of the host's memory in bytes, or -1 without a limit. */
    static native long memoryLimit();

    /** Sets the limit of live and pooled host memory together. */
    static native void setMemoryLimit(long numBytes);

    static native void synchronize();

    /** Returns names and values in turn. */
    static native String[] doctor();

    /**
     * Returns the names of all numbers that stand for constants of an enumeration, such as {@code BinaryOp.add}, and
     * an {@code int[]} of the numbers.
     */
    static native Object[] codes();
}
