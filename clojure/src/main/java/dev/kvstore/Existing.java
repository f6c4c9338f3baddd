package dev.kvstore;

/** What {@link KVStore#init(java.util.List, java.util.List, Existing)} does with keys of the store. */
public enum Existing {
    /** They are refused. */
    ERROR,
    /** They stay as they are, and the new values are not used. */
    KEEP,
    /** They are removed first: states of the optimizer start anew, and they come last in order. */
    REPLACE
}
