package dev.kvstore;

/** Entry points of the native library for stores. Keys and handles cross as arrays, once per verb. */
final class NativeKVStore {
    private NativeKVStore() {}

    static native long create(String name);

    static native void release(long store);

    static native String storeType(long store);

    static native int rank(long store);

    static native int numWorkers(long store);

    static native void barrier(long store);

    static native void setBarrierBeforeExit(long store, boolean barrierBeforeExit);

    static native int numDeadNode(long store, int nodeId);

    static native void sendCommandToServers(long store, int head, String body);

    /**
     * Takes values as {@link Values#handles} returns them. {@code onExisting} is the ordinal of an {@link
     * OnExisting}.
     */
    static native void init(long store, String[] keys, long[] values, int onExisting);

    /** Takes values as {@link #init} does. */
    static native void push(long store, String[] keys, long[] values, int priority);

    static native void pull(long store, String[] keys, long[] outs, int priority);

    /** Returns the descriptions of the new arrays, one after the other. */
    static native long[] pullNew(long store, String[] keys);

    /** Takes values as {@link #init} does. */
    static native void pushpull(
            long store,
            String[] valueKeys,
            long[] values,
            String[] outKeys,
            long[] outs,
            int priority);

    /** Takes values as {@link #init} does. */
    static native void broadcast(
            long store,
            String[] valueKeys,
            long[] values,
            String[] outKeys,
            long[] outs,
            int priority);

    static native void remove(long store, String[] keys);

    static native String[] keys(long store);

    /**
     * Returns the keys as a {@code String[]}, and a {@code long[]} with the numbers of all keys: pushes,
     * bytes of the state, bytes of the value, dtype code, device kind, device ordinal, rank, dimensions.
     */
    static native Object[] stats(long store);

    static native boolean contains(long store, String key);

    static native void setUpdater(long store, UpdaterCall updater);

    static native void clearUpdater(long store);

    static native void setOptimizer(long store, long optimizer);

    /** Returns names as a String[], and as many values as a double[]. */
    static native Object[] hyperParameters(long store);

    static native void setHyperParameters(long store, String[] names, double[] values);

    static native void setGradientCompression(long store, String type, double threshold);

    static native void clearGradientCompression(long store);

    static native void setClipGlobalNorm(long store, double bound);

    static native void clearClipGlobalNorm(long store);

    /** Returns 0 without a bound. */
    static native double clipGlobalNorm(long store);
}
