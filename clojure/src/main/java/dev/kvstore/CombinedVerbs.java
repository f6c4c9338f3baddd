package dev.kvstore;

import java.util.List;
import java.util.Map;

/**
 * Combined operations of a {@link KVStore}: {@code pushpull} is a push and a pull in one call,
 * {@code broadcast} an init and a pull.
 */
public sealed interface CombinedVerbs permits KVStore {
    /**
     * Pushes a value, then pulls the key into the same array.
     *
     * @param key the key
     * @param value the array to read and to write
     * @return this store
     * @throws KVStoreException see {@link KVStore#push(String, Value)}
     */
    default KVStore pushpull(String key, NDArray value) {
        return pushpull(key, value, value);
    }

    /**
     * Pushes a value, then pulls the key.
     *
     * @param key the key
     * @param value the array to read
     * @param out the array to write
     * @return this store
     * @throws KVStoreException see {@link KVStore#push(String, Value)} and
     *     {@link KVStore#pull(String, NDArray)}
     */
    default KVStore pushpull(String key, NDArray value, NDArray out) {
        String[] keys = Pairs.one(key);
        return pushpull(keys, Pairs.one(value, "value"), keys, Pairs.one(out, "out"), 0);
    }

    /**
     * Pushes the sum of some values, then pulls the key into all of them.
     *
     * @param key the key
     * @param values the arrays to read and to write
     * @return this store
     * @throws KVStoreException see {@link KVStore#push(String, Value)}
     */
    default KVStore pushpull(String key, List<NDArray> values) {
        return pushpull(key, values, values);
    }

    /**
     * Pushes the sum of some values, then pulls the key.
     *
     * @param key the key
     * @param values the arrays to read
     * @param outs the arrays to write; their number may differ from that of {@code values}
     * @return this store
     * @throws KVStoreException see {@link KVStore#push(String, Value)} and
     *     {@link KVStore#pull(String, NDArray)}
     */
    default KVStore pushpull(String key, List<NDArray> values, List<NDArray> outs) {
        NDArray[] read = Pairs.arrays(values, "values");
        NDArray[] written = Pairs.arrays(outs, "outs");
        return pushpull(
                Pairs.repeat(key, read.length),
                read,
                Pairs.repeat(key, written.length),
                written,
                0);
    }

    /**
     * Pushes values of several keys, then pulls these keys into the same arrays.
     *
     * @param keys the keys
     * @param values the arrays to read and to write
     * @return this store
     * @throws KVStoreException see {@link KVStore#push(String, Value)}
     */
    default KVStore pushpull(List<String> keys, List<NDArray> values) {
        return pushpull(keys, values, values);
    }

    /**
     * Pushes values of several keys, then pulls these keys.
     *
     * @param keys the keys
     * @param values the arrays to read
     * @param outs the arrays to write
     * @return this store
     * @throws KVStoreException see {@link KVStore#push(String, Value)} and
     *     {@link KVStore#pull(String, NDArray)}
     */
    default KVStore pushpull(List<String> keys, List<NDArray> values, List<NDArray> outs) {
        String[] names = Pairs.strings(keys);
        NDArray[] read = Pairs.arrays(values, "values");
        return pushpull(names, read, names, Pairs.arrays(outs, "outs"), 0);
    }

    /**
     * Pushes values, then pulls keys.
     *
     * @param values the arrays to read, by key
     * @param outs the arrays to write, by key
     * @return this store
     * @throws KVStoreException see {@link KVStore#push(String, Value)} and
     *     {@link KVStore#pull(String, NDArray)}
     */
    default KVStore pushpull(Map<String, NDArray> values, Map<String, NDArray> outs) {
        Map<String, NDArray> in = Pairs.fixed(values, "values");
        Map<String, NDArray> out = Pairs.fixed(outs, "outs");
        return pushpull(
                Pairs.keysOf(in),
                Pairs.valuesOf(in, NDArray[]::new),
                Pairs.keysOf(out),
                Pairs.valuesOf(out, NDArray[]::new),
                0);
    }

    /**
     * Pushes values, then pulls keys.
     *
     * @param valueKeys the keys to push
     * @param values the arrays to read, one per key to push
     * @param outKeys the keys to pull
     * @param outs the arrays to write, one per key to pull
     * @param priority the priority of network transfers; higher priorities are sent first
     * @return this store
     * @throws KVStoreException see {@link KVStore#push(String, Value)} and
     *     {@link KVStore#pull(String, NDArray)}
     */
    default KVStore pushpull(
            String[] valueKeys,
            Value[] values,
            String[] outKeys,
            NDArray[] outs,
            int priority) {
        Pairs.check(valueKeys, "valueKeys");
        Pairs.check(values, "values", valueKeys);
        Pairs.check(outKeys, "outKeys");
        Pairs.check(outs, "outs", outKeys);
        return store().changeOnce(
                handle -> NativeKVStore.pushpull(
                        handle,
                        valueKeys,
                        Values.handles(values),
                        outKeys,
                        NDArray.handles(outs),
                        priority),
                values,
                outs);
    }

    /**
     * Stores a value under a new key, then pulls it.
     *
     * @param key the key
     * @param value the value
     * @param out the array to write
     * @return this store
     * @throws KVStoreException see {@link KVStore#init(String, Value)} and
     *     {@link KVStore#pull(String, NDArray)}
     */
    default KVStore broadcast(String key, NDArray value, NDArray out) {
        String[] keys = Pairs.one(key);
        return broadcast(keys, Pairs.one(value, "value"), keys, Pairs.one(out, "out"), 0);
    }

    /**
     * Stores a value under a new key, then pulls it into several arrays.
     *
     * @param key the key
     * @param value the value
     * @param outs the arrays to write
     * @return this store
     * @throws KVStoreException see {@link KVStore#init(String, Value)} and
     *     {@link KVStore#pull(String, NDArray)}
     */
    default KVStore broadcast(String key, NDArray value, List<NDArray> outs) {
        NDArray[] written = Pairs.arrays(outs, "outs");
        return broadcast(
                Pairs.one(key),
                Pairs.one(value, "value"),
                Pairs.repeat(key, written.length),
                written,
                0);
    }

    /**
     * Stores values under new keys, then pulls these keys.
     *
     * @param keys the keys
     * @param values the values, one per key
     * @param outs the arrays to write
     * @return this store
     * @throws KVStoreException see {@link KVStore#init(List, List)} and
     *     {@link KVStore#pull(String, NDArray)}
     */
    default KVStore broadcast(List<String> keys, List<NDArray> values, List<NDArray> outs) {
        String[] names = Pairs.strings(keys);
        NDArray[] read = Pairs.arrays(values, "values");
        return broadcast(names, read, names, Pairs.arrays(outs, "outs"), 0);
    }

    /**
     * Stores values under new keys, then pulls keys.
     *
     * @param values the values by key
     * @param outs the arrays to write, by key
     * @return this store
     * @throws KVStoreException see {@link KVStore#init(List, List)} and
     *     {@link KVStore#pull(String, NDArray)}
     */
    default KVStore broadcast(Map<String, NDArray> values, Map<String, NDArray> outs) {
        Map<String, NDArray> in = Pairs.fixed(values, "values");
        Map<String, NDArray> out = Pairs.fixed(outs, "outs");
        return broadcast(
                Pairs.keysOf(in),
                Pairs.valuesOf(in, NDArray[]::new),
                Pairs.keysOf(out),
                Pairs.valuesOf(out, NDArray[]::new),
                0);
    }

    /**
     * Stores values under new keys, then pulls keys.
     *
     * @param valueKeys the new keys
     * @param values the values, one per key
     * @param outKeys the keys to pull
     * @param outs the arrays to write, one per key to pull
     * @param priority the priority of network transfers; higher priorities are sent first
     * @return this store
     * @throws KVStoreException see {@link KVStore#init(List, List)} and
     *     {@link KVStore#pull(String, NDArray)}
     */
    default KVStore broadcast(
            String[] valueKeys,
            Value[] values,
            String[] outKeys,
            NDArray[] outs,
            int priority) {
        Pairs.check(valueKeys, "valueKeys");
        Pairs.check(values, "values", valueKeys);
        Pairs.check(outKeys, "outKeys");
        Pairs.check(outs, "outs", outKeys);
        return store().changeOnce(
                handle -> NativeKVStore.broadcast(
                        handle,
                        valueKeys,
                        Values.handles(values),
                        outKeys,
                        NDArray.handles(outs),
                        priority),
                values,
                outs);
    }

    private KVStore store() {
        return (KVStore) this;
    }
}
