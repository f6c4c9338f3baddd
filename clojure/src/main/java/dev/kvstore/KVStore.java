package dev.kvstore;

import static dev.kvstore.NativeMemory.retry;
import static java.util.Objects.requireNonNull;

import java.lang.ref.Reference;
import java.util.function.LongConsumer;
import java.util.function.LongFunction;

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
 * <p>The methods are in interfaces by purpose, which only this class implements:
 *
 * <ul>
 *   <li>{@link InitVerbs}, {@link PushVerbs}, {@link PullVerbs} and {@link CombinedVerbs}: values in
 *       and out;
 *   <li>{@link StoreContents}: the keys;
 *   <li>{@link StoreSettings}: updater, optimizer and compression;
 *   <li>{@link StoreCheckpoints}: snapshots and files;
 *   <li>{@link StoreWorkers}: the processes that share the store.
 * </ul>
 *
 * <p>A store owns native memory until {@link #close}. Its updater is kept alive by the store: a store
 * whose updater refers to the store itself is released by {@code close} only.
 */
public final class KVStore
        implements NativeResource,
                InitVerbs,
                PushVerbs,
                PullVerbs,
                CombinedVerbs,
                StoreContents,
                StoreSettings,
                StoreCheckpoints,
                StoreWorkers {
    private final NativeHandle handle;
    private final String type;
    /** Then a push that has failed may have changed something. */
    volatile boolean hasUpdater;
    volatile boolean waitsAtExit = true;
    final PendingCheckpoints checkpoints = new PendingCheckpoints();

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

    // ---- for the interfaces -----------------------------------------------------------------

    private long handle() {
        return handle.value(this);
    }

    /** Returns the result of a native call that changes nothing. */
    <R> R query(LongFunction<R> verb) {
        try {
            return verb.apply(handle());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Returns the descriptions of new arrays that a native call makes. */
    long[] allocate(LongFunction<long[]> verb) {
        return query(handle -> NativeMemory.allocate(0, () -> verb.apply(handle)));
    }

    /** Runs a native call once. */
    KVStore call(LongConsumer verb, Value[]... arguments) {
        return run(() -> verb.accept(handle()), arguments);
    }

    /** Runs a native call that may run twice: after a failure it has changed nothing that counts. */
    KVStore change(LongConsumer verb, Value[]... arguments) {
        return run(() -> retry(() -> verb.accept(handle())), arguments);
    }

    /** Runs a native call that may have changed something when it fails. */
    KVStore changeOnce(LongConsumer verb, Value[]... arguments) {
        long numBytes = 0;
        for (Value[] values : arguments) {
            for (Value value : values) {
                numBytes += Values.numHostBytes(value);
            }
        }
        long estimate = numBytes;
        return run(() -> NativeMemory.runOnce(estimate, () -> verb.accept(handle())), arguments);
    }

    private KVStore run(Runnable verb, Value[]... arguments) {
        try {
            verb.run();
            return this;
        } finally {
            Reference.reachabilityFence(this);
            Reference.reachabilityFence(arguments);
        }
    }
}
