package dev.kvstore;

/**
 * What a store does with the sum of the values pushed to a key, given to {@link
 * KVStore#setUpdater(Updater)}.
 *
 * <p>It runs under the lock of its key. An updater that pushes into <em>another</em> store must not be pushed
 * into from there, or two threads may wait for each other. One that waits for another thread to change its own
 * store may wait for ever, for a snapshot holds that thread up and waits for the updater; and one that waits for
 * a virtual thread needs a platform thread as its caller, since a virtual one stays on its carrier during a
 * native call.
 *
 * <pre>{@code
 * store.setUpdater((key, pushed, stored) -> {
 *     try (NDArray doubled = pushed.multiply(2)) {
 *         stored.addInPlace(doubled);
 *     }
 * });
 * }</pre>
 */
@FunctionalInterface
public interface Updater {
    /**
     * Changes {@code stored} in place. It runs once per key and push, in the thread that pushes, after
     * the values of the key were summed; never for {@code init} or {@code pull}.
     *
     * <p>Both arrays are private to this call and closed when it ends. When it returns, the store
     * takes the value of {@code stored}; when it throws, the key keeps its old value and the caller of
     * {@code push} gets the very object that was thrown. Inside it {@code pull} gives the last committed
     * value of any key; {@code push}, {@code init}, {@code remove} and the setters of the same store are
     * {@code INVALID_ARGUMENT}.
     *
     * @param key the key
     * @param pushed the sum of the pushed values
     * @param stored the value of the key, to be changed
     * @throws Exception to refuse the update
     */
    void update(String key, NDArray pushed, NDArray stored) throws Exception;
}
