/**
 * A store of named tensors that many devices share.
 *
 * <p>{@link dev.kvstore.KVStore#init init} puts a value under a key, {@link dev.kvstore.KVStore#push
 * push} sums any number of values per key and hands the sum to an {@link dev.kvstore.Updater} or an
 * {@link dev.kvstore.Optimizer}, {@link dev.kvstore.KVStore#pull(String) pull} gives the newest
 * value to any number of devices.
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
 * they are no longer needed. What is forgotten is released after the garbage collector has found it.
 * Every class of this package may be used from any thread, but a {@link dev.kvstore.ResourceScope} by the
 * thread that opened it. Every failure is a {@link dev.kvstore.KVStoreException}, with two exceptions: a null
 * argument is a {@link NullPointerException} that names the parameter, and a scope that is ended in the wrong
 * place is an {@link IllegalStateException}.
 */
package dev.kvstore;
