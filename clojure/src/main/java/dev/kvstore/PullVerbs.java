package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/** Pulls values, or rows of them, from a {@link KVStore}. */
public sealed interface PullVerbs permits KVStore {
    /**
     * Returns the newest value of a key.
     *
     * @param key the key
     * @return a new array on the device of the stored value
     * @throws KVStoreException with {@code KEY_NOT_FOUND}
     */
    default NDArray pull(String key) {
        return pull(Pairs.one(key))[0];
    }

    /**
     * Returns the newest values of some keys.
     *
     * @param keys the keys
     * @return new arrays on the devices of the stored values
     * @throws KVStoreException with {@code KEY_NOT_FOUND}
     */
    default List<NDArray> pull(List<String> keys) {
        return List.of(pull(Pairs.strings(keys)));
    }

    /**
     * Returns the newest values of some keys.
     *
     * @param keys the keys
     * @return new arrays on the devices of the stored values
     * @throws KVStoreException with {@code KEY_NOT_FOUND}
     */
    default NDArray[] pull(String[] keys) {
        Pairs.check(keys, "keys");
        return NDArray.adoptAll(
                store().allocate(handle -> NativeKVStore.pullNew(handle, keys)));
    }

    /**
     * Writes the newest value of a key into an array, converting it into the data type of the
     * array.
     *
     * @param key the key
     * @param out the array to write
     * @return this store
     * @throws KVStoreException with {@code KEY_NOT_FOUND}; with {@code SPEC_MISMATCH} when the
     *     shapes differ
     */
    default KVStore pull(String key, NDArray out) {
        return pull(key, out, 0);
    }

    /**
     * Pulls into an array, see {@link #pull(String, NDArray)}.
     *
     * @param key the key
     * @param out the array to write
     * @param priority the order of network transfers, the higher first
     * @return this store
     */
    default KVStore pull(String key, NDArray out, int priority) {
        return pull(Pairs.one(key), Pairs.one(out, "out"), priority);
    }

    /**
     * Pulls one value into several arrays, see {@link #pull(String, NDArray)}.
     *
     * @param key the key
     * @param outs the arrays to write
     * @return this store
     */
    default KVStore pull(String key, List<NDArray> outs) {
        return pull(key, outs, 0);
    }

    /**
     * Pulls one value into several arrays, see {@link #pull(String, NDArray)}.
     *
     * @param key the key
     * @param outs the arrays to write
     * @param priority the order of network transfers, the higher first
     * @return this store
     */
    default KVStore pull(String key, List<NDArray> outs, int priority) {
        NDArray[] arrays = Pairs.arrays(outs, "outs");
        return pull(Pairs.repeat(key, arrays.length), arrays, priority);
    }

    /**
     * Pulls several keys, see {@link #pull(String, NDArray)}.
     *
     * @param keys the keys
     * @param outs the arrays to write
     * @return this store
     */
    default KVStore pull(List<String> keys, List<NDArray> outs) {
        return pull(keys, outs, 0);
    }

    /**
     * Pulls several keys, see {@link #pull(String, NDArray)}.
     *
     * @param keys the keys
     * @param outs the arrays to write
     * @param priority the order of network transfers, the higher first
     * @return this store
     */
    default KVStore pull(List<String> keys, List<NDArray> outs, int priority) {
        return pull(Pairs.strings(keys), Pairs.arrays(outs, "outs"), priority);
    }

    /**
     * Pulls several keys, see {@link #pull(String, NDArray)}.
     *
     * @param outs the arrays to write by key
     * @return this store
     */
    default KVStore pull(Map<String, NDArray> outs) {
        return pull(outs, 0);
    }

    /**
     * Pulls several keys, see {@link #pull(String, NDArray)}.
     *
     * @param outs the arrays to write by key
     * @param priority the order of network transfers, the higher first
     * @return this store
     */
    default KVStore pull(Map<String, NDArray> outs, int priority) {
        Map<String, NDArray> pairs = Pairs.fixed(outs, "outs");
        return pull(Pairs.keysOf(pairs), Pairs.valuesOf(pairs, NDArray[]::new), priority);
    }

    /**
     * Pulls several keys, see {@link #pull(String, NDArray)}.
     *
     * @param keys the keys
     * @param outs the arrays to write
     * @param priority the order of network transfers, the higher first
     * @return this store
     */
    default KVStore pull(String[] keys, NDArray[] outs, int priority) {
        Pairs.check(keys, "keys");
        Pairs.check(outs, "outs", keys);
        return store().change(
                handle -> NativeKVStore.pull(handle, keys, NDArray.handles(outs), priority), outs);
    }

    /**
     * Returns some rows of the newest value of a key, at the cost of these rows.
     *
     * @param key the key
     * @param rowIds the numbers of the rows, in any order and any number of times
     * @return each of these rows once, in ascending order, also those that are 0
     * @throws KVStoreException with {@code KEY_NOT_FOUND}; with {@code INVALID_ARGUMENT} for a
     *     number that is no row of the value
     */
    default RowSparse rowSparsePull(String key, long[] rowIds) {
        return rowSparsePull(List.of(Pairs.one(key)), Collections.singletonList(rowIds)).get(0);
    }

    /**
     * Returns some rows of the newest values of several keys, see
     * {@link #rowSparsePull(String, long[])}.
     *
     * @param keys the keys
     * @param rowIds the numbers of the rows of each key
     * @return the rows of each key
     * @throws KVStoreException see {@link #rowSparsePull(String, long[])}; also
     *     {@code LENGTH_MISMATCH}
     */
    default List<RowSparse> rowSparsePull(List<String> keys, List<long[]> rowIds) {
        String[] names = Pairs.strings(keys);
        Pairs.check(names, "keys");
        long[][] ids = requireNonNull(rowIds, "rowIds").toArray(long[][]::new);
        Pairs.check(ids, "rowIds", names);
        long[] all = Arrays.stream(ids).flatMapToLong(Arrays::stream).toArray();
        long[] counts = Arrays.stream(ids).mapToLong(it -> it.length).toArray();
        return RowSparse.adoptAll(
                store().allocate(handle -> NativeRowSparse.pull(handle, names, all, counts)));
    }

    private KVStore store() {
        return (KVStore) this;
    }
}
