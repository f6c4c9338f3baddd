package dev.kvstore.bench;

import clojure.java.api.Clojure;
import clojure.lang.IFn;
import dev.kvstore.KVStore;
import dev.kvstore.NDArray;
import dev.kvstore.Shape;

/**
 * Inputs of the benchmarks: a store with a thousand small keys, as in
 * {@code kvstore/benches/jvm_calls.rs}.
 */
final class Stores {
    static final int NUM_KEYS = 1000;
    private static final long LENGTH = 64;

    private Stores() {}

    static String[] keys() {
        String[] keys = new String[NUM_KEYS];
        for (int i = 0; i < NUM_KEYS; i++) {
            keys[i] = "k" + i;
        }
        return keys;
    }

    static NDArray[] arrays(double value) {
        NDArray[] arrays = new NDArray[NUM_KEYS];
        for (int i = 0; i < NUM_KEYS; i++) {
            arrays[i] = array(value);
        }
        return arrays;
    }

    static NDArray array(double value) {
        return NDArray.full(Shape.of(LENGTH), value);
    }

    static KVStore store() {
        return KVStore.create("local").init(keys(), arrays(1));
    }

    /** Returns a function of a namespace of the Clojure API. */
    static IFn function(String namespace, String name) {
        String whole = "org.apache.clojure-mxnet." + namespace;
        Clojure.var("clojure.core", "require").invoke(Clojure.read(whole));
        return Clojure.var(whole, name);
    }

    static Object vector(Object[] items) {
        return Clojure.var("clojure.core", "vec").invoke(items);
    }
}
