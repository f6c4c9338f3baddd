package dev.kvstore;

/** Native methods that do not belong to an array or a store. */
final class NativeRuntime {
    private NativeRuntime() {}

    /**
     * Loads a class that the library needs to report that the Java heap is full. Loading it needs
     * heap, too.
     */
    static native void prepare();

    static native long liveBytes();

    /** Returns the live bytes in host memory. */
    static native long hostLiveBytes();

    static native long pooledBytes();

    /**
     * Returns for each device: kind, ordinal, live bytes, bytes kept for reuse, and total bytes or
     * -1.
     */
    static native long[] deviceMemory();

    static native int numGpus();

    static native void trim();

    /** Returns the limit of host memory in bytes, or -1 if there is none. */
    static native long memoryLimit();

    /** Sets the limit of host memory, which is the sum of live and pooled bytes. */
    static native void setMemoryLimit(long numBytes);

    static native void synchronize();

    /** Returns names and values alternately. */
    static native String[] doctor();

    /**
     * Returns the names of all enumeration constants that have a code, such as
     * {@code BinaryOp.add}, and an {@code int[]} of their codes.
     */
    static native Object[] codes();
}
