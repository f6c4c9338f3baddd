package dev.kvstore;

/** Native methods for the processes that join and leave the group of a store. */
final class NativeGroup {
    private NativeGroup() {}

    /**
     * Returns a {@code String[]} with the names and a {@code long[]} with two numbers for each
     * member: its rank, and 1 for a reader.
     */
    static native Object[] members(long store);

    static native void onMember(long store, MembersCall listener);

    static native void onRewind(long store, RewoundCall listener);

    static native void setWeight(long store, double weight);

    static native void leave(long store);

    static native long version(long store, String key);

    static native void checkpointOnServers(long store, String name);

    /** Returns -1 if the staleness is not known. */
    static native long pushStaleness(String key);
}
