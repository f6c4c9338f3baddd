package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.util.List;
import java.util.Map;

/** Puts values under new keys of a {@link KVStore}. */
public sealed interface InitVerbs permits KVStore {
    /**
     * Puts a value under a new key.
     *
     * @param key the key
     * @param value its value
     * @return this store
     * @throws KVStoreException with {@code KEY_EXISTS} when the store holds the key, with {@code
     *     INVALID_ARGUMENT} when the value has no elements
     */
    default KVStore init(String key, Value value) {
        return init(Pairs.one(key), Pairs.one(value));
    }

    /**
     * Puts a list of one value under a new key. (A key has one value: more are {@code KEY_EXISTS}.)
     *
     * @param key the key
     * @param values its value
     * @return this store
     * @throws KVStoreException see {@link #init(String, Value)}
     */
    default KVStore init(String key, List<? extends Value> values) {
        Value[] arrays = Pairs.values(values);
        return init(Pairs.repeat(key, arrays.length), arrays);
    }

    /**
     * Puts values under new keys.
     *
     * @param keys the keys
     * @param values their values
     * @return this store
     * @throws KVStoreException see {@link #init(String, Value)}; also {@code KEY_EXISTS} when a key
     *     is named twice, and {@code LENGTH_MISMATCH}
     */
    default KVStore init(List<String> keys, List<? extends Value> values) {
        return init(Pairs.strings(keys), Pairs.values(values));
    }

    /**
     * Puts values under new keys.
     *
     * @param values the values by key
     * @return this store
     * @throws KVStoreException see {@link #init(String, Value)}
     */
    default KVStore init(Map<String, ? extends Value> values) {
        Map<String, Value> pairs = Pairs.fixed(values, "values");
        return init(Pairs.keysOf(pairs), Pairs.valuesOf(pairs, Value[]::new));
    }

    /**
     * Puts values under new keys.
     *
     * @param keys the keys
     * @param values their values
     * @return this store
     * @throws KVStoreException see {@link #init(List, List)}
     */
    default KVStore init(String[] keys, Value[] values) {
        return init(keys, values, OnExisting.REJECT);
    }

    /**
     * Stores values of several keys. Some of the keys may exist already.
     *
     * @param keys the keys
     * @param values their values
     * @param onExisting what becomes of keys that the store holds
     * @return this store
     * @throws KVStoreException see {@link #init(List, List)}
     */
    default KVStore init(
            List<String> keys, List<? extends Value> values, OnExisting onExisting) {
        return init(Pairs.strings(keys), Pairs.values(values), onExisting);
    }

    /**
     * Stores values of several keys. Some of the keys may exist already.
     *
     * @param keys the keys
     * @param values their values
     * @param onExisting what becomes of keys that the store holds
     * @return this store
     * @throws KVStoreException see {@link #init(List, List)}
     */
    default KVStore init(String[] keys, Value[] values, OnExisting onExisting) {
        Pairs.check(keys, "keys");
        Pairs.check(values, "values", keys);
        requireNonNull(onExisting, "onExisting");
        return store().change(
                handle -> NativeKVStore.init(
                        handle, keys, Values.handles(values), onExisting.code),
                values);
    }

    private KVStore store() {
        return (KVStore) this;
    }
}
