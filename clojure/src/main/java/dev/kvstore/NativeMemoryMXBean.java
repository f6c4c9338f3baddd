package dev.kvstore;

/**
 * The native memory of arrays and stores for monitoring tools, see
 * {@link NativeMemory#registerMXBean}.
 */
public interface NativeMemoryMXBean {
    /**
     * Returns {@link NativeMemory#liveBytes}.
     *
     * @return the size in bytes
     */
    long getLiveBytes();

    /**
     * Returns {@link NativeMemory#pooledBytes}.
     *
     * @return the size in bytes
     */
    long getPooledBytes();

    /**
     * Returns {@link NativeMemory#softCap}.
     *
     * @return the size in bytes
     */
    long getSoftCap();

    /**
     * Calls {@link NativeMemory#setSoftCap}.
     *
     * @param numBytes the size in bytes, greater than 0
     */
    void setSoftCap(long numBytes);

    /**
     * Returns {@link NativeMemory#open}.
     *
     * @return the number
     */
    long getOpen();

    /**
     * Returns {@link NativeMemory#collectedUnclosed}.
     *
     * @return the number
     */
    long getCollectedUnclosed();

    /** Calls {@link NativeMemory#trim}. */
    void trim();
}
