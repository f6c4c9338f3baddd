package dev.kvstore;

/**
 * Native methods for stores. Each call passes all keys and handles as arrays, so it crosses into
 * native code once.
 */
final class NativeKVStore {
    private NativeKVStore() {}

    /** {@code options} are the names of options, and {@code values} their values. */
    static native long create(String name, String[] options, String[] values);

    static native void release(long store);

    static native String storeType(long store);

    static native int rank(long store);

    static native int numWorkers(long store);

    static native void barrier(long store);

    static native void setBarrierBeforeExit(long store, boolean barrierBeforeExit);

    static native int numDeadNode(long store, int nodeId);

    static native void sendCommandToServers(long store, int head, String body);

    /**
     * {@code values} has the form that {@link Values#handles} returns. {@code onExisting} is the
     * code of an {@link OnExisting}.
     */
    static native void init(long store, String[] keys, long[] values, int onExisting);

    /** {@code values} has the same form as for {@link #init}. */
    static native void push(long store, String[] keys, long[] values, int priority);

    static native void pull(long store, String[] keys, long[] outs, int priority);

    /** Returns the descriptions of the new arrays, concatenated. */
    static native long[] pullNew(long store, String[] keys);

    /** {@code values} has the same form as for {@link #init}. */
    static native void pushpull(
            long store,
            String[] valueKeys,
            long[] values,
            String[] outKeys,
            long[] outs,
            int priority);

    /** {@code values} has the same form as for {@link #init}. */
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
     * Returns a {@code String[]} with the keys and a {@code long[]} with the numbers of all keys,
     * concatenated. The numbers of a key are: pushes, size of the state in bytes, size of the value
     * in bytes, dtype code, device kind, device ordinal, rank, dimensions.
     */
    static native Object[] stats(long store);

    static native boolean contains(long store, String key);

    static native void setUpdater(long store, UpdaterCall updater);

    static native void clearUpdater(long store);

    static native void setOptimizer(long store, long optimizer);

    /** Returns a {@code String[]} with the names and a {@code double[]} with the values. */
    static native Object[] hyperParameters(long store);

    static native void setHyperParameters(long store, String[] names, double[] values);

    static native void setGradientCompression(long store, String type, double threshold);

    static native void clearGradientCompression(long store);

    static native void setClipGlobalNorm(long store, double bound);

    static native void clearClipGlobalNorm(long store);

    /** Returns the bound, or 0 if there is none. */
    static native double clipGlobalNorm(long store);
}
