package dev.kvstore;

import static java.util.Objects.requireNonNull;

/**
 * Information about the worker processes that share a {@link KVStore}, and communication with them.
 */
public sealed interface StoreWorkers permits KVStore {
    /**
     * Returns the rank of this process among the workers.
     *
     * @return the rank, which starts at 0; always 0 in a store of one process
     */
    default int rank() {
        return store().query(NativeKVStore::rank);
    }

    /**
     * Returns the number of workers.
     *
     * @return the number; 1 in a store of one process
     */
    default int numWorkers() {
        return store().query(NativeKVStore::numWorkers);
    }

    /**
     * Waits until every worker has called this method. Returns immediately in a store of one
     * process.
     *
     * @return this store
     */
    default KVStore barrier() {
        return store().call(NativeKVStore::barrier);
    }

    /**
     * Sets whether the workers wait for each other when they close the store.
     *
     * @param barrierBeforeExit whether they wait
     * @return this store
     */
    default KVStore setBarrierBeforeExit(boolean barrierBeforeExit) {
        KVStore store = store();
        store.call(handle -> NativeKVStore.setBarrierBeforeExit(handle, barrierBeforeExit));
        store.waitsAtExit = barrierBeforeExit;
        return store;
    }

    /**
     * Returns the number of dead processes in a group.
     *
     * @param nodeId the group: 1 selects the scheduler, 2 the servers, 4 the workers; a sum of
     *     these selects several groups
     * @return 0 in a store of one process
     * @throws KVStoreException with {@code UNSUPPORTED} if processes share the store, because MPI
     *     cannot detect dead processes
     */
    default int numDeadNode(int nodeId) {
        return store().query(handle -> NativeKVStore.numDeadNode(handle, nodeId));
    }

    /**
     * Sends a command to all servers. Does nothing if there are no server processes.
     *
     * @param head the number of the command
     * @param body the text of the command
     * @return this store
     */
    default KVStore sendCommandToServers(int head, String body) {
        requireNonNull(body, "body");
        return store().call(handle -> NativeKVStore.sendCommandToServers(handle, head, body));
    }

    private KVStore store() {
        return (KVStore) this;
    }
}
