package dev.kvstore;

/**
 * What {@link KVStore#init(java.util.List, java.util.List, OnExisting)} does with keys that already
 * exist.
 */
public enum OnExisting {
    /** The call fails with {@code KEY_EXISTS}. */
    REJECT(0),
    /** The existing keys keep their values. */
    KEEP(1),
    /**
     * The existing keys are removed first: their optimizer states start anew, and they move to the
     * end of the order.
     */
    REPLACE(2);

    /** The code of this constant in the native library. */
    final int code;

    OnExisting(int code) {
        this.code = code;
    }
}
