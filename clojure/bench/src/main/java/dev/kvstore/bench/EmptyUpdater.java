package dev.kvstore.bench;

import clojure.java.api.Clojure;
import clojure.lang.IFn;
import dev.kvstore.KVStore;
import dev.kvstore.NDArray;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.Warmup;

/** Measures a push of a thousand small keys to a store whose updater does nothing. */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 2, time = 1)
@Measurement(iterations = 4, time = 1)
@Fork(1)
public class EmptyUpdater {
    private final String[] keys = Stores.keys();
    private final NDArray[] values = Stores.arrays(1);
    private final Object keyVector = Stores.vector(keys);
    private final Object valueVector = Stores.vector(values);
    private final IFn push = Stores.function("kvstore", "push");
    private final KVStore inJava = Stores.store().setUpdater((key, pushed, stored) -> {});
    private final KVStore inClojure = Stores.store();

    /** Sets a Clojure function as the updater. */
    @Setup
    public void setUpdater() {
        Object nothing = Clojure.var("clojure.core", "eval").invoke(Clojure.read("(fn [_ _ _])"));
        Stores.function("kvstore", "set-updater").invoke(inClojure, nothing);
    }

    /** The updater is a Java lambda. */
    @Benchmark
    public KVStore push() {
        return inJava.push(keys, values, 0);
    }

    /** The updater is a Clojure function, and Clojure makes the push. */
    @Benchmark
    public Object pushFromClojure() {
        return push.invoke(inClojure, keyVector, valueVector);
    }
}
