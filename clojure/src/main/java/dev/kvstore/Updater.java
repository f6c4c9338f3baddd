package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.util.OptionalLong;

/**
 * Computes the new value of a key from the sum of the pushed values.
 * {@link KVStore#setUpdater(Updater)} takes an updater.
 *
 * <p>The store holds the lock of the key while an updater runs. To avoid deadlocks:
 *
 * <ul>
 * <li>If an updater pushes to <em>another</em> store, an updater of that store must not push to
 *     this one.
 * <li>An updater must not wait for another thread that changes the same store: a snapshot may block
 *     that thread until the updater returns.
 * <li>If an updater waits for a virtual thread, a platform thread must call {@code push}: a virtual
 *     thread keeps its carrier during a native call.
 * </ul>
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
     * Changes {@code stored} in place. The store calls this once per key and push, in the thread
     * that pushes, after summing the values of the key. It does not call this for {@code init} or
     * {@code pull}.
     *
     * <p>Both arrays belong to this call and are closed when it returns. If this method returns
     * normally, the store takes the value of {@code stored}. If it throws, the key keeps its old
     * value, and {@code push} throws the same exception object. Inside this method, {@code pull}
     * returns the last committed value of any key. {@code push}, {@code init}, {@code remove} and
     * the setters of the same store fail with {@code INVALID_ARGUMENT}.
     *
     * @param key the key
     * @param pushed the sum of the pushed values
     * @param stored the value of the key, to change in place
     * @throws Exception to reject the update
     */
    void update(String key, NDArray pushed, NDArray stored) throws Exception;

    /**
     * Returns the staleness of the push that this updater runs for: the number of pushes that have
     * changed the key since the worker pulled it.
     *
     * @param key the key that the updater is called for
     * @return the number of pushes, or empty outside of an updater and in stores without servers
     */
    static OptionalLong pushStaleness(String key) {
        requireNonNull(key, "key");
        NativeLibrary.load();
        long staleness = NativeGroup.pushStaleness(key);
        return staleness < 0 ? OptionalLong.empty() : OptionalLong.of(staleness);
    }
}
