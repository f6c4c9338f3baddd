package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.OptionalDouble;

/**
 * Configures how a {@link KVStore} processes pushed values: updater, optimizer, compression and
 * clipping.
 */
public sealed interface StoreSettings permits KVStore {
    /**
     * Sets the updater for later pushes. It replaces an earlier updater or optimizer.
     *
     * @param updater the updater, or null; then pushed values replace the stored ones
     * @return this store
     */
    default KVStore setUpdater(Updater updater) {
        KVStore store = store();
        return store.call(handle -> {
            if (updater == null) {
                NativeKVStore.clearUpdater(handle);
                store.hasUpdater = false;
            } else {
                store.hasUpdater = true;
                NativeKVStore.setUpdater(handle, new UpdaterCall(updater));
            }
        });
    }

    /**
     * Sets the optimizer that applies pushed gradients to the stored values. It replaces an earlier
     * updater or optimizer. All optimizer states start anew.
     *
     * @param optimizer the optimizer
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if a hyper-parameter is out of range
     */
    default KVStore setOptimizer(Optimizer optimizer) {
        requireNonNull(optimizer, "optimizer");
        KVStore store = store();
        store.call(handle -> optimizer.run(rule -> NativeKVStore.setOptimizer(handle, rule)));
        store.hasUpdater = false;
        return store;
    }

    /**
     * Returns the current hyper-parameters of the store's optimizer.
     *
     * @return the values by name
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if no optimizer is set
     */
    default Map<String, Double> hyperParameters() {
        Object[] found = store().query(NativeKVStore::hyperParameters);
        return Optimizer.map((String[]) found[0], (double[]) found[1]);
    }

    /**
     * Changes hyper-parameters of the store's optimizer, all or none. States and update counts
     * stay. Pushes in progress use the old values.
     *
     * @param changed new values by name: numbers, or booleans if {@link Optimizer#isFlag} is true
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if no optimizer is set
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the optimizer has no
     *     hyper-parameter of that name
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if a value has another type or is out
     *     of range
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if two names, such as {@code lr} and
     *     {@code learning_rate}, denote the same hyper-parameter
     */
    default KVStore setHyperParameters(Map<String, ?> changed) {
        Map<String, Double> canonical =
                Optimizer.canonical(new LinkedHashMap<>(requireNonNull(changed, "changed")));
        String[] names = Optimizer.names(canonical);
        double[] values = Optimizer.values(canonical);
        return store().call(handle -> NativeKVStore.setHyperParameters(handle, names, values));
    }

    /**
     * Compresses the values of all later pushes. Integers cannot be compressed: pushing them then
     * fails with {@code INVALID_ARGUMENT}.
     *
     * <p>The store keeps a residual for each key and each position in the list of its values.
     * Compression adds each pushed element to its residual, encodes the residual as one of a few
     * numbers, pushes that number, and subtracts it from the residual:
     *
     * <ul>
     * <li>{@code 2bit}: the threshold if the residual is at least the threshold, its negative if
     *     the residual is at most the negative threshold, and zero otherwise;
     * <li>{@code 1bit}: 1 if the residual is above the threshold, and -1 otherwise.
     * </ul>
     *
     * @param type {@code 2bit} or {@code 1bit}
     * @param threshold the threshold, greater than 0
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the type or the threshold is not
     *     valid
     */
    default KVStore setGradientCompression(String type, double threshold) {
        requireNonNull(type, "type");
        return store().call(
                handle -> NativeKVStore.setGradientCompression(handle, type, threshold));
    }

    /**
     * Turns compression off. The residuals are kept, and later compressed pushes send them.
     *
     * @return this store
     */
    default KVStore clearGradientCompression() {
        return store().call(NativeKVStore::clearGradientCompression);
    }

    /**
     * Clips the sums of all later pushes by the global norm: scales them so that the Euclidean norm
     * over all keys of a push is at most {@code bound}. The factor is
     * {@code bound / (norm + 1e-8)}.
     *
     * <p>Each push has its own norm, so push all gradients of a model in one call. The store clips
     * before the optimizer or updater runs, and before {@code rescale_grad} is applied. A norm that
     * is NaN or infinite does not clip. Integers cannot be clipped: pushing them then fails with
     * {@code INVALID_ARGUMENT}.
     *
     * @param bound a finite number greater than 0
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the bound is not valid
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if gradient compression is on
     */
    default KVStore setClipGlobalNorm(double bound) {
        return store().call(handle -> NativeKVStore.setClipGlobalNorm(handle, bound));
    }

    /**
     * Turns clipping off.
     *
     * @return this store
     */
    default KVStore clearClipGlobalNorm() {
        return store().call(NativeKVStore::clearClipGlobalNorm);
    }

    /** {@return the bound of the global norm, or empty if clipping is off} */
    default OptionalDouble clipGlobalNorm() {
        double bound = store().query(NativeKVStore::clipGlobalNorm);
        return bound == 0 ? OptionalDouble.empty() : OptionalDouble.of(bound);
    }

    private KVStore store() {
        return (KVStore) this;
    }
}
