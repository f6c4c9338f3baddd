package dev.kvstore;

import static dev.kvstore.NativeMemory.allocate;
import static dev.kvstore.NativeMemory.retry;
import static java.util.Objects.requireNonNull;

import java.lang.ref.Reference;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.IntFunction;

/**
 * A store of named tensors.
 *
 * <p>A verb takes one key with a value, one key with several values, or as many keys as values; a
 * map of keys to values is the latter. A key that stands several times in a list owns all the values
 * beside it: pushed they are summed, pulled each of them receives the value. Lists of different
 * lengths are {@code LENGTH_MISMATCH}, empty lists do nothing. Keys are any strings without the
 * character 0.
 *
 * <p>A call is checked whole before anything changes: a call that fails changes nothing, and the store
 * stays usable. (An updater that throws is the exception, see {@link Updater}.) Values are copied in
 * meaning: nothing that is done to an array afterwards reaches the store, and the reverse. Every verb
 * may be called from any thread; those of one key apply in the order of their calls. {@code priority}
 * orders network transfers, the higher first, and never changes a result.
 *
 * <pre>{@code
 * try (KVStore store = KVStore.create();
 *         NDArray weights = NDArray.ones(Shape.of(2, 3))) {
 *     store.init("weights", weights)
 *             .push("weights", List.of(weights, weights, weights))
 *             .pull("weights", weights);                          // now 3.0 everywhere
 * }
 * }</pre>
 *
 * <p>A store owns native memory until {@link #close}. Its updater is kept alive by the store: a store
 * whose updater refers to the store itself is released by {@code close} only.
 */
public final class KVStore implements NativeResource {
    private final NativeHandle handle;
    private final String type;
    /** Then a push that has failed may have changed something. */
    private volatile boolean hasUpdater;
    private volatile boolean waitsAtExit = true;
    private final PendingCheckpoints checkpoints = new PendingCheckpoints();

    private KVStore(String name) {
        long created = NativeKVStore.create(name);
        this.handle = NativeHandle.owned(this, created, NativeKVStore::release);
        ResourceScope.register(this);
        this.type = NativeKVStore.storeType(created);
    }

    /**
     * Creates a store of type {@code local}.
     *
     * @return an empty store
     */
    public static KVStore create() {
        return create("local");
    }

    /**
     * Creates a store.
     *
     * @param name its type, in any case: {@code local} sums on the host, {@code device} on the device of
     *     the first value of a key; {@code dist_sync} and {@code dist_device_sync} do so in each process that a
     *     launcher of MPI has started, and then over all of them, which make the same calls in the same order
     * @return an empty store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when there is no such type, with {@code
     *     UNSUPPORTED} when this version does not have it, or no MPI is installed that {@code dist_sync} needs
     */
    public static KVStore create(String name) {
        requireNonNull(name, "name");
        NativeLibrary.load();
        return new KVStore(name);
    }

    // ---- what it is -------------------------------------------------------------------------

    /**
     * Returns the type in lower case.
     *
     * @return for example {@code local}
     */
    public String type() {
        return type;
    }

    /**
     * Returns the number of this process among the workers.
     *
     * @return from 0; always 0 on one machine
     */
    public int rank() {
        try {
            return NativeKVStore.rank(handle());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns how many processes work on this store.
     *
     * @return 1 on one machine
     */
    public int numWorkers() {
        try {
            return NativeKVStore.numWorkers(handle());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns the keys that were put in and not removed.
     *
     * @return an unmodifiable list in the order of {@code init}
     */
    public List<String> keys() {
        try {
            return List.of(NativeKVStore.keys(handle()));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns whether the store holds a key.
     *
     * @param key the key
     * @return true when it does
     */
    public boolean contains(String key) {
        requireNonNull(key, "key");
        try {
            return NativeKVStore.contains(handle(), key);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns what every key holds, in the order of their init. An updater may call this.
     *
     * @return an object for each key
     */
    public List<KeyStats> stats() {
        try {
            return KeyStats.of(NativeKVStore.stats(handle()));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    // ---- init -------------------------------------------------------------------------------

    /**
     * Puts a value under a new key.
     *
     * @param key the key
     * @param value its value
     * @return this store
     * @throws KVStoreException with {@code KEY_EXISTS} when the store holds the key, with {@code
     *     INVALID_ARGUMENT} when the value has no elements
     */
    public KVStore init(String key, Value value) {
        return init(one(key), one(value));
    }

    /**
     * Puts a list of one value under a new key. (A key has one value: more are {@code KEY_EXISTS}.)
     *
     * @param key the key
     * @param values its value
     * @return this store
     * @throws KVStoreException see {@link #init(String, NDArray)}
     */
    public KVStore init(String key, List<? extends Value> values) {
        Value[] arrays = values(values);
        return init(repeat(key, arrays.length), arrays);
    }

    /**
     * Puts values under new keys.
     *
     * @param keys the keys
     * @param values their values
     * @return this store
     * @throws KVStoreException see {@link #init(String, NDArray)}; also {@code KEY_EXISTS} when a key
     *     is named twice, and {@code LENGTH_MISMATCH}
     */
    public KVStore init(List<String> keys, List<? extends Value> values) {
        return init(strings(keys), values(values));
    }

    /**
     * Puts values under new keys.
     *
     * @param values the values by key
     * @return this store
     * @throws KVStoreException see {@link #init(String, NDArray)}
     */
    public KVStore init(Map<String, ? extends Value> values) {
        Map<String, Value> pairs = fixed(values, "values");
        return init(keysOf(pairs), valuesOf(pairs, Value[]::new));
    }

    /**
     * Puts values under new keys.
     *
     * @param keys the keys
     * @param values their values
     * @return this store
     * @throws KVStoreException see {@link #init(List, List)}
     */
    public KVStore init(String[] keys, Value[] values) {
        return init(keys, values, Existing.ERROR);
    }

    /**
     * Puts values under keys, of which some may be there already.
     *
     * @param keys the keys
     * @param values their values
     * @param existing what becomes of keys that the store holds
     * @return this store
     * @throws KVStoreException see {@link #init(List, List)}
     */
    public KVStore init(
            List<String> keys, List<? extends Value> values, Existing existing) {
        return init(strings(keys), values(values), existing);
    }

    /**
     * Puts values under keys, of which some may be there already.
     *
     * @param keys the keys
     * @param values their values
     * @param existing what becomes of keys that the store holds
     * @return this store
     * @throws KVStoreException see {@link #init(List, List)}
     */
    public KVStore init(String[] keys, Value[] values, Existing existing) {
        check(keys, "keys");
        check(values, "values", keys);
        requireNonNull(existing, "existing");
        return change(
                () -> NativeKVStore.init(
                        handle(), keys, Values.arrays(values), Values.rows(values),
                        existing.ordinal()),
                values);
    }

    // ---- push -------------------------------------------------------------------------------

    /**
     * Gives a value to the updater or optimizer of the store; without either it replaces the stored
     * value. Rows give what the whole array gives, but for an optimizer with {@code lazy_update}: it changes
     * nothing but these rows.
     *
     * @param key the key
     * @param value the value
     * @return this store
     * @throws KVStoreException with {@code KEY_NOT_FOUND}; with {@code SPEC_MISMATCH} when shape or
     *     data type differ from those of the stored value; with {@code INVALID_ARGUMENT} for rows that would have
     *     to be compressed
     */
    public KVStore push(String key, Value value) {
        return push(key, value, 0);
    }

    /**
     * Pushes a value, see {@link #push(String, NDArray)}.
     *
     * @param key the key
     * @param value the value
     * @param priority the order of network transfers, the higher first
     * @return this store
     */
    public KVStore push(String key, Value value, int priority) {
        return push(one(key), one(value), priority);
    }

    /**
     * Pushes the sum of some values, see {@link #push(String, NDArray)}.
     *
     * @param key the key
     * @param values the values, summed in this order
     * @return this store
     */
    public KVStore push(String key, List<? extends Value> values) {
        return push(key, values, 0);
    }

    /**
     * Pushes the sum of some values, see {@link #push(String, NDArray)}.
     *
     * @param key the key
     * @param values the values, summed in this order
     * @param priority the order of network transfers, the higher first
     * @return this store
     */
    public KVStore push(String key, List<? extends Value> values, int priority) {
        Value[] arrays = values(values);
        return push(repeat(key, arrays.length), arrays, priority);
    }

    /**
     * Pushes values of several keys, see {@link #push(String, NDArray)}.
     *
     * @param keys the keys
     * @param values their values
     * @return this store
     */
    public KVStore push(List<String> keys, List<? extends Value> values) {
        return push(keys, values, 0);
    }

    /**
     * Pushes values of several keys, see {@link #push(String, NDArray)}.
     *
     * @param keys the keys
     * @param values their values
     * @param priority the order of network transfers, the higher first
     * @return this store
     */
    public KVStore push(List<String> keys, List<? extends Value> values, int priority) {
        return push(strings(keys), values(values), priority);
    }

    /**
     * Pushes values of several keys, see {@link #push(String, NDArray)}.
     *
     * @param values the values by key
     * @return this store
     */
    public KVStore push(Map<String, ? extends Value> values) {
        return push(values, 0);
    }

    /**
     * Pushes values of several keys, see {@link #push(String, NDArray)}.
     *
     * @param values the values by key
     * @param priority the order of network transfers, the higher first
     * @return this store
     */
    public KVStore push(Map<String, ? extends Value> values, int priority) {
        Map<String, Value> pairs = fixed(values, "values");
        return push(keysOf(pairs), valuesOf(pairs, Value[]::new), priority);
    }

    /**
     * Pushes values of several keys, see {@link #push(String, NDArray)}.
     *
     * @param keys the keys
     * @param values their values
     * @param priority the order of network transfers, the higher first
     * @return this store
     */
    public KVStore push(String[] keys, Value[] values, int priority) {
        check(keys, "keys");
        check(values, "values", keys);
        Runnable push = () -> NativeKVStore.push(
                handle(), keys, Values.arrays(values), Values.rows(values), priority);
        return hasUpdater ? changeOnce(push, values) : change(push, values);
    }

    // ---- pull -------------------------------------------------------------------------------

    /**
     * Returns the newest value of a key.
     *
     * @param key the key
     * @return a new array on the device of the stored value
     * @throws KVStoreException with {@code KEY_NOT_FOUND}
     */
    public NDArray pull(String key) {
        return pull(one(key))[0];
    }

    /**
     * Returns the newest values of some keys.
     *
     * @param keys the keys
     * @return new arrays on the devices of the stored values
     * @throws KVStoreException with {@code KEY_NOT_FOUND}
     */
    public List<NDArray> pull(List<String> keys) {
        return List.of(pull(strings(keys)));
    }

    /**
     * Returns the newest values of some keys.
     *
     * @param keys the keys
     * @return new arrays on the devices of the stored values
     * @throws KVStoreException with {@code KEY_NOT_FOUND}
     */
    public NDArray[] pull(String[] keys) {
        check(keys, "keys");
        try {
            long[] descriptions = allocate(0, () -> NativeKVStore.pullNew(handle(), keys));
            return NDArray.adoptAll(descriptions);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Writes the newest value of a key into an array, converting it into the data type of the array.
     *
     * @param key the key
     * @param out the array to write
     * @return this store
     * @throws KVStoreException with {@code KEY_NOT_FOUND}; with {@code SPEC_MISMATCH} when the shapes
     *     differ
     */
    public KVStore pull(String key, NDArray out) {
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
    public KVStore pull(String key, NDArray out, int priority) {
        return pull(one(key), one(out, "out"), priority);
    }

    /**
     * Pulls one value into several arrays, see {@link #pull(String, NDArray)}.
     *
     * @param key the key
     * @param outs the arrays to write
     * @return this store
     */
    public KVStore pull(String key, List<NDArray> outs) {
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
    public KVStore pull(String key, List<NDArray> outs, int priority) {
        NDArray[] arrays = arrays(outs, "outs");
        return pull(repeat(key, arrays.length), arrays, priority);
    }

    /**
     * Pulls several keys, see {@link #pull(String, NDArray)}.
     *
     * @param keys the keys
     * @param outs the arrays to write
     * @return this store
     */
    public KVStore pull(List<String> keys, List<NDArray> outs) {
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
    public KVStore pull(List<String> keys, List<NDArray> outs, int priority) {
        return pull(strings(keys), arrays(outs, "outs"), priority);
    }

    /**
     * Pulls several keys, see {@link #pull(String, NDArray)}.
     *
     * @param outs the arrays to write by key
     * @return this store
     */
    public KVStore pull(Map<String, NDArray> outs) {
        return pull(outs, 0);
    }

    /**
     * Pulls several keys, see {@link #pull(String, NDArray)}.
     *
     * @param outs the arrays to write by key
     * @param priority the order of network transfers, the higher first
     * @return this store
     */
    public KVStore pull(Map<String, NDArray> outs, int priority) {
        Map<String, NDArray> pairs = fixed(outs, "outs");
        return pull(keysOf(pairs), valuesOf(pairs, NDArray[]::new), priority);
    }

    /**
     * Pulls several keys, see {@link #pull(String, NDArray)}.
     *
     * @param keys the keys
     * @param outs the arrays to write
     * @param priority the order of network transfers, the higher first
     * @return this store
     */
    public KVStore pull(String[] keys, NDArray[] outs, int priority) {
        check(keys, "keys");
        check(outs, "outs", keys);
        return change(
                () -> NativeKVStore.pull(handle(), keys, NDArray.handles(outs), priority), outs);
    }

    // ---- rows -------------------------------------------------------------------------------

    /**
     * Returns some rows of the newest value of a key, at the cost of these rows.
     *
     * @param key the key
     * @param rowIds the numbers of the rows, in any order and any number of times
     * @return each of these rows once, in ascending order, also those that are 0
     * @throws KVStoreException with {@code KEY_NOT_FOUND}; with {@code INVALID_ARGUMENT} for a number that is no
     *     row of the value
     */
    public RowSparse rowSparsePull(String key, long[] rowIds) {
        return rowSparsePull(List.of(one(key)), Collections.singletonList(rowIds)).get(0);
    }

    /**
     * Returns some rows of the newest values of several keys, see {@link #rowSparsePull(String, long[])}.
     *
     * @param keys the keys
     * @param rowIds the numbers of the rows of each key
     * @return the rows of each key
     * @throws KVStoreException see {@link #rowSparsePull(String, long[])}; also {@code LENGTH_MISMATCH}
     */
    public List<RowSparse> rowSparsePull(List<String> keys, List<long[]> rowIds) {
        String[] names = strings(keys);
        check(names, "keys");
        long[][] ids = requireNonNull(rowIds, "rowIds").toArray(long[][]::new);
        check(ids, "rowIds", names);
        long[] all = Arrays.stream(ids).flatMapToLong(Arrays::stream).toArray();
        long[] counts = Arrays.stream(ids).mapToLong(it -> it.length).toArray();
        try {
            return RowSparse.adoptAll(allocate(
                    0, () -> NativeRowSparse.pull(handle(), names, all, counts)));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    // ---- pushpull and broadcast -------------------------------------------------------------

    /**
     * Pushes a value, then pulls the key into the same array.
     *
     * @param key the key
     * @param value the array to read and to write
     * @return this store
     * @throws KVStoreException see {@link #push(String, NDArray)}
     */
    public KVStore pushpull(String key, NDArray value) {
        return pushpull(key, value, value);
    }

    /**
     * Pushes a value, then pulls the key.
     *
     * @param key the key
     * @param value the array to read
     * @param out the array to write
     * @return this store
     * @throws KVStoreException see {@link #push(String, NDArray)} and {@link #pull(String, NDArray)}
     */
    public KVStore pushpull(String key, NDArray value, NDArray out) {
        String[] keys = one(key);
        return pushpull(keys, one(value, "value"), keys, one(out, "out"), 0);
    }

    /**
     * Pushes the sum of some values, then pulls the key into all of them.
     *
     * @param key the key
     * @param values the arrays to read and to write
     * @return this store
     * @throws KVStoreException see {@link #push(String, NDArray)}
     */
    public KVStore pushpull(String key, List<NDArray> values) {
        return pushpull(key, values, values);
    }

    /**
     * Pushes the sum of some values, then pulls the key.
     *
     * @param key the key
     * @param values the arrays to read
     * @param outs the arrays to write, not necessarily as many
     * @return this store
     * @throws KVStoreException see {@link #push(String, NDArray)} and {@link #pull(String, NDArray)}
     */
    public KVStore pushpull(String key, List<NDArray> values, List<NDArray> outs) {
        NDArray[] read = arrays(values, "values");
        NDArray[] written = arrays(outs, "outs");
        return pushpull(repeat(key, read.length), read, repeat(key, written.length), written, 0);
    }

    /**
     * Pushes values of several keys, then pulls these keys into the same arrays.
     *
     * @param keys the keys
     * @param values the arrays to read and to write
     * @return this store
     * @throws KVStoreException see {@link #push(String, NDArray)}
     */
    public KVStore pushpull(List<String> keys, List<NDArray> values) {
        return pushpull(keys, values, values);
    }

    /**
     * Pushes values of several keys, then pulls these keys.
     *
     * @param keys the keys
     * @param values the arrays to read
     * @param outs the arrays to write
     * @return this store
     * @throws KVStoreException see {@link #push(String, NDArray)} and {@link #pull(String, NDArray)}
     */
    public KVStore pushpull(List<String> keys, List<NDArray> values, List<NDArray> outs) {
        String[] names = strings(keys);
        return pushpull(names, arrays(values, "values"), names, arrays(outs, "outs"), 0);
    }

    /**
     * Pushes values, then pulls keys.
     *
     * @param values the arrays to read, by key
     * @param outs the arrays to write, by key
     * @return this store
     * @throws KVStoreException see {@link #push(String, NDArray)} and {@link #pull(String, NDArray)}
     */
    public KVStore pushpull(Map<String, NDArray> values, Map<String, NDArray> outs) {
        Map<String, NDArray> in = fixed(values, "values");
        Map<String, NDArray> out = fixed(outs, "outs");
        return pushpull(keysOf(in), valuesOf(in, NDArray[]::new), keysOf(out), valuesOf(out, NDArray[]::new), 0);
    }

    /**
     * Pushes values, then pulls keys.
     *
     * @param valueKeys the keys to push
     * @param values the arrays to read, one per key to push
     * @param outKeys the keys to pull
     * @param outs the arrays to write, one per key to pull
     * @param priority the order of network transfers, the higher first
     * @return this store
     * @throws KVStoreException see {@link #push(String, NDArray)} and {@link #pull(String, NDArray)}
     */
    public KVStore pushpull(
            String[] valueKeys,
            Value[] values,
            String[] outKeys,
            NDArray[] outs,
            int priority) {
        check(valueKeys, "valueKeys");
        check(values, "values", valueKeys);
        check(outKeys, "outKeys");
        check(outs, "outs", outKeys);
        return changeOnce(
                () -> NativeKVStore.pushpull(
                        handle(),
                        valueKeys,
                        Values.arrays(values),
                        Values.rows(values),
                        outKeys,
                        NDArray.handles(outs),
                        priority),
                values,
                outs);
    }

    /**
     * Puts a value under a new key, then pulls it.
     *
     * @param key the key
     * @param value the value
     * @param out the array to write
     * @return this store
     * @throws KVStoreException see {@link #init(String, NDArray)} and {@link #pull(String, NDArray)}
     */
    public KVStore broadcast(String key, NDArray value, NDArray out) {
        String[] keys = one(key);
        return broadcast(keys, one(value, "value"), keys, one(out, "out"), 0);
    }

    /**
     * Puts a value under a new key, then pulls it into several arrays.
     *
     * @param key the key
     * @param value the value
     * @param outs the arrays to write
     * @return this store
     * @throws KVStoreException see {@link #init(String, NDArray)} and {@link #pull(String, NDArray)}
     */
    public KVStore broadcast(String key, NDArray value, List<NDArray> outs) {
        NDArray[] written = arrays(outs, "outs");
        return broadcast(
                one(key), one(value, "value"), repeat(key, written.length), written, 0);
    }

    /**
     * Puts values under new keys, then pulls these keys.
     *
     * @param keys the keys
     * @param values their values
     * @param outs the arrays to write
     * @return this store
     * @throws KVStoreException see {@link #init(List, List)} and {@link #pull(String, NDArray)}
     */
    public KVStore broadcast(List<String> keys, List<NDArray> values, List<NDArray> outs) {
        String[] names = strings(keys);
        return broadcast(names, arrays(values, "values"), names, arrays(outs, "outs"), 0);
    }

    /**
     * Puts values under new keys, then pulls keys.
     *
     * @param values the values by key
     * @param outs the arrays to write, by key
     * @return this store
     * @throws KVStoreException see {@link #init(List, List)} and {@link #pull(String, NDArray)}
     */
    public KVStore broadcast(Map<String, NDArray> values, Map<String, NDArray> outs) {
        Map<String, NDArray> in = fixed(values, "values");
        Map<String, NDArray> out = fixed(outs, "outs");
        return broadcast(keysOf(in), valuesOf(in, NDArray[]::new), keysOf(out), valuesOf(out, NDArray[]::new), 0);
    }

    /**
     * Puts values under new keys, then pulls keys.
     *
     * @param valueKeys the new keys
     * @param values their values
     * @param outKeys the keys to pull
     * @param outs the arrays to write, one per key to pull
     * @param priority the order of network transfers, the higher first
     * @return this store
     * @throws KVStoreException see {@link #init(List, List)} and {@link #pull(String, NDArray)}
     */
    public KVStore broadcast(
            String[] valueKeys,
            Value[] values,
            String[] outKeys,
            NDArray[] outs,
            int priority) {
        check(valueKeys, "valueKeys");
        check(values, "values", valueKeys);
        check(outKeys, "outKeys");
        check(outs, "outs", outKeys);
        return changeOnce(
                () -> NativeKVStore.broadcast(
                        handle(),
                        valueKeys,
                        Values.arrays(values),
                        Values.rows(values),
                        outKeys,
                        NDArray.handles(outs),
                        priority),
                values,
                outs);
    }

    // ---- the rest ---------------------------------------------------------------------------

    /**
     * Removes keys with their values and optimizer states.
     *
     * @param keys the keys
     * @return this store
     * @throws KVStoreException with {@code KEY_NOT_FOUND}
     */
    public KVStore remove(String... keys) {
        check(keys, "keys");
        return call(() -> NativeKVStore.remove(handle(), keys));
    }

    /**
     * Sets what the store does with pushed values, in place of an earlier updater or optimizer.
     *
     * @param updater the updater, or null: pushed values replace the stored ones
     * @return this store
     */
    public KVStore setUpdater(Updater updater) {
        return call(() -> {
            if (updater == null) {
                NativeKVStore.clearUpdater(handle());
                hasUpdater = false;
            } else {
                hasUpdater = true;
                NativeKVStore.setUpdater(handle(), new UpdaterCall(updater));
            }
        });
    }

    /**
     * Sets the rule by which pushed gradients change the stored values, in place of an earlier updater
     * or optimizer. Its states start anew.
     *
     * @param optimizer the optimizer
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when a hyper-parameter is out of range
     */
    public KVStore setOptimizer(Optimizer optimizer) {
        requireNonNull(optimizer, "optimizer");
        long store = handle();
        call(() -> optimizer.run(it -> NativeKVStore.setOptimizer(store, it)));
        hasUpdater = false;
        return this;
    }

    /**
     * Returns the hyper-parameters of the optimizer that runs on the store, as they are now.
     *
     * @return the values by name
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when no optimizer is set
     */
    public Map<String, Double> hyperParameters() {
        try {
            Object[] found = NativeKVStore.hyperParameters(handle());
            return Optimizer.map((String[]) found[0], (double[]) found[1]);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Changes hyper-parameters of the optimizer that runs on the store, all or none. States and counts
     * stay, and pushes that are under way keep the old values.
     *
     * @param changed new values by name: numbers, or booleans if {@link Optimizer#isFlag} is true
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when no optimizer is set, when it has no
     *     such hyper-parameter, when a value has another type or is out of range, or when two
     *     names, such as {@code lr} and {@code learning_rate}, name the same one
     */
    public KVStore setHyperParameters(Map<String, ?> changed) {
        Map<String, Double> canonical =
                Optimizer.canonical(new LinkedHashMap<>(requireNonNull(changed, "changed")));
        String[] names = Optimizer.names(canonical);
        double[] values = Optimizer.values(canonical);
        return call(() -> NativeKVStore.setHyperParameters(handle(), names, values));
    }

    /**
     * Compresses the values of every push from now on. For each key and each position in the list of its values a
     * residual is kept; an element is added to it, and what is pushed is what its code means, which is taken off
     * the residual:
     *
     * <ul>
     *   <li>{@code 2bit}: the threshold for a residual of at least that, its negative for one of at most that,
     *       and otherwise zero;
     *   <li>{@code 1bit}: 1 for a residual above the threshold, and otherwise -1.
     * </ul>
     *
     * <p>Integers cannot be compressed: pushing them is {@code INVALID_ARGUMENT} then.
     *
     * @param type {@code 2bit} or {@code 1bit}
     * @param threshold greater than 0
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} for another type or threshold
     */
    public KVStore setGradientCompression(String type, double threshold) {
        requireNonNull(type, "type");
        return call(() -> NativeKVStore.setGradientCompression(handle(), type, threshold));
    }

    /**
     * Pushes values whole again. What compressed values have not sent yet is kept.
     *
     * @return this store
     */
    public KVStore clearGradientCompression() {
        return call(() -> NativeKVStore.clearGradientCompression(handle()));
    }

    /**
     * Writes the states of the optimizer into a file, without its hyper-parameters.
     *
     * @param fileName the file, which is replaced when the new one is whole
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when there is no optimizer, with {@code IO}
     */
    public KVStore saveOptimizerStates(String fileName) {
        return saveOptimizerStates(fileName, false);
    }

    /**
     * Writes the states of the optimizer into a file.
     *
     * @param fileName the file, which is replaced when the new one is whole
     * @param dumpOptimizer whether the optimizer with its hyper-parameters is written, too
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when there is no optimizer, with {@code IO}
     */
    public KVStore saveOptimizerStates(String fileName, boolean dumpOptimizer) {
        requireNonNull(fileName, "fileName");
        return call(() -> NativeCheckpoint.saveOptimizerStates(handle(), fileName, dumpOptimizer));
    }

    /**
     * Gives the keys in a file the states in it; states of other keys start anew. An optimizer in the file
     * becomes the store's own. The next update of a key gives the bits that it would have given then.
     *
     * @param fileName a file of {@link #saveOptimizerStates(String)}
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when there is no optimizer or the states are those of
     *     another one, with {@code KEY_NOT_FOUND}, {@code SPEC_MISMATCH}, {@code IO} or {@code CORRUPT};
     *     nothing has changed then
     */
    public KVStore loadOptimizerStates(String fileName) {
        requireNonNull(fileName, "fileName");
        return change(() -> NativeCheckpoint.loadOptimizerStates(handle(), fileName));
    }

    // ---- all of it --------------------------------------------------------------------------

    /**
     * Returns all that the store holds at this moment, without a copy of it. A call of another thread that
     * changes several keys is in it whole or not at all.
     *
     * @return a snapshot, to read, to compare, to write to a file or to go back to
     * @throws KVStoreException with {@code POISONED}, or with {@code INVALID_ARGUMENT} from inside an updater of
     *     this store
     */
    public Snapshot snapshot() {
        // Another thread may set or clear one meanwhile; to take it for there does no harm.
        boolean hadUpdater = hasUpdater;
        try {
            return new Snapshot(NativeSnapshot.take(handle()), hadUpdater || hasUpdater);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Makes the store hold what the snapshot does and nothing else: the next steps give the bits that they would
     * have given then. Keys that were made since are gone. Nothing is copied.
     *
     * @param snapshot one of this store, of another one, or of a file
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} from inside an updater of this store, or for a file
     *     of a store with an updater when this one has none
     */
    public KVStore rollback(Snapshot snapshot) {
        requireNonNull(snapshot, "snapshot");
        if (snapshot.hasUpdater) {
            hasUpdater = true;
        }
        try {
            return call(() -> NativeSnapshot.rollback(handle(), snapshot.handle()));
        } finally {
            Reference.reachabilityFence(snapshot);
        }
    }

    /**
     * Begins to write all that the store holds into a file, and returns at once. What is pushed meanwhile is not
     * in it. At every moment, after a crash too, the old file or the new one is there and whole.
     *
     * <pre>{@code
     * Checkpoint checkpoint = store.checkpoint(Path.of("model.checkpoint"));
     * trainOn(store);
     * checkpoint.join();
     * }</pre>
     *
     * @param file the file, which is replaced when the new one is whole
     * @return what to wait for
     * @throws KVStoreException those of {@link #snapshot}; what goes wrong with the file is how the future ends
     */
    public Checkpoint checkpoint(Path file) {
        requireNonNull(file, "file");
        try (Snapshot snapshot = snapshot()) {
            Checkpoint checkpoint = snapshot.checkpoint(file);
            checkpoints.add(checkpoint);
            return checkpoint;
        }
    }

    /**
     * Makes the store hold what the one did whose checkpoint the file is: the next steps give the same bits. A file
     * holds no updater; where there was one, this store needs its own before. Processes that share the store all call
     * this; those that cannot read the file get what is in it from the first one that can.
     *
     * @param file a file of {@link #checkpoint}
     * @return this store
     * @throws KVStoreException with {@code IO} or, naming the file and the cause, with {@code CORRUPT}; with
     *     {@code INVALID_ARGUMENT} without an updater where one is needed. The store is then as it was
     */
    public KVStore restore(Path file) {
        String name = NDArrayFile.name(file);
        Runnable restore = () -> NativeCheckpoint.restore(handle(), name);
        // What other processes do once is not done twice here.
        return numWorkers() == 1 ? change(restore) : call(restore);
    }

    /**
     * Blocks until every worker has called it. Returns at once on one machine.
     *
     * @return this store
     */
    public KVStore barrier() {
        return call(() -> NativeKVStore.barrier(handle()));
    }

    /**
     * Sets whether the workers wait for each other when they close the store.
     *
     * @param barrierBeforeExit whether they wait
     * @return this store
     */
    public KVStore setBarrierBeforeExit(boolean barrierBeforeExit) {
        call(() -> NativeKVStore.setBarrierBeforeExit(handle(), barrierBeforeExit));
        waitsAtExit = barrierBeforeExit;
        return this;
    }

    /**
     * Returns how many processes of a group are dead.
     *
     * @param nodeId the group: 1 the scheduler, 2 the servers, 4 the workers, or a sum of these
     * @return 0 on a store of one process; stores that processes share throw {@code UNSUPPORTED}, for MPI does not tell
     */
    public int numDeadNode(int nodeId) {
        try {
            return NativeKVStore.numDeadNode(handle(), nodeId);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Sends a command to all servers. There are none on one machine.
     *
     * @param head the number of the command
     * @param body its text
     * @return this store
     */
    public KVStore sendCommandToServers(int head, String body) {
        requireNonNull(body, "body");
        return call(() -> NativeKVStore.sendCommandToServers(handle(), head, body));
    }

    // ---- end of life ------------------------------------------------------------------------

    /**
     * Waits for the store's checkpoints, then releases its values. Closing again does nothing;
     * running calls finish. Processes wait for each other, unless {@link #setBarrierBeforeExit}
     * says otherwise; a store that is garbage-collected does not wait. An interrupted thread does
     * not wait for checkpoints; the end of the JVM does.
     *
     * @throws KVStoreException if a checkpoint failed and the program has not seen the failure, or
     *     if other processes do not arrive; the store is closed in both cases
     */
    @Override
    public void close() {
        KVStoreException failure = null;
        for (KVStoreException failed : checkpoints.finish()) {
            if (failure == null) {
                failure = failed;
            } else {
                failure.addSuppressed(failed);
            }
        }
        try {
            if (type.startsWith("dist") && waitsAtExit && !isClosed()) {
                barrier();
            }
        } catch (KVStoreException absent) {
            if (failure != null) {
                absent.addSuppressed(failure);
            }
            throw absent;
        } finally {
            handle.close();
        }
        if (failure != null) {
            throw failure;
        }
    }

    /**
     * Returns whether {@link #close} was called.
     *
     * @return true once it was
     */
    @Override
    public boolean isClosed() {
        return handle.isClosed();
    }

    /**
     * Returns what this store is.
     *
     * @return for example {@code KVStore[local]}
     */
    @Override
    public String toString() {
        return "KVStore[" + type + "]";
    }

    // ---- the native border ------------------------------------------------------------------

    private long handle() {
        return handle.value(this);
    }

    private KVStore call(Runnable verb, Value[]... arguments) {
        try {
            verb.run();
            return this;
        } finally {
            Reference.reachabilityFence(this);
            Reference.reachabilityFence(arguments);
        }
    }

    /** For the verbs that may run twice: after a failure they have changed nothing that counts. */
    private KVStore change(Runnable verb, Value[]... arguments) {
        return call(() -> retry(verb), arguments);
    }

    /** For the verbs that may have changed something when they fail. */
    private KVStore changeOnce(Runnable verb, Value[]... arguments) {
        long numBytes = 0;
        for (Value[] values : arguments) {
            for (Value value : values) {
                numBytes += Values.numHostBytes(value);
            }
        }
        long estimate = numBytes;
        return call(() -> NativeMemory.runOnce(estimate, verb), arguments);
    }

    private static String[] one(String key) {
        return new String[] {requireNonNull(key, "key")};
    }

    private static Value[] one(Value value) {
        return new Value[] {requireNonNull(value, "value")};
    }

    private static NDArray[] one(NDArray array, String parameter) {
        return new NDArray[] {requireNonNull(array, parameter)};
    }

    private static String[] repeat(String key, int count) {
        String[] keys = new String[count];
        Arrays.fill(keys, requireNonNull(key, "key"));
        return keys;
    }

    private static String[] strings(List<String> keys) {
        return requireNonNull(keys, "keys").toArray(String[]::new);
    }

    private static Value[] values(List<? extends Value> values) {
        return requireNonNull(values, "values").toArray(Value[]::new);
    }

    private static NDArray[] arrays(List<NDArray> arrays, String parameter) {
        return requireNonNull(arrays, parameter).toArray(NDArray[]::new);
    }

    /** A map that no other thread changes while keys and values are taken from it. */
    private static <V> Map<String, V> fixed(Map<String, ? extends V> map, String parameter) {
        return new LinkedHashMap<>(requireNonNull(map, parameter));
    }

    private static String[] keysOf(Map<String, ?> map) {
        return map.keySet().toArray(String[]::new);
    }

    private static <V> V[] valuesOf(Map<String, V> map, IntFunction<V[]> newArray) {
        return map.values().toArray(newArray);
    }

    private static void check(Object[] elements, String parameter) {
        check(elements, parameter, new String[0]);
    }

    /** The message names the element and its key, if there is one. */
    private static void check(Object[] elements, String parameter, String[] keys) {
        requireNonNull(elements, parameter);
        for (int i = 0; i < elements.length; i++) {
            if (elements[i] == null) {
                String key = i < keys.length ? " for key `" + keys[i] + "`" : "";
                throw new NullPointerException(parameter + "[" + i + "]" + key);
            }
        }
    }
}
