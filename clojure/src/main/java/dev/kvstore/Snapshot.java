package dev.kvstore;

import static dev.kvstore.NativeMemory.allocate;
import static java.util.Objects.requireNonNull;

import java.lang.ref.Reference;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * All that a store holds at one moment: every key with its optimizer state, the optimizer or updater, the
 * compression. It never changes, and no data was copied for it; a key that is changed in the store needs
 * memory of its own for the new value as long as the snapshot is open.
 *
 * <pre>{@code
 * try (Snapshot good = store.snapshot()) {
 *     trainOneEpoch(store);
 *     if (lossIsNotANumber()) store.rollback(good);               // as if nothing had happened
 * }
 * }</pre>
 *
 * @see KVStore#snapshot
 */
public final class Snapshot implements NativeResource {
    private final NativeHandle handle;
    /** Then a store that is rolled back to it has one, too. */
    final boolean hasUpdater;

    Snapshot(long snapshot, boolean hasUpdater) {
        this.handle = NativeHandle.owned(this, snapshot, NativeSnapshot::release);
        this.hasUpdater = hasUpdater;
        ResourceScope.register(this);
    }

    /**
     * Reads a checkpoint of a store, which changes no store.
     *
     * @param file the file
     * @return what the store held when the checkpoint began
     * @throws KVStoreException with {@code IO} or, naming the file and the cause, with {@code CORRUPT}
     */
    public static Snapshot read(Path file) {
        String name = NDArrayFile.name(file);
        NativeLibrary.load();
        long[] handle = allocate(0, () -> new long[] {NativeSnapshot.read(name)});
        return new Snapshot(handle[0], false);
    }

    /**
     * Returns the type of the store.
     *
     * @return for example {@code local}
     */
    public String storeType() {
        try {
            return NativeSnapshot.storeType(handle());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns every key.
     *
     * @return the keys in the order of their {@code init}
     */
    public List<String> keys() {
        try {
            return List.of(NativeSnapshot.keys(handle()));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns the value of a key.
     *
     * @param key a key that the store had
     * @return a new array
     * @throws KVStoreException with {@code KEY_NOT_FOUND} when it had no such key
     */
    public NDArray get(String key) {
        requireNonNull(key, "key");
        try {
            return NDArray.adopt(allocate(0, () -> NativeSnapshot.get(handle(), key)));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns what every key held, in the order of their {@code init}.
     *
     * @return an object for each key
     */
    public List<KeyStats> stats() {
        try {
            return KeyStats.of(NativeSnapshot.stats(handle()));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns the hyper-parameters of the optimizer that ran on the store.
     *
     * @return the values by name, in the order of the optimizer
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when there was no optimizer
     */
    public Map<String, Double> hyperParameters() {
        try {
            Object[] found = NativeSnapshot.hyperParameters(handle());
            return Optimizer.map((String[]) found[0], (double[]) found[1]);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns what the optimizer kept for a key.
     *
     * @param key a key that the store had
     * @return a state of its own; none without an optimizer, and when it had not updated the key yet
     * @throws KVStoreException with {@code KEY_NOT_FOUND} when the store had no such key
     */
    public Optional<OptimizerState> optimizerState(String key) {
        requireNonNull(key, "key");
        try {
            long state = NativeSnapshot.optimizerState(handle(), key);
            return state == 0 ? Optional.empty() : Optional.of(new OptimizerState(state));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns the keys whose value, optimizer state or residuals have other bits in the other snapshot, or that
     * only one of the two has. What they share is not read.
     *
     * @param other what to compare with
     * @return the keys in the order of their {@code init}, those of this one first
     */
    public List<String> changedKeys(Snapshot other) {
        requireNonNull(other, "other");
        try {
            return List.of(NativeSnapshot.changedKeys(handle(), other.handle()));
        } finally {
            Reference.reachabilityFence(this);
            Reference.reachabilityFence(other);
        }
    }

    /**
     * Returns whether the other snapshot has the same bits everywhere: a store that is rolled back to the one goes
     * on as it would with the other.
     *
     * @param other what to compare with
     * @return whether keys, values, states, optimizer and compression are the same
     */
    public boolean isIdentical(Snapshot other) {
        requireNonNull(other, "other");
        try {
            return NativeSnapshot.isIdentical(handle(), other.handle());
        } finally {
            Reference.reachabilityFence(this);
            Reference.reachabilityFence(other);
        }
    }

    /**
     * Begins to write a checkpoint, as {@link KVStore#checkpoint} does. The snapshot may be closed meanwhile.
     *
     * @param file the file, which is replaced when the new one is whole
     * @return what to wait for
     * @throws KVStoreException with {@code IO} when there can be no thread for it
     */
    public Checkpoint checkpoint(Path file) {
        String name = NDArrayFile.name(file);
        try {
            return Checkpoint.begin(handle(), name, file);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Lets go of the values. Harmless when repeated; any other use then throws {@code CLOSED}. */
    @Override
    public void close() {
        handle.close();
    }

    /**
     * Returns whether the snapshot was closed.
     *
     * @return true after {@link #close}
     */
    @Override
    public boolean isClosed() {
        return handle.isClosed();
    }

    long handle() {
        return handle.value(this);
    }

    @Override
    public String toString() {
        return "Snapshot";
    }
}
