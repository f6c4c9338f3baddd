package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.util.List;
import java.util.function.Consumer;

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
     * @return 0 in a store of one process; in a store on servers, the dead workers and the servers
     *     without a connection
     * @throws KVStoreException with {@code UNSUPPORTED} in a store over MPI, which cannot detect
     *     dead processes
     */
    default int numDeadNode(int nodeId) {
        return store().query(handle -> NativeKVStore.numDeadNode(handle, nodeId));
    }

    /**
     * Sends a command to all servers. Does nothing if there are no server processes. If the handler
     * of a server fails, this throws {@code BACKEND} with the class and the message of the failure.
     *
     * @param head the number of the command
     * @param body the text of the command
     * @return this store
     */
    default KVStore sendCommandToServers(int head, String body) {
        requireNonNull(body, "body");
        return store().call(handle -> NativeKVStore.sendCommandToServers(handle, head, body));
    }

    /**
     * Returns the live members of the group of a store on servers.
     *
     * @return an unmodifiable list, workers first, in the order of their ranks
     * @throws KVStoreException with {@code UNSUPPORTED} if the store is not on servers
     */
    default List<Member> members() {
        return Member.of(store().query(NativeGroup::members));
    }

    /**
     * Registers a function that a thread of the library calls with the live members after each
     * change. Replaces the earlier function, which may still run once. The function may call the
     * store. Its exceptions go to the uncaught-exception handler of the thread.
     *
     * @param listener the function; while it is set, it is kept alive
     * @return this store
     * @throws KVStoreException with {@code UNSUPPORTED} if the store is not on servers
     */
    default KVStore onMember(Consumer<List<Member>> listener) {
        requireNonNull(listener, "listener");
        return store().call(handle -> NativeGroup.onMember(handle, new MembersCall(listener)));
    }

    /**
     * Registers a function that a thread of the library calls each time a server that was killed
     * continues from a recovery point, see {@link ServerOptions#recovery}. Pushes after the point
     * are lost. Calls without a reply are repeated, and none takes effect twice. Replaces the
     * earlier function. The function may call the store. Its exceptions go to the
     * uncaught-exception handler of the thread.
     *
     * @param listener the function; while it is set, it is kept alive
     * @return this store
     * @throws KVStoreException with {@code UNSUPPORTED} if the store is not on servers
     */
    default KVStore onRewind(Consumer<Rewound> listener) {
        requireNonNull(listener, "listener");
        return store().call(handle -> NativeGroup.onRewind(handle, new RewoundCall(listener)));
    }

    /**
     * Sets the weight of this worker in the weighted means of the next rounds, for example the
     * number of examples that its next push is computed from.
     *
     * @param weight the weight, a finite number above 0
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the weight is not valid
     * @throws KVStoreException with {@code UNSUPPORTED} if the store was created without
     *     {@link NetStoreOptions#weight}
     */
    default KVStore setWeight(double weight) {
        return store().call(handle -> NativeGroup.setWeight(handle, weight));
    }

    /**
     * Leaves the group of a store on servers. Later calls of this store fail, except
     * {@link KVStore#close}.
     *
     * @return this store
     * @throws KVStoreException with {@code UNSUPPORTED} if the store is not on servers
     */
    default KVStore leave() {
        KVStore store = store();
        store.call(NativeGroup::leave);
        store.waitsAtExit = false;
        return store;
    }

    /**
     * Writes a checkpoint on the servers: each server writes its values into its folder of
     * checkpoints. {@link KVStore#restore} reads the folder if it has all parts.
     *
     * @param name the name of the checkpoint, a folder in that of each server
     * @return this store
     * @throws KVStoreException with {@code UNSUPPORTED} if the store has no servers, or a server
     *     has no folder for checkpoints
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the name is not that of a folder
     * @throws KVStoreException with {@code BACKEND} if a server cannot write its part
     */
    default KVStore checkpointOnServers(String name) {
        requireNonNull(name, "name");
        return store().call(handle -> NativeGroup.checkpointOnServers(handle, name));
    }

    private KVStore store() {
        return (KVStore) this;
    }
}
