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

/** Measures a push and a pull of one small key. */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 2, time = 1)
@Measurement(iterations = 4, time = 1)
@Fork(1)
public class OneKey {
    private final KVStore store = Stores.store();
    private final NDArray value = Stores.array(1);
    private final NDArray out = Stores.array(0);
    private final IFn push = Stores.function("kvstore", "push");
    private final IFn pull = Stores.function("kvstore", "pull");

    /** A push from Java. */
    @Benchmark
    public KVStore push() {
        return store.push("k7", value);
    }

    /** A pull from Java. */
    @Benchmark
    public KVStore pull() {
        return store.pull("k7", out);
    }

    /** A push from Clojure. */
    @Benchmark
    public Object pushFromClojure() {
        return push.invoke(store, "k7", value);
    }

    /** A pull from Clojure. */
    @Benchmark
    public Object pullFromClojure() {
        return pull.invoke(store, "k7", out);
    }
}
