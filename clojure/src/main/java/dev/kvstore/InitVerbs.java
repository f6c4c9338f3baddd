package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.util.List;
import java.util.Map;

/** Initializes keys of a {@link KVStore} with values. */
public sealed interface InitVerbs permits KVStore {
    /**
     * Stores a value under a new key.
     *
     * @param key the key
     * @param value the value
     * @return this store
     * @throws KVStoreException with {@code KEY_EXISTS} if the key already exists
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the value has no elements
     */
    default KVStore init(String key, Value value) {
        return init(Pairs.one(key), Pairs.one(value));
    }

    /**
     * Stores a value under a new key. The list must have exactly one element.
     *
     * @param key the key
     * @param values a list of one value
     * @return this store
     * @throws KVStoreException see {@link #init(String, Value)}; {@code KEY_EXISTS} if the list has
     *     more than one element
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
     * @throws KVStoreException see {@link #init(String, Value)}; also with {@code KEY_EXISTS} if a
     *     key is in the list twice, and with {@code LENGTH_MISMATCH} if the lists have different
     *     lengths
     */
    default KVStore init(List<String> keys, List<? extends Value> values) {
        return init(Pairs.strings(keys), Pairs.values(values));
    }

    /**
     * Stores values under new keys.
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
     * Stores values under new keys.
     *
     * @param keys the keys
     * @param values the values, one per key
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
     * @param values the values, one per key
     * @param onExisting what to do with keys that already exist
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
     * @param values the values, one per key
     * @param onExisting what to do with keys that already exist
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
