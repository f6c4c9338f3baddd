/**
 * A store of named tensors that many devices share.
 *
 * <p>{@link dev.kvstore.KVStore#init init} stores a value under a key.
 * {@link dev.kvstore.KVStore#push push} sums any number of values per key and passes the sum to an
 * {@link dev.kvstore.Updater} or an {@link dev.kvstore.Optimizer}.
 * {@link dev.kvstore.KVStore#pull(String) pull} returns the newest value to any number of devices.
 *
 * <pre>{@code
 * try (KVStore store = KVStore.create();
 *         NDArray weights = NDArray.ones(Shape.of(2, 3));
 *         NDArray gradient = NDArray.full(Shape.of(2, 3), 4)) {
 *     store.init("weights", weights);
 *     store.push("weights", gradient);
 *     try (NDArray current = store.pull("weights")) {
 *         System.out.println(Arrays.toString(current.toFloats()));   // six times 4.0
 *     }
 * }
 * }</pre>
 *
 * <p>{@link dev.kvstore.NDArray} and {@link dev.kvstore.KVStore} own native memory: close them when
 * you no longer need them. An object that is not closed is released after it has been
 * garbage-collected. All classes may be used from any thread, except
 * {@link dev.kvstore.ResourceScope}, which only the thread that opened it may use. Failures are
 * reported as {@link dev.kvstore.KVStoreException}, with two exceptions: a null argument throws a
 * {@link NullPointerException} that names the parameter, and closing a scope in the wrong order or
 * thread throws an {@link IllegalStateException}.
 */
package dev.kvstore;
