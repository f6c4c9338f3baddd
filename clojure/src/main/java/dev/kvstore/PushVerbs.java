package dev.kvstore;

import java.util.List;
import java.util.Map;
import java.util.function.LongConsumer;

/** Pushes values to a {@link KVStore}. */
public sealed interface PushVerbs permits KVStore {
    /**
     * Passes a value to the updater or optimizer of the store. Without either, the value replaces
     * the stored one. A row-sparse value has the effect of its dense form, except with an optimizer
     * with {@code lazy_update}, which changes only the rows of the value.
     *
     * @param key the key
     * @param value the value
     * @return this store
     * @throws KVStoreException with {@code KEY_NOT_FOUND} if the key is not initialized
     * @throws KVStoreException with {@code SPEC_MISMATCH} if the shape or data type differs from
     *     that of the stored value
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if gradient compression is on and the
     *     value is row-sparse or has an integer data type
     */
    default KVStore push(String key, Value value) {
        return push(key, value, 0);
    }

    /**
     * Pushes a value, see {@link #push(String, Value)}.
     *
     * @param key the key
     * @param value the value
     * @param priority the priority of network transfers; higher priorities are sent first
     * @return this store
     */
    default KVStore push(String key, Value value, int priority) {
        return push(Pairs.one(key), Pairs.one(value), priority);
    }

    /**
     * Pushes the sum of some values, see {@link #push(String, Value)}.
     *
     * @param key the key
     * @param values the values, summed in this order
     * @return this store
     */
    default KVStore push(String key, List<? extends Value> values) {
        return push(key, values, 0);
    }

    /**
     * Pushes the sum of some values, see {@link #push(String, Value)}.
     *
     * @param key the key
     * @param values the values, summed in this order
     * @param priority the priority of network transfers; higher priorities are sent first
     * @return this store
     */
    default KVStore push(String key, List<? extends Value> values, int priority) {
        Value[] arrays = Pairs.values(values);
        return push(Pairs.repeat(key, arrays.length), arrays, priority);
    }

    /**
     * Pushes values of several keys, see {@link #push(String, Value)}.
     *
     * @param keys the keys
     * @param values the values, one per key
     * @return this store
     */
    default KVStore push(List<String> keys, List<? extends Value> values) {
        return push(keys, values, 0);
    }

    /**
     * Pushes values of several keys, see {@link #push(String, Value)}.
     *
     * @param keys the keys
     * @param values the values, one per key
     * @param priority the priority of network transfers; higher priorities are sent first
     * @return this store
     */
    default KVStore push(List<String> keys, List<? extends Value> values, int priority) {
        return push(Pairs.strings(keys), Pairs.values(values), priority);
    }

    /**
     * Pushes values of several keys, see {@link #push(String, Value)}.
     *
     * @param values the values by key
     * @return this store
     */
    default KVStore push(Map<String, ? extends Value> values) {
        return push(values, 0);
    }

    /**
     * Pushes values of several keys, see {@link #push(String, Value)}.
     *
     * @param values the values by key
     * @param priority the priority of network transfers; higher priorities are sent first
     * @return this store
     */
    default KVStore push(Map<String, ? extends Value> values, int priority) {
        Map<String, Value> pairs = Pairs.fixed(values, "values");
        return push(Pairs.keysOf(pairs), Pairs.valuesOf(pairs, Value[]::new), priority);
    }

    /**
     * Pushes values of several keys, see {@link #push(String, Value)}.
     *
     * @param keys the keys
     * @param values the values, one per key
     * @param priority the priority of network transfers; higher priorities are sent first
     * @return this store
     */
    default KVStore push(String[] keys, Value[] values, int priority) {
        Pairs.check(keys, "keys");
        Pairs.check(values, "values", keys);
        KVStore store = store();
        LongConsumer push = handle -> NativeKVStore.push(
                handle, keys, Values.handles(values), priority);
        boolean isOnce = store.hasUpdater || store.isOnServers;
        return isOnce ? store.changeOnce(push, values) : store.change(push, values);
    }

    private KVStore store() {
        return (KVStore) this;
    }
}
