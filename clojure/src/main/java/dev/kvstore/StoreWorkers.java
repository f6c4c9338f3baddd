package dev.kvstore;

import static java.util.Objects.requireNonNull;

/** Reports and synchronizes the processes that share a {@link KVStore}. */
public sealed interface StoreWorkers permits KVStore {
    /**
     * Returns the number of this process among the workers.
     *
     * @return from 0; always 0 on one machine
     */
    default int rank() {
        return store().query(NativeKVStore::rank);
    }

    /**
     * Returns how many processes work on this store.
     *
     * @return 1 on one machine
     */
    default int numWorkers() {
        return store().query(NativeKVStore::numWorkers);
    }

    /**
     * Blocks until every worker has called it. Returns at once on one machine.
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
     * Returns how many processes of a group are dead.
     *
     * @param nodeId the group: 1 the scheduler, 2 the servers, 4 the workers, or a sum of these
     * @return 0 on a store of one process; stores that processes share throw {@code UNSUPPORTED},
     *     for MPI does not tell
     */
    default int numDeadNode(int nodeId) {
        return store().query(handle -> NativeKVStore.numDeadNode(handle, nodeId));
    }

    /**
     * Sends a command to all servers. There are none on one machine.
     *
     * @param head the number of the command
     * @param body its text
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
