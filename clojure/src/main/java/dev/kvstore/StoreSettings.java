package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.OptionalDouble;

/** Sets what a {@link KVStore} does with pushed values: updater, optimizer, compression. */
public sealed interface StoreSettings permits KVStore {
    /**
     * Sets what the store does with pushed values, in place of an earlier updater or optimizer.
     *
     * @param updater the updater, or null: pushed values replace the stored ones
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
     * Sets the rule by which pushed gradients change the stored values, in place of an earlier
     * updater or optimizer. Its states start anew.
     *
     * @param optimizer the optimizer
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when a hyper-parameter is out of range
     */
    default KVStore setOptimizer(Optimizer optimizer) {
        requireNonNull(optimizer, "optimizer");
        KVStore store = store();
        store.call(handle -> optimizer.run(rule -> NativeKVStore.setOptimizer(handle, rule)));
        store.hasUpdater = false;
        return store;
    }

    /**
     * Returns the hyper-parameters of the optimizer that runs on the store, as they are now.
     *
     * @return the values by name
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when no optimizer is set
     */
    default Map<String, Double> hyperParameters() {
        Object[] found = store().query(NativeKVStore::hyperParameters);
        return Optimizer.map((String[]) found[0], (double[]) found[1]);
    }

    /**
     * Changes hyper-parameters of the optimizer that runs on the store, all or none. States and
     * counts stay, and pushes that are under way keep the old values.
     *
     * @param changed new values by name: numbers, or booleans if {@link Optimizer#isFlag} is true
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when no optimizer is set, when it has
     *     no such hyper-parameter, when a value has another type or is out of range, or when two
     *     names, such as {@code lr} and {@code learning_rate}, name the same one
     */
    default KVStore setHyperParameters(Map<String, ?> changed) {
        Map<String, Double> canonical =
                Optimizer.canonical(new LinkedHashMap<>(requireNonNull(changed, "changed")));
        String[] names = Optimizer.names(canonical);
        double[] values = Optimizer.values(canonical);
        return store().call(handle -> NativeKVStore.setHyperParameters(handle, names, values));
    }

    /**
     * Compresses the values of every push from now on. For each key and each position in the list
     * of its values a residual is kept; an element is added to it, and what is pushed is what its
     * code means, which is taken off the residual:
     *
     * <ul>
     *   <li>{@code 2bit}: the threshold for a residual of at least that, its negative for one of at
     *       most that, and otherwise zero;
     *   <li>{@code 1bit}: 1 for a residual above the threshold, and otherwise -1.
     * </ul>
     *
     * <p>Integers cannot be compressed: pushing them is {@code INVALID_ARGUMENT} then.
     *
     * @param type {@code 2bit} or {@code 1bit}
     * @param threshold greater than 0
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} for another type or threshold
     */
    default KVStore setGradientCompression(String type, double threshold) {
        requireNonNull(type, "type");
        return store().call(
                handle -> NativeKVStore.setGradientCompression(handle, type, threshold));
    }

    /**
     * Pushes values whole again. What compressed values have not sent yet is kept.
     *
     * @return this store
     */
    default KVStore clearGradientCompression() {
        return store().call(NativeKVStore::clearGradientCompression);
    }

    /**
     * Scales the sums of every push from now on, so that the Euclidean norm over all keys of the
     * push is at most {@code bound}: clipping by the global norm. The factor is {@code bound / (norm
     * + 1e-8)}.
     *
     * <p>Each push has a norm of its own, so the gradients of a model belong in one push. An
     * optimizer or updater gets the clipped sums; {@code rescale_grad} comes after. A norm that is
     * not finite clips nothing. Integers cannot be clipped: pushing them is {@code
     * INVALID_ARGUMENT} then.
     *
     * @param bound finite and greater than 0
     * @return this store
     * @throws KVStoreException with {@code INVALID_ARGUMENT} for another bound, and with gradient
     *     compression
     */
    default KVStore setClipGlobalNorm(double bound) {
        return store().call(handle -> NativeKVStore.setClipGlobalNorm(handle, bound));
    }

    /**
     * Pushes sums of any norm again.
     *
     * @return this store
     */
    default KVStore clearClipGlobalNorm() {
        return store().call(NativeKVStore::clearClipGlobalNorm);
    }

    /** {@return the bound of the norm of a push; empty without one} */
    default OptionalDouble clipGlobalNorm() {
        double bound = store().query(NativeKVStore::clipGlobalNorm);
        return bound == 0 ? OptionalDouble.empty() : OptionalDouble.of(bound);
    }

    private KVStore store() {
        return (KVStore) this;
    }
}
