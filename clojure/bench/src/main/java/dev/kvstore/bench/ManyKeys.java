package dev.kvstore.bench;

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
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.Warmup;

/** Measures whether a call with a thousand small keys costs as much as a thousand calls. */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 2, time = 1)
@Measurement(iterations = 4, time = 1)
@Fork(1)
public class ManyKeys {
    private final KVStore store = Stores.store();
    private final String[] keys = Stores.keys();
    private final NDArray[] values = Stores.arrays(1);
    private final NDArray[] outs = Stores.arrays(0);
    private final IFn push = Stores.function("kvstore", "push");
    private final IFn pull = Stores.function("kvstore", "pull");
    private final Object keyVector = Stores.vector(keys);
    private final Object valueVector = Stores.vector(values);
    private final Object outVector = Stores.vector(outs);

    /** One call per key. */
    @Benchmark
    public void pushOneByOne() {
        for (int i = 0; i < keys.length; i++) {
            store.push(keys[i], values[i]);
        }
    }

    /** One call for all keys. */
    @Benchmark
    public KVStore push() {
        return store.push(keys, values, 0);
    }

    /** One call for all keys. */
    @Benchmark
    public KVStore pull() {
        return store.pull(keys, outs, 0);
    }

    /** One call from Clojure for all keys. */
    @Benchmark
    public Object pushFromClojure() {
        return push.invoke(store, keyVector, valueVector);
    }

    /** One call from Clojure for all keys. */
    @Benchmark
    public Object pullFromClojure() {
        return pull.invoke(store, keyVector, outVector);
    }
}
