package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.nio.file.Path;
import java.time.Duration;

/**
 * How a process joins the group of a store on servers, see {@link KVStore#create(String,
 * NetStoreOptions)}. Options are immutable: each method returns new ones.
 *
 * <pre>{@code
 * NetStoreOptions options = NetStoreOptions.ofServers("10.0.0.1:9191", "10.0.0.2:9191")
 *         .staleness(4);
 * try (KVStore store = KVStore.create("dist_async", options)) {
 *     store.init("w", weights);
 * }
 * }</pre>
 */
public final class NetStoreOptions {
    private final OptionMap options;

    private NetStoreOptions(OptionMap options) {
        this.options = options;
    }

    /**
     * Returns options for the servers in the environment variable {@code KVSTORE_SERVERS}, those of
     * the group in {@code KVSTORE_COORDINATOR}, or those of the job that one of MXNet's launchers
     * has started.
     *
     * @return options with the defaults
     */
    public static NetStoreOptions ofEnvironment() {
        return new NetStoreOptions(OptionMap.EMPTY);
    }

    /**
     * Returns options for these servers. All members of a group need the same list in the same
     * order.
     *
     * @param addresses the addresses, each {@code HOST:PORT}
     * @return options with the defaults
     */
    public static NetStoreOptions ofServers(String... addresses) {
        for (String address : addresses) {
            requireNonNull(address, "addresses");
        }
        return ofEnvironment().with("servers", String.join(",", addresses));
    }

    /**
     * Returns options for the servers of a group whose state is in etcd. A store waits until all of
     * them are there, and follows a server that is started again elsewhere.
     *
     * @param coordinator the addresses of etcd and the name of the group,
     *     {@code etcd://HOST:PORT,HOST:PORT/GROUP}; the default group is {@code kvstore}
     * @return options with the defaults
     */
    public static NetStoreOptions ofCoordinator(String coordinator) {
        return ofEnvironment().with("coordinator", coordinator);
    }

    /**
     * Sets the certificate for the coordinator and encrypts the connections to it.
     *
     * @param folder a folder with {@code ca.pem}, {@code cert.pem} and {@code key.pem}; by default
     *     that in the environment variable {@code KVSTORE_COORDINATOR_CERTIFICATES}
     * @return new options
     */
    public NetStoreOptions coordinatorCertificates(Path folder) {
        return with("coordinator_certificates", requireNonNull(folder, "folder").toString());
    }

    /**
     * Sets the name of this member. Two live members cannot have the same name. A process that
     * takes the name of a dead one gets its rank. By default, the name is new each time.
     *
     * @param name the name
     * @return new options
     */
    public NetStoreOptions name(String name) {
        return with("name", name);
    }

    /**
     * Sets how long a call waits for the servers and the other members.
     *
     * @param timeout the time, by default {@code KVSTORE_DIST_TIMEOUT} or 300 seconds
     * @return new options
     */
    public NetStoreOptions timeout(Duration timeout) {
        return new NetStoreOptions(options.with("timeout", timeout));
    }

    /**
     * Bounds the staleness of pulls: a pull of a key waits until no live worker is more than this
     * number of pushes of the key behind this member. By default, pulls do not wait.
     *
     * @param numPushes the number of pushes, at least 0
     * @return new options
     */
    public NetStoreOptions staleness(long numPushes) {
        return with("staleness", Long.toString(numPushes));
    }

    /**
     * Sets whether this member never pushes, so that other members do not wait for it.
     *
     * @param isReader true for a member that only reads
     * @return new options
     */
    public NetStoreOptions reader(boolean isReader) {
        return with("reader", Boolean.toString(isReader));
    }

    /**
     * Sets the number of connections to each server. More connections help if several threads call
     * the store at the same time.
     *
     * @param number the number, by default 1
     * @return new options
     */
    public NetStoreOptions connections(int number) {
        return with("connections", Integer.toString(number));
    }

    /**
     * Sets the size above which the rows of a value are divided among the servers.
     *
     * @param numBytes the size in bytes, by default 4 MiB
     * @return new options
     */
    public NetStoreOptions divideAbove(long numBytes) {
        return with("divide_above", Long.toString(numBytes));
    }

    /**
     * Sets the certificate of this member and encrypts its connections. Servers with certificates
     * require one from every member. The role in the certificate limits what this member may do,
     * see {@link ServerOptions#certificates}.
     *
     * <p>If this method or {@link #insecure} with true is called, neither option is read from the
     * environment.
     *
     * @param folder a folder with {@code ca.pem}, {@code cert.pem} and {@code key.pem}; by default
     *     that in the environment variable {@code KVSTORE_CERTIFICATES}
     * @return new options
     */
    public NetStoreOptions certificates(Path folder) {
        return with("certificates", requireNonNull(folder, "folder").toString());
    }

    /**
     * Sets whether this member permits other machines without certificates. Machines between this
     * one and the servers can then read and change everything.
     *
     * @param isInsecure true to permit it; by default the value of the environment variable
     *     {@code KVSTORE_INSECURE}, or false
     * @return new options
     */
    public NetStoreOptions insecure(boolean isInsecure) {
        return with("insecure", Boolean.toString(isInsecure));
    }

    /**
     * Makes pushes take part in rounds, with at least this number of workers. A round sums the
     * pushes of several workers to the same keys, in the order of the workers' names, and then
     * makes one push with the sum. It closes when all live workers have pushed, or when this number
     * of workers have and the {@link #grace} period is over. A push waits until its round is part
     * of the store.
     *
     * <p>All workers push the same keys together, with the same {@code quorum}, {@code grace} and
     * {@code late}. A store of type {@code dist_quorum} needs this option. If there are several
     * servers, the first one needs the option {@link ServerOptions#followers}.
     *
     * @param min the least number of workers in a round, at least 1
     * @return new options
     */
    public NetStoreOptions quorum(int min) {
        return with("quorum", Integer.toString(min));
    }

    /**
     * Sets how long a round waits for further workers when the quorum has pushed.
     *
     * @param grace the time, at least 0, in whole milliseconds; by default 1 second
     * @return new options
     */
    public NetStoreOptions grace(Duration grace) {
        return new NetStoreOptions(options.with("grace", grace));
    }

    /**
     * Sets what happens to pushes that are late for their round.
     *
     * @param late by default {@link LatePush#REJECT}
     * @return new options
     */
    public NetStoreOptions late(LatePush late) {
        return with("late", requireNonNull(late, "late").option());
    }

    /**
     * Makes rounds compute the weighted mean of the pushes instead of their sum, and sets the
     * weight of this worker. All workers need a weight. {@link KVStore#setWeight} changes it.
     *
     * <p>The worker multiplies its values by its weight. The server divides the sum of the products
     * once, by the sum of the weights. With half floats, weights should be at most 1, because the
     * products must not overflow.
     *
     * @param weight the weight, a finite number above 0
     * @return new options
     */
    public NetStoreOptions weight(double weight) {
        return with("weight", Double.toString(weight));
    }

    private NetStoreOptions with(String name, String value) {
        return new NetStoreOptions(options.with(name, value));
    }

    /** Returns the options with their native names. */
    OptionMap options() {
        return options;
    }

    @Override
    public String toString() {
        return "NetStoreOptions" + options;
    }
}
