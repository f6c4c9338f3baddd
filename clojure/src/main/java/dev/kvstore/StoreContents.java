package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.util.List;

/** Returns and removes the keys of a {@link KVStore}. */
public sealed interface StoreContents permits KVStore {
    /**
     * Returns the keys that were put in and not removed.
     *
     * @return an unmodifiable list in the order of {@code init}
     */
    default List<String> keys() {
        return List.of(store().query(NativeKVStore::keys));
    }

    /**
     * Returns whether the store holds a key.
     *
     * @param key the key
     * @return true when it does
     */
    default boolean contains(String key) {
        requireNonNull(key, "key");
        return store().query(handle -> NativeKVStore.contains(handle, key));
    }

    /**
     * Returns what every key holds, in the order of their init. An updater may call this.
     *
     * @return an object for each key
     */
    default List<KeyStats> stats() {
        return KeyStats.of(store().query(NativeKVStore::stats));
    }

    /**
     * Removes keys with their values and optimizer states.
     *
     * @param keys the keys
     * @return this store
     * @throws KVStoreException with {@code KEY_NOT_FOUND}
     */
    default KVStore remove(String... keys) {
        Pairs.check(keys, "keys");
        return store().call(handle -> NativeKVStore.remove(handle, keys));
    }

    private KVStore store() {
        return (KVStore) this;
    }
}
