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
     * Returns the options of a server that listens on {@code 127.0.0.1:9191}.
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
     * Sets how long a member stays live after its last message.
     *
     * @param lease the time, by default 10 seconds
     * @return new options
     */
    public ServerOptions lease(Duration lease) {
        return new ServerOptions(options.with("lease", lease));
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
