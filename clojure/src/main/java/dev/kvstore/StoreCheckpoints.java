package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.lang.ref.Reference;
import java.nio.file.Path;
import java.util.function.LongConsumer;

/** Saves and restores a {@link KVStore}: snapshots, checkpoints, optimizer states. */
public sealed interface StoreCheckpoints permits KVStore {
    /**
     * Returns all that the store holds at this moment, without a copy of it. A call of another
     * thread that changes several keys is in it whole or not at all.
     *
     * @return a snapshot, to read, to compare, to write to a file or to go back to
     * @throws KVStoreException with {@code POISONED}, or with {@code INVALID_ARGUMENT} from inside
     *     an updater of this store
     */
    default Snapshot snapshot() {
        KVStore store = store();
        // Another thread may set or clear one meanwhile; to take it for there does no harm.
        boolean hadUpdater = store.hasUpdater;
        return store.query(handle ->
                new Snapshot(NativeSnapshot.take(handle), hadUpdater || store.hasUpdater));
    }

    /**
     * Makes the store hold what the snapshot does and nothing else: the next steps give the bits
     * that they would have given then. Keys that were made since are gone. Nothing is copied.
     *
     * @param snapshot one of this store, of another one, or of a file
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} from inside an updater of this store,
     *     or for a file of a store with an updater when this one has none
     */
    default KVStore rollback(Snapshot snapshot) {
        requireNonNull(snapshot, "snapshot");
        KVStore store = store();
        if (snapshot.hasUpdater) {
            store.hasUpdater = true;
        }
        try {
            return store.call(handle -> NativeSnapshot.rollback(handle, snapshot.handle()));
        } finally {
            Reference.reachabilityFence(snapshot);
        }
    }

    /**
     * Begins to write all that the store holds into a file, and returns at once. What is pushed
     * meanwhile is not in it. At every moment, after a crash too, the old file or the new one is
     * there and whole.
     *
     * <pre>{@code
     * Checkpoint checkpoint = store.checkpoint(Path.of("model.checkpoint"));
     * trainOn(store);
     * checkpoint.join();
     * }</pre>
     *
     * @param file the file, which is replaced when the new one is whole
     * @return what to wait for
     * @throws KVStoreException those of {@link #snapshot}; what goes wrong with the file is how the
     *     future ends
     */
    default Checkpoint checkpoint(Path file) {
        requireNonNull(file, "file");
        try (Snapshot snapshot = snapshot()) {
            Checkpoint checkpoint = snapshot.checkpoint(file);
            store().checkpoints.add(checkpoint);
            return checkpoint;
        }
    }

    /**
     * Makes the store hold what the one did whose checkpoint the file is: the next steps give the
     * same bits. A file holds no updater; where there was one, this store needs its own before.
     * Processes that share the store all call this; those that cannot read the file get what is in
     * it from the first one that can.
     *
     * @param file a file of {@link #checkpoint}
     * @return this store
     * @throws KVStoreException with {@code IO} or, naming the file and the cause, with
     *     {@code CORRUPT}; with {@code INVALID_ARGUMENT} without an updater where one is needed.
     *     The store is then as it was
     */
    default KVStore restore(Path file) {
        String name = NDArrayFile.name(file);
        KVStore store = store();
        LongConsumer restore = handle -> NativeCheckpoint.restore(handle, name);
        // What other processes do once is not done twice here.
        return store.numWorkers() == 1 ? store.change(restore) : store.call(restore);
    }

    /**
     * Writes the states of the optimizer into a file, without its hyper-parameters.
     *
     * @param fileName the file, which is replaced when the new one is whole
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when there is no optimizer, with
     *     {@code IO}
     */
    default KVStore saveOptimizerStates(String fileName) {
        return saveOptimizerStates(fileName, false);
    }

    /**
     * Writes the states of the optimizer into a file.
     *
     * @param fileName the file, which is replaced when the new one is whole
     * @param dumpOptimizer whether the optimizer with its hyper-parameters is written, too
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when there is no optimizer, with
     *     {@code IO}
     */
    default KVStore saveOptimizerStates(String fileName, boolean dumpOptimizer) {
        requireNonNull(fileName, "fileName");
        return store().call(handle ->
                NativeCheckpoint.saveOptimizerStates(handle, fileName, dumpOptimizer));
    }

    /**
     * Gives the keys in a file the states in it; states of other keys start anew. An optimizer in
     * the file becomes the store's own. The next update of a key gives the bits that it would have
     * given then.
     *
     * @param fileName a file of {@link #saveOptimizerStates(String)}
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when there is no optimizer or the
     *     states are those of another one, with {@code KEY_NOT_FOUND}, {@code SPEC_MISMATCH},
     *     {@code IO} or {@code CORRUPT}; nothing has changed then
     */
    default KVStore loadOptimizerStates(String fileName) {
        requireNonNull(fileName, "fileName");
        return store().change(handle -> NativeCheckpoint.loadOptimizerStates(handle, fileName));
    }

    private KVStore store() {
        return (KVStore) this;
    }
}
