package dev.kvstore;

/** What {@link KVStore#init(java.util.List, java.util.List, OnExisting)} does with keys of the store. */
public enum OnExisting {
    /** The call fails with {@code KEY_EXISTS}. */
    REJECT(0),
    /** They stay as they are, and the new values are not used. */
    KEEP(1),
    /** They are removed first: states of the optimizer start anew, and they come last in order. */
    REPLACE(2);

    /** The number at the native border. */
    final int code;

    OnExisting(int code) {
        this.code = code;
    }
}
