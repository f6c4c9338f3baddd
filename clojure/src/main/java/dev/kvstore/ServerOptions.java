package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.nio.file.Path;
import java.time.Duration;

/**
 * The settings of a {@link KVStoreServer}. Options are immutable: each method returns new ones.
 */
public final class ServerOptions {
    private final OptionMap options;

    private ServerOptions(OptionMap options) {
        this.options = options;
    }

    /**
     * Returns the options of a server that listens on {@code 127.0.0.1:9191}, unless
     * {@link #config} has another address.
     *
     * @return options with the defaults
     */
    public static ServerOptions defaults() {
        return new ServerOptions(OptionMap.EMPTY);
    }

    /**
     * Returns the options of a server that listens on an address.
     *
     * @param address the address, {@code HOST:PORT}; port 0 selects a free one
     * @return options with the defaults
     */
    public static ServerOptions of(String address) {
        return defaults().with("address", address);
    }

    /**
     * Sets the type of the store that holds the values.
     *
     * @param type {@code local} (the default) or {@code device}
     * @return new options
     */
    public ServerOptions store(String type) {
        return with("store", type);
    }

    /**
     * Sets the folder for {@link KVStore#checkpointOnServers}. Without one, the server writes no
     * files.
     *
     * @param folder the folder
     * @return new options
     */
    public ServerOptions checkpoints(Path folder) {
        return with("checkpoints", requireNonNull(folder, "folder").toString());
    }

    /**
     * Sets the folder for recovery points, from which the server continues when it is started again
     * with this folder, also after it was killed. Without one, a server starts with an empty store.
     * Workers that are connected continue, see {@link KVStore#onRewind}.
     *
     * @param folder the folder, which no other server uses
     * @return new options
     */
    public ServerOptions recovery(Path folder) {
        return with("recovery", requireNonNull(folder, "folder").toString());
    }

    /**
     * Sets how often the server makes a recovery point if values change. It also makes one soon
     * after a change of keys or settings, and when it ends.
     *
     * @param period the time, by default 30 seconds
     * @return new options
     */
    public ServerOptions saveEvery(Duration period) {
        return new ServerOptions(options.with("save_every", period));
    }

    /**
     * Sets the file for all calls that change values. The command {@code kvstore replay} reads it.
     * If the file cannot be written, the journal stops: see {@link #journalRequired}.
     *
     * @param file the file; if it exists, the records are appended
     * @return new options
     */
    public ServerOptions journal(Path file) {
        return with("journal", requireNonNull(file, "file").toString());
    }

    /**
     * Sets what the journal keeps.
     *
     * @param mode {@code full} (the default) for replays, or {@code order} for members and keys
     *     without values; needs {@link #journal}
     * @return new options
     */
    public ServerOptions journalMode(String mode) {
        return with("journal_mode", mode);
    }

    /**
     * Sets whether a call that changes values fails if the journal cannot be written. Such a call
     * changes nothing.
     *
     * @param isRequired true for such errors, which need {@link #journal}; by default, the journal
     *     stops and calls succeed
     * @return new options
     */
    public ServerOptions journalRequired(boolean isRequired) {
        return with("journal_required", Boolean.toString(isRequired));
    }

    /**
     * Sets how long a member stays live after its last message.
     *
     * @param lease the time, by default 10 seconds
     * @return new options
     */
    public ServerOptions lease(Duration lease) {
        return new ServerOptions(options.with("lease", lease));
    }

    /**
     * Sets a configuration file, a TOML file with other options by name, such as
     * {@code peer_bytes = 1000000000}. Options that are set here override it.
     *
     * @param file the file
     * @return new options
     */
    public ServerOptions config(Path file) {
        return with("config", requireNonNull(file, "file").toString());
    }

    /**
     * Sets the certificate of the server and encrypts connections. Members then need a certificate
     * of the same authority. Its role, the organizational unit (OU) of its subject, limits what
     * they may do:
     *
     * <ul>
     *   <li>{@code reader}: read values, snapshots and settings
     *   <li>{@code worker} and {@code server}: also change values and settings, wait at barriers,
     *       write checkpoints
     *   <li>{@code admin}: also remove keys, roll back, restore and send commands
     * </ul>
     *
     * <p>If other machines can reach the address, the server and its members need certificates, or
     * both set {@link #insecure}. The command {@code kvstore certs} makes a folder for each role.
     *
     * <p>If this method or {@link #insecure} with true is called, neither option is read from the
     * environment or the file of {@link #config}.
     *
     * @param folder a folder with {@code ca.pem}, {@code cert.pem} and {@code key.pem}; by default
     *     that in the environment variable {@code KVSTORE_CERTIFICATES}
     * @return new options
     */
    public ServerOptions certificates(Path folder) {
        return with("certificates", requireNonNull(folder, "folder").toString());
    }

    /**
     * Sets whether the server permits other machines without certificates. Any program that
     * reaches the address can then read and change everything.
     *
     * @param isInsecure true to permit it; by default the value of the environment variable
     *     {@code KVSTORE_INSECURE}, or false
     * @return new options
     */
    public ServerOptions insecure(boolean isInsecure) {
        return with("insecure", Boolean.toString(isInsecure));
    }

    /**
     * Sets the most connections from one machine.
     *
     * @param most the number, by default 256
     * @return new options
     */
    public ServerOptions peerConnections(int most) {
        return with("peer_connections", Integer.toString(most));
    }

    /**
     * Sets the most bytes of requests and replies that calls from one machine may hold at the same
     * time. A call that needs more fails.
     *
     * @param most the number of bytes, by default half the memory limit, at least 64 MiB
     * @return new options
     */
    public ServerOptions peerBytes(long most) {
        return with("peer_bytes", Long.toString(most));
    }

    /**
     * Sets the most keys that the server may have.
     *
     * @param most the number, by default 4 million
     * @return new options
     */
    public ServerOptions keys(long most) {
        return with("keys", Long.toString(most));
    }

    /**
     * Sets the address of an HTTP endpoint: {@code /metrics} for Prometheus, and {@code /healthz}.
     *
     * @param address the address, {@code HOST:PORT}; by default, there is no endpoint
     * @return new options
     */
    public ServerOptions metrics(String address) {
        return with("metrics", address);
    }

    /**
     * Sets whether the HTTP endpoint has a page with members, keys and throughput.
     *
     * @param hasPage true for a page, which needs {@link #metrics}
     * @return new options
     */
    public ServerOptions statusPage(boolean hasPage) {
        return with("status_page", Boolean.toString(hasPage));
    }

    /**
     * Makes this server lead others: they commit the same rounds, see {@link
     * NetStoreOptions#quorum}, and their snapshots and checkpoints are of one moment.
     *
     * <p>It must be the first in the workers' list of servers. All servers may have this option and
     * their {@link #serverIndex}: only the first one uses the list. With certificates, the role of
     * its certificate must be {@code server} or {@code admin}. With a {@link #coordinator}, the
     * first server finds the others without this list.
     *
     * @param servers the addresses {@code HOST:PORT} of the other servers, in the order of the list
     * @return new options
     */
    public ServerOptions followers(String... servers) {
        for (String server : servers) {
            requireNonNull(server, "servers");
        }
        return with("followers", String.join(",", servers));
    }

    /**
     * Keeps the state of the group in etcd. By default, the first server of a group keeps it.
     *
     * @param coordinator the addresses of etcd and the name of the group,
     *     {@code etcd://HOST:PORT,HOST:PORT/GROUP}; the default group is {@code kvstore}
     * @return new options
     */
    public ServerOptions coordinator(String coordinator) {
        return with("coordinator", coordinator);
    }

    /**
     * Sets the index of this server in its group. It needs a {@link #coordinator}, with which it
     * waits until the lease of an earlier server with this index ends, or {@link #followers}.
     *
     * @param index the index, from 0, which is the default
     * @return new options
     */
    public ServerOptions serverIndex(int index) {
        return with("server_index", Integer.toString(index));
    }

    /**
     * Sets how many servers the group of the {@link #coordinator} has.
     *
     * @param number the number, by default 1
     * @return new options
     */
    public ServerOptions numServers(int number) {
        return with("num_servers", Integer.toString(number));
    }

    /**
     * Sets the certificate for the coordinator and encrypts the connections to it.
     *
     * @param folder a folder with {@code ca.pem}, {@code cert.pem} and {@code key.pem}
     * @return new options
     */
    public ServerOptions coordinatorCertificates(Path folder) {
        return with("coordinator_certificates", requireNonNull(folder, "folder").toString());
    }

    /**
     * Sets where members connect, which they get from the coordinator.
     *
     * @param address the address, {@code HOST:PORT}; by default that where the server listens
     * @return new options
     */
    public ServerOptions advertise(String address) {
        return with("advertise", address);
    }

    private ServerOptions with(String name, String value) {
        return new ServerOptions(options.with(name, value));
    }

    /** Returns the options with their native names. */
    OptionMap options() {
        return options;
    }

    @Override
    public String toString() {
        return "ServerOptions" + options;
    }
}
