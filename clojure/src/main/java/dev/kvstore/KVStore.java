package dev.kvstore;

import static dev.kvstore.NativeMemory.retry;
import static java.util.Objects.requireNonNull;

import java.lang.ref.Reference;
import java.util.Map;
import java.util.function.LongConsumer;
import java.util.function.LongFunction;

/**
 * A store of named tensors.
 *
 * <p>The methods that move values (init, push, pull, pushpull, broadcast) have three forms: one key
 * with a value, one key with several values, or as many keys as values. A map from keys to values
 * is the third form. A key may be in a list several times; then all values at its positions belong
 * to it: push sums them, and pull writes the stored value to each of them. Lists of different
 * lengths fail with {@code LENGTH_MISMATCH}. Empty lists do nothing. A key is any string without
 * the character U+0000.
 *
 * <p>A call that fails changes nothing, because it checks all arguments before it changes anything,
 * and the store stays usable. (An updater that throws is the exception, see {@link Updater}.) A
 * store and its callers never share values: changing an array after a push does not change the
 * store, and changes of the store do not change pulled arrays. Any thread may call any method.
 * Calls for the same key take effect in the order in which they are made. {@code priority} orders
 * network transfers, higher priorities first, and never changes a result.
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
 * <p>The methods are grouped into interfaces, which only this class implements:
 *
 * <ul>
 * <li>{@link InitVerbs}, {@link PushVerbs}, {@link PullVerbs} and {@link CombinedVerbs}: storing
 *     and reading values;
 * <li>{@link StoreContents}: the keys;
 * <li>{@link StoreSettings}: updater, optimizer and compression;
 * <li>{@link StoreCheckpoints}: snapshots and files;
 * <li>{@link StoreWorkers}: the processes that share the store.
 * </ul>
 *
 * <p>A store owns native memory until {@link #close}. The store keeps its updater alive. If the
 * updater refers to the store, the garbage collector cannot release the store; only {@code close}
 * does.
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
    /** Whether an updater is set. Then a failed push may have changed something. */
    volatile boolean hasUpdater;
    /** Whether the values are on servers, which may have updaters. */
    final boolean isOnServers;
    /** Whether {@link #close} waits for the other workers. */
    volatile boolean waitsAtExit;
    final PendingCheckpoints checkpoints = new PendingCheckpoints();

    private KVStore(long created) {
        this.handle = NativeHandle.owned(this, created, NativeKVStore::release);
        this.type = NativeKVStore.storeType(created);
        this.isOnServers = type.contains("async") || type.equals("dist_quorum");
        // Processes join and leave a store on servers at any time.
        this.waitsAtExit = type.startsWith("dist") && !isOnServers;
    }

    /** Returns the store that holds the values of a server, with a native handle. */
    static KVStore ofServer(long store) {
        return new KVStore(store);
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
     * @param name the type, in upper or lower case: {@code local} sums values on the host,
     *     {@code device} on the device of the first value of each key. {@code dist_sync} and
     *     {@code dist_device_sync} do the same in each process of a job started by an MPI launcher,
     *     and then sum over all processes, which must make the same calls in the same order.
     *     {@code dist_async} connects to the servers in {@code KVSTORE_SERVERS}, or joins the job
     *     that one of MXNet's launchers has started. {@code dist_quorum} does so with rounds of
     *     several workers, and needs {@link NetStoreOptions#quorum}
     * @return a store, which is empty unless servers hold its values
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the type is unknown, or the servers
     *     of {@code dist_async} or the quorum of {@code dist_quorum} are not known
     * @throws KVStoreException with {@code UNSUPPORTED} if this version does not support the type,
     *     or {@code dist_sync} does not find an installed MPI
     * @throws KVStoreException with {@code TIMEOUT} if another process of the job does not create
     *     its store in time, or a server does not answer
     */
    public static KVStore create(String name) {
        return create(name, NetStoreOptions.ofEnvironment());
    }

    /**
     * Creates a store with options. Only stores on servers have options.
     *
     * @param name the type, {@code dist_async} or {@code dist_quorum}
     * @param options how this process joins the group of the store
     * @return a store, which has the values of the servers
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the type has no such option, an
     *     option is not valid, or another live member has the same name
     * @throws KVStoreException with {@code UNSUPPORTED} if a server rejects the certificate of this
     *     member, or its role
     * @throws KVStoreException with {@code TIMEOUT} if a server does not answer
     */
    public static KVStore create(String name, NetStoreOptions options) {
        requireNonNull(name, "name");
        OptionMap settings = requireNonNull(options, "options").options();
        NativeLibrary.load();
        return registered(NativeKVStore.create(name, settings.names(), settings.values()));
    }

    /**
     * Joins a job that one of MXNet's launchers has started, as a worker. Returns when all servers
     * and workers have joined. Keep one store open until the training ends, because the servers end
     * after all workers have left.
     *
     * @param name the type, {@code dist_async} or {@code dist_quorum}
     * @param options how this process joins the job
     * @param environment the environment variables of the job, instead of those of the process;
     *     {@code KVSTORE_SERVERS} has no effect
     * @return a store, whose {@code init} keeps the values of existing keys
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if a variable is missing or not valid,
     *     or the role is not that of a worker
     * @throws KVStoreException with {@code TIMEOUT} if not all processes join in time
     */
    public static KVStore create(
            String name, NetStoreOptions options, Map<String, String> environment) {
        requireNonNull(name, "name");
        OptionMap settings = requireNonNull(options, "options").options();
        OptionMap variables = new OptionMap(Map.copyOf(environment));
        NativeLibrary.load();
        return registered(NativeServer.join(
                name, variables.names(), variables.values(), settings.names(), settings.values()));
    }

    private static KVStore registered(long created) {
        KVStore store = new KVStore(created);
        ResourceScope.register(store);
        return store;
    }

    // ---- properties -------------------------------------------------------------------------

    /**
     * Returns the type in lower case.
     *
     * @return for example {@code local}
     */
    public String type() {
        return type;
    }

    // ---- closing ----------------------------------------------------------------------------

    /**
     * Waits for the store's checkpoints, then releases its values. Calls in progress finish.
     * Closing a closed store does nothing. If the thread is interrupted, this method does not wait
     * for checkpoints; the JVM waits for them at exit.
     *
     * <ul>
     * <li>A {@code dist_sync} store waits for the other workers, unless
     *     {@link #setBarrierBeforeExit setBarrierBeforeExit(false)} was called.
     * <li>A store on servers waits for them only after {@code setBarrierBeforeExit(true)}.
     * <li>A store that is garbage-collected never waits.
     * </ul>
     *
     * <p>The store is closed even if this method throws.
     *
     * @throws KVStoreException if a checkpoint failed and the program has not seen the failure
     * @throws KVStoreException if the other processes do not close their store in time
     */
    @Override
    public void close() {
        // Collect failures and throw them at the end, so that the store is closed in any case.
        KVStoreException failure = null;
        for (KVStoreException failed : checkpoints.finish()) {
            if (failure == null) {
                failure = failed;
            } else {
                failure.addSuppressed(failed);
            }
        }
        try {
            if (waitsAtExit && !isClosed()) {
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
     * @return true after {@link #close}
     */
    @Override
    public boolean isClosed() {
        return handle.isClosed();
    }

    /**
     * Returns the type of this store.
     *
     * @return for example {@code KVStore[local]}
     */
    @Override
    public String toString() {
        return "KVStore[" + type + "]";
    }

    // ---- internals for the interfaces -------------------------------------------------------

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

    /** Returns the descriptions of the new arrays that a native call creates. */
    long[] allocate(LongFunction<long[]> verb) {
        return query(handle -> NativeMemory.allocate(0, () -> verb.apply(handle)));
    }

    /** Runs a native call once. */
    KVStore call(LongConsumer verb, Value[]... arguments) {
        return run(() -> verb.accept(handle()), arguments);
    }

    /**
     * Runs a native call, and runs it again after a garbage collection if memory ran out. The call
     * must not change anything if it fails.
     */
    KVStore change(LongConsumer verb, Value[]... arguments) {
        return run(() -> retry(() -> verb.accept(handle())), arguments);
    }

    /** Runs a native call without a retry, because a failed call may have changed something. */
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
