package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.lang.ref.Reference;
import java.nio.file.Path;
import java.util.function.LongConsumer;

/** Saves and restores a {@link KVStore}: snapshots, checkpoints, optimizer states. */
public sealed interface StoreCheckpoints permits KVStore {
    /**
     * Returns the complete contents of the store at this moment. Copies no values. A concurrent
     * call that changes several keys is contained completely or not at all, unless the store has
     * several servers.
     *
     * @return a snapshot, which can be read, compared, written to a file or restored
     * @throws KVStoreException with {@code POISONED} if an earlier update of a key was interrupted
     *     by a failure
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if an updater of this store makes the
     *     call
     */
    default Snapshot snapshot() {
        KVStore store = store();
        // Another thread may set or clear the updater during this call. Assuming an updater that
        // does not exist is harmless.
        boolean hadUpdater = store.hasUpdater;
        return store.query(handle ->
                new Snapshot(NativeSnapshot.take(handle), hadUpdater || store.hasUpdater));
    }

    /**
     * Replaces the contents of the store with the snapshot. The next steps give the same
     * bits that they would have given when the snapshot was taken. Keys that were initialized since
     * then are removed. Copies no values.
     *
     * @param snapshot a snapshot of this store, of another store or from a file
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if an updater of this store makes the
     *     call
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the snapshot comes from a file, its
     *     store had an updater, and this store has none
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
     * Starts writing the complete contents of the store to a file, and returns without waiting. A
     * store on servers transfers all values first. Later pushes are not in the file. At every
     * moment, even after a crash, either the old file or the new file is in place and complete.
     *
     * <pre>{@code
     * Checkpoint checkpoint = store.checkpoint(Path.of("model.checkpoint"));
     * trainOn(store);
     * checkpoint.join();
     * }</pre>
     *
     * @param file the file, which is replaced when the new one is complete
     * @return a future for the end of the writing; it completes with a failure if the file cannot
     *     be written
     * @throws KVStoreException see {@link #snapshot}
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
     * Starts writing a delta: a checkpoint with only the changes since a snapshot. See {@link
     * Snapshot#checkpoint(Path, Snapshot)}.
     *
     * @param file the file, which is replaced when the new one is complete
     * @param since the snapshot to compare with, which has a file in the same folder
     * @return a future for the end of the writing; it completes with a failure if the file cannot
     *     be written
     * @throws KVStoreException see {@link #snapshot} and {@link Snapshot#checkpoint(Path,
     *     Snapshot)}
     */
    default Checkpoint checkpoint(Path file, Snapshot since) {
        requireNonNull(file, "file");
        requireNonNull(since, "since");
        try (Snapshot snapshot = snapshot()) {
            Checkpoint checkpoint = snapshot.checkpoint(file, since);
            store().checkpoints.add(checkpoint);
            return checkpoint;
        }
    }

    /**
     * Replaces the contents of the store with a checkpoint file. The next steps give the
     * same bits that they would have given when the checkpoint was started. A file contains no
     * updater: if the store of the checkpoint had one, set an updater on this store first. If
     * processes share the store, all of them must call this method. A process that cannot read the
     * file receives the contents from the first process that can.
     *
     * <p>The store is unchanged if this method throws.
     *
     * @param file a file that {@link #checkpoint} has written
     * @return this store
     * @throws KVStoreException with {@code IO} if the file, or a file that a delta needs, cannot be
     *     read; the message names the file and the cause
     * @throws KVStoreException with {@code CORRUPT} if one of them is damaged or was replaced
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the checkpoint needs an updater and
     *     this store has none
     */
    default KVStore restore(Path file) {
        String name = NDArrayFile.name(file);
        KVStore store = store();
        LongConsumer restore = handle -> NativeCheckpoint.restore(handle, name);
        // Do not retry in a distributed store, because the other processes make the call only once.
        return store.numWorkers() == 1 ? store.change(restore) : store.call(restore);
    }

    /**
     * Writes the optimizer states to a file, without the optimizer's hyper-parameters.
     *
     * @param fileName the file, which is replaced when the new one is complete
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the store has no optimizer
     * @throws KVStoreException with {@code IO} if the file cannot be written
     */
    default KVStore saveOptimizerStates(String fileName) {
        return saveOptimizerStates(fileName, false);
    }

    /**
     * Writes the optimizer states to a file.
     *
     * @param fileName the file, which is replaced when the new one is complete
     * @param dumpOptimizer whether to write the optimizer with its hyper-parameters, too
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the store has no optimizer
     * @throws KVStoreException with {@code IO} if the file cannot be written
     */
    default KVStore saveOptimizerStates(String fileName, boolean dumpOptimizer) {
        requireNonNull(fileName, "fileName");
        return store().call(handle ->
                NativeCheckpoint.saveOptimizerStates(handle, fileName, dumpOptimizer));
    }

    /**
     * Sets the optimizer states of the keys in a file. The states of other keys start anew. An
     * optimizer in the file becomes the store's optimizer. The next update of a key gives the same
     * bits that it would have given when the file was written.
     *
     * <p>The store is unchanged if this method throws.
     *
     * @param fileName a file that {@link #saveOptimizerStates(String)} has written
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if neither the store nor the file has
     *     an optimizer, or the states belong to another optimizer
     * @throws KVStoreException with {@code KEY_NOT_FOUND} if a key in the file is not initialized
     * @throws KVStoreException with {@code SPEC_MISMATCH} if a state does not match the shape or
     *     data type of its weight
     * @throws KVStoreException with {@code IO} if the file cannot be read
     * @throws KVStoreException with {@code CORRUPT} if the file is damaged
     */
    default KVStore loadOptimizerStates(String fileName) {
        requireNonNull(fileName, "fileName");
        return store().change(handle -> NativeCheckpoint.loadOptimizerStates(handle, fileName));
    }

    private KVStore store() {
        return (KVStore) this;
    }
}
