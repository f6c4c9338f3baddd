package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/** Reads values, or rows of values, from a {@link KVStore}. */
public sealed interface PullVerbs permits KVStore {
    /**
     * Returns the newest value of a key.
     *
     * @param key the key
     * @return a new array on the device of the stored value
     * @throws KVStoreException with {@code KEY_NOT_FOUND} if a key is not initialized
     */
    default NDArray pull(String key) {
        return pull(Pairs.one(key))[0];
    }

    /**
     * Returns the newest value of each key.
     *
     * @param keys the keys
     * @return new arrays on the devices of the stored values
     * @throws KVStoreException with {@code KEY_NOT_FOUND} if a key is not initialized
     */
    default List<NDArray> pull(List<String> keys) {
        return List.of(pull(Pairs.strings(keys)));
    }

    /**
     * Returns the newest value of each key.
     *
     * @param keys the keys
     * @return new arrays on the devices of the stored values
     * @throws KVStoreException with {@code KEY_NOT_FOUND} if a key is not initialized
     */
    default NDArray[] pull(String[] keys) {
        Pairs.check(keys, "keys");
        return NDArray.adoptAll(
                store().allocate(handle -> NativeKVStore.pullNew(handle, keys)));
    }

    /**
     * Writes the newest value of a key into an array, converted to the data type of the array.
     *
     * @param key the key
     * @param out the array to write
     * @return this store
     * @throws KVStoreException with {@code KEY_NOT_FOUND} if a key is not initialized
     * @throws KVStoreException with {@code SPEC_MISMATCH} if the shapes differ
     */
    default KVStore pull(String key, NDArray out) {
        return pull(key, out, 0);
    }

    /**
     * Pulls into an array, see {@link #pull(String, NDArray)}.
     *
     * @param key the key
     * @param out the array to write
     * @param priority the priority of network transfers; higher priorities are sent first
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
     * @param priority the priority of network transfers; higher priorities are sent first
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
     * @param priority the priority of network transfers; higher priorities are sent first
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
     * @param priority the priority of network transfers; higher priorities are sent first
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
     * @param priority the priority of network transfers; higher priorities are sent first
     * @return this store
     */
    default KVStore pull(String[] keys, NDArray[] outs, int priority) {
        Pairs.check(keys, "keys");
        Pairs.check(outs, "outs", keys);
        return store().change(
                handle -> NativeKVStore.pull(handle, keys, NDArray.handles(outs), priority), outs);
    }

    /**
     * Returns some rows of the newest value of a key. The cost depends on the number of requested
     * rows, not on the size of the value.
     *
     * @param key the key
     * @param rowIds the row indices, in any order and possibly with duplicates
     * @return each requested row once, in ascending order, including rows of zeros
     * @throws KVStoreException with {@code KEY_NOT_FOUND} if the key is not initialized
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if a row index is negative or too
     *     large
     */
    default RowSparse rowSparsePull(String key, long[] rowIds) {
        return rowSparsePull(List.of(Pairs.one(key)), Collections.singletonList(rowIds)).get(0);
    }

    /**
     * Returns some rows of the newest value of each key, see
     * {@link #rowSparsePull(String, long[])}.
     *
     * @param keys the keys
     * @param rowIds the row indices for each key
     * @return the rows of each key
     * @throws KVStoreException see {@link #rowSparsePull(String, long[])}
     * @throws KVStoreException with {@code LENGTH_MISMATCH} if the lists differ in length
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
