package dev.kvstore;

import static dev.kvstore.NativeMemory.allocate;
import static java.util.Objects.requireNonNull;

import java.lang.ref.Reference;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;

/**
 * The complete contents of a store at one moment: every key with its optimizer state, the optimizer
 * or updater, the compression and the bound of the global norm. A snapshot is immutable. Taking it
 * copies no values. While it is open, each key that changes in the store needs memory for its new
 * value. The values of a store on servers stay there. Each call that reads or compares them
 * transfers them, and fails if the servers do not keep them any more.
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
    /**
     * Whether the store had an updater. Then a store that is rolled back to this snapshot has one,
     * too.
     */
    final boolean hasUpdater;

    Snapshot(long snapshot, boolean hasUpdater) {
        this.handle = NativeHandle.owned(this, snapshot, NativeSnapshot::release);
        this.hasUpdater = hasUpdater;
        ResourceScope.register(this);
    }

    /**
     * Reads a checkpoint file. This changes no store.
     *
     * @param file the file
     * @return the contents of the store when the checkpoint was started
     * @throws KVStoreException with {@code IO} if the file cannot be read; the message names the
     *     file and the cause
     * @throws KVStoreException with {@code CORRUPT} if the file is damaged
     */
    public static Snapshot read(Path file) {
        String name = NDArrayFile.name(file);
        NativeLibrary.load();
        long[] handle = allocate(0, () -> new long[] {NativeSnapshot.read(name)});
        return new Snapshot(handle[0], false);
    }

    /**
     * Copies all values into this process, so that the result outlives the servers of the store.
     *
     * @return a new snapshot. It shares memory with this one if the store has no servers
     * @throws KVStoreException with {@code BACKEND} if a server does not keep the snapshot any more
     */
    public Snapshot load() {
        try {
            long[] loaded = allocate(0, () -> new long[] {NativeSnapshot.load(handle())});
            return new Snapshot(loaded[0], hasUpdater);
        } finally {
            Reference.reachabilityFence(this);
        }
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
     * @return the keys in the order of initialization
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
     * @throws KVStoreException with {@code KEY_NOT_FOUND} if the store had no such key
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
     * Returns the statistics of every key, in the order of initialization.
     *
     * @return one object per key
     */
    public List<KeyStats> stats() {
        try {
            return KeyStats.of(NativeSnapshot.stats(handle()));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns the hyper-parameters of the store's optimizer.
     *
     * @return the values by name, in the order of the optimizer
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if there was no optimizer
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
     * Returns a copy of the optimizer state of a key.
     *
     * @param key a key that the store had
     * @return a new state, or empty if the store had no optimizer or the optimizer had not updated
     *     the key yet
     * @throws KVStoreException with {@code KEY_NOT_FOUND} if the store had no such key
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
     * Returns the keys that differ between two snapshots: their value, optimizer state or residual
     * has different bits, or only one snapshot has the key. Data that both snapshots share is not
     * read.
     *
     * @param other the snapshot to compare with
     * @return the keys of this snapshot in the order of initialization, then those of the other
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
     * Returns whether two snapshots are equal bit for bit. A store that is rolled back to either of
     * them behaves the same.
     *
     * @param other the snapshot to compare with
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
     * Starts writing a checkpoint, like {@link KVStore#checkpoint}. The snapshot may be closed
     * before it is complete.
     *
     * @param file the file, which is replaced when the new one is complete
     * @return a future for the end of the writing
     * @throws KVStoreException with {@code IO} if no thread can be started
     */
    public Checkpoint checkpoint(Path file) {
        String name = NDArrayFile.name(file);
        try {
            return Checkpoint.begin(handle(), name, file);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Starts writing a delta: a checkpoint with only the changes since another snapshot, which was
     * written to or read from a file in the same folder. {@link KVStore#restore} reads the delta
     * and this file, which can be a delta too. If {@code since} is still being written, this method
     * waits for it. Both snapshots may be closed before the delta is complete.
     *
     * <pre>{@code
     * Snapshot first = store.snapshot();
     * first.checkpoint(Path.of("1.checkpoint")).join();
     * trainOn(store);
     * Snapshot second = store.snapshot();
     * second.checkpoint(Path.of("2.checkpoint"), first).join();
     * }</pre>
     *
     * @param file the file, which is replaced when the new one is complete
     * @param since the snapshot to compare with
     * @return a future for the end of the writing
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if {@code since} is in no file, if its
     *     file is in another folder, or if {@code file} is one that the delta needs
     * @throws KVStoreException with {@code IO} if the file of {@code since} does not exist any more
     * @throws KVStoreException with {@code CORRUPT} if another file has replaced it
     */
    public Checkpoint checkpoint(Path file, Snapshot since) {
        String name = NDArrayFile.name(file);
        requireNonNull(since, "since");
        try {
            return Checkpoint.beginSince(handle(), name, file, since.handle());
        } finally {
            Reference.reachabilityFence(this);
            Reference.reachabilityFence(since);
        }
    }

    /**
     * Returns the files that {@link KVStore#restore} needs for this snapshot: the file that it was
     * last written to or read from, and if this is a delta, the files that it needs.
     *
     * @return the paths, the newest file first; empty before the file is complete
     */
    public List<Path> files() {
        try {
            return Stream.of(NativeSnapshot.files(handle())).map(Path::of).toList();
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Releases the values. Closing a closed snapshot does nothing; other methods then throw
     * {@code CLOSED}.
     */
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
