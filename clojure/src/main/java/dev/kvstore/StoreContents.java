package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.util.List;

/** Returns and removes the keys of a {@link KVStore}. */
public sealed interface StoreContents permits KVStore {
    /**
     * Returns all keys.
     *
     * @return an unmodifiable list in the order of initialization
     */
    default List<String> keys() {
        return List.of(store().query(NativeKVStore::keys));
    }

    /**
     * Returns whether a key is initialized.
     *
     * @param key the key
     * @return true if it is initialized
     */
    default boolean contains(String key) {
        requireNonNull(key, "key");
        return store().query(handle -> NativeKVStore.contains(handle, key));
    }

    /**
     * Returns the statistics of every key, in the order of initialization. An updater may call
     * this.
     *
     * @return one object per key
     */
    default List<KeyStats> stats() {
        return KeyStats.of(store().query(NativeKVStore::stats));
    }

    /**
     * Returns how many pushes have changed a key since it was initialized.
     *
     * @param key the key
     * @return the number of pushes, of all workers
     * @throws KVStoreException with {@code KEY_NOT_FOUND} if the key is not initialized
     */
    default long version(String key) {
        requireNonNull(key, "key");
        return store().query(handle -> NativeGroup.version(handle, key));
    }

    /**
     * Removes keys with their values and optimizer states.
     *
     * @param keys the keys
     * @return this store
     * @throws KVStoreException with {@code KEY_NOT_FOUND} if a key is not initialized; then no key
     *     is removed
     */
    default KVStore remove(String... keys) {
        Pairs.check(keys, "keys");
        return store().call(handle -> NativeKVStore.remove(handle, keys));
    }

    private KVStore store() {
        return (KVStore) this;
    }
}
