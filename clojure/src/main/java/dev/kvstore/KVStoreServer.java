package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.lang.ref.Reference;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import java.util.function.LongFunction;

/**
 * A server: a store that other processes reach over the network. It runs in threads of the native
 * library until it is closed, and calls updaters in this JVM.
 *
 * <pre>{@code
 * try (KVStoreServer server = KVStoreServer.start(ServerOptions.of("127.0.0.1:0"))) {
 *     server.store().setUpdater((key, pushed, stored) -> stored.addInPlace(pushed));
 *     try (KVStore worker = KVStore.create(
 *             "dist_async", NetStoreOptions.ofServers(server.address()))) {
 *         worker.init("w", weights).push("w", gradient);          // calls the updater
 *     }
 * }
 * }</pre>
 *
 * <p>A server runs until {@link #close}, even if the program does not refer to it. It does not keep
 * the JVM alive. A signal ends both at once, without completing running calls, unless a
 * {@linkplain Runtime#addShutdownHook shutdown hook} closes the server.
 *
 * <p>If other machines can reach the address, the server and its members need {@linkplain
 * ServerOptions#certificates certificates}, or both set {@link ServerOptions#insecure}. Without
 * certificates, connections are neither authenticated nor encrypted.
 */
public final class KVStoreServer implements NativeResource {
    /** The running servers. They stay reachable, because other processes use them. */
    private static final Set<KVStoreServer> RUNNING = ConcurrentHashMap.newKeySet();

    private final NativeHandle handle;
    private final KVStore store;
    private final String address;
    private final String metricsAddress;

    private KVStoreServer(long server) {
        this.handle = NativeHandle.owned(this, server, NativeServer::release);
        try {
            this.address = NativeServer.address(server);
            this.metricsAddress = NativeServer.metricsAddress(server);
            this.store = KVStore.ofServer(NativeServer.store(server));
        } catch (Throwable failure) {
            // Otherwise the address would stay in use until a garbage collection.
            handle.close();
            throw failure;
        }
        RUNNING.add(this);
        ResourceScope.register(this);
    }

    /**
     * Starts a server with an empty store.
     *
     * @param options the settings
     * @return the server, which accepts members
     * @throws KVStoreException with {@code BACKEND} if the address cannot be used, for example
     *     because another program listens on it
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if an option is not valid, or if the
     *     address is not loopback and has neither certificates nor {@code insecure}
     */
    public static KVStoreServer start(ServerOptions options) {
        OptionMap settings = requireNonNull(options, "options").options();
        NativeLibrary.load();
        return new KVStoreServer(NativeServer.start(settings.names(), settings.values()));
    }

    /**
     * Returns the role of a process that one of MXNet's launchers has started.
     *
     * @param environment the environment variables, for example {@link System#getenv()}
     * @return {@code worker}, {@code server} or {@code scheduler}, or an empty string if no
     *     launcher has started the process
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if a variable is missing or not valid
     */
    public static String role(Map<String, String> environment) {
        OptionMap variables = new OptionMap(Map.copyOf(environment));
        NativeLibrary.load();
        return NativeServer.role(variables.names(), variables.values());
    }

    /**
     * Runs the server or the scheduler of a job that one of MXNet's launchers has started. Returns
     * after all workers have joined and left.
     *
     * @param environment the environment variables, for example {@link System#getenv()}; of these,
     *     only those whose names begin with {@code DMLC_} take effect; {@code KVSTORE_} variables
     *     come from this process
     * @param options the settings; the server chooses its address itself
     * @param prepare gets the server before workers find it, for example to set an updater; not
     *     called for a scheduler
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the process is a worker, or a
     *     variable is missing or not valid
     * @throws KVStoreException with {@code BACKEND} if the address cannot be used
     * @throws KVStoreException with {@code TIMEOUT} if the scheduler does not answer, or not all
     *     workers join in time
     */
    public static void runLaunched(
            Map<String, String> environment,
            ServerOptions options,
            Consumer<KVStoreServer> prepare) {
        requireNonNull(prepare, "prepare");
        String role = role(environment);
        OptionMap variables = new OptionMap(Map.copyOf(environment));
        OptionMap settings = options.options();
        long launched = NativeServer.launch(
                variables.names(), variables.values(), settings.names(), settings.values());
        try (KVStoreServer server = new KVStoreServer(launched)) {
            if (role.equals("server")) {
                prepare.accept(server);
            }
            server.query(handle -> {
                NativeServer.waitForJob(handle, variables.names(), variables.values());
                return null;
            });
        }
    }

    /**
     * Returns the address that the server listens on.
     *
     * @return {@code HOST:PORT}
     */
    public String address() {
        return address;
    }

    /**
     * Returns the address of the HTTP endpoint, which {@link ServerOptions#metrics} starts.
     *
     * @return {@code HOST:PORT}, or empty if there is no endpoint
     */
    public Optional<String> metricsAddress() {
        return Optional.of(metricsAddress).filter(text -> !text.isEmpty());
    }

    /**
     * Returns the store that holds the values, for example to set an updater. Its verbs change the
     * values for all members. {@link #close} closes it.
     *
     * @return always the same store
     */
    public KVStore store() {
        return store;
    }

    /**
     * Returns the live members.
     *
     * @return an unmodifiable list, workers first, in the order of their ranks
     */
    public List<Member> members() {
        return Member.of(query(NativeServer::members));
    }

    /**
     * Sets what runs for each command of {@link KVStore#sendCommandToServers}. Without a handler,
     * commands have no effect.
     *
     * @param handler the handler, which threads of the library call
     * @return this server
     */
    public KVStoreServer onCommand(CommandHandler handler) {
        requireNonNull(handler, "handler");
        query(server -> {
            NativeServer.onCommand(server, new CommandCall(handler));
            return null;
        });
        return this;
    }

    /**
     * Rejects new calls that change the store, completes running calls for at most a minute, and
     * closes all connections and the store. Closing a closed server does nothing. An updater or a
     * handler of this server must not call this method, because it would wait for itself.
     *
     * @throws KVStoreException if a checkpoint of {@link #store} failed and the program has not
     *     seen the failure
     */
    @Override
    public void close() {
        if (isClosed()) {
            return;
        }
        try {
            query(server -> {
                NativeServer.shutDown(server);
                return null;
            });
        } finally {
            RUNNING.remove(this);
            handle.close();
            store.close();
        }
    }

    @Override
    public boolean isClosed() {
        return handle.isClosed();
    }

    private <R> R query(LongFunction<R> call) {
        try {
            return call.apply(handle.value(this));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns the address of this server.
     *
     * @return for example {@code KVStoreServer[127.0.0.1:9191]}
     */
    @Override
    public String toString() {
        return "KVStoreServer[" + address + "]";
    }
}
