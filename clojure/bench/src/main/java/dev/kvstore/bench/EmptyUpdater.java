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

/** What does a push of a thousand small keys cost when an updater that does nothing sees each of them? */
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

    /** Gives the store a function of Clojure. */
    @Setup
    public void setUpdater() {
        Object nothing = Clojure.var("clojure.core", "eval").invoke(Clojure.read("(fn [_ _ _])"));
        Stores.function("kvstore", "set-updater").invoke(inClojure, nothing);
    }

    /** A lambda of Java. */
    @Benchmark
    public KVStore push() {
        return inJava.push(keys, values, 0);
    }

    /** A function of Clojure, and a push from there. */
    @Benchmark
    public Object pushFromClojure() {
        return push.invoke(inClojure, keyVector, valueVector);
    }
}
