package dev.kvstore.bench;

import clojure.lang.IFn;
import clojure.lang.PersistentVector;
import dev.kvstore.NDArray;
import dev.kvstore.Shape;
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

/**
 * Measures copies of 16 Mi floats between Java and native memory, compared with a copy between Java
 * arrays.
 */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 2, time = 1)
@Measurement(iterations = 4, time = 1)
@Fork(
        value = 1,
        jvmArgsAppend = {"-XX:+UseG1GC", "-Xms2g", "-Xmx2g", "-XX:+AlwaysPreTouch"})
public class Bulk {
    private static final int LENGTH = 16 << 20;

    private final float[] source = new float[LENGTH];
    private final float[] destination = new float[LENGTH];
    private NDArray array;
    private final IFn make = Stores.function("ndarray", "array");
    private final IFn readInto = Stores.function("ndarray", "read-into");
    private final IFn toArray = Stores.function("ndarray", "to-array");
    private final IFn dispose = Stores.function("ndarray", "dispose");

    /** Fills the arrays. */
    @Setup
    public void fill() {
        for (int i = 0; i < LENGTH; i++) {
            source[i] = i;
        }
        array = NDArray.of(source, Shape.of(LENGTH));
    }

    /** The baseline of the other benchmarks. */
    @Benchmark
    public float[] arraycopy() {
        System.arraycopy(source, 0, destination, 0, LENGTH);
        return destination;
    }

    /** The cost of a new array in Java, for comparison. */
    @Benchmark
    public float[] cloned() {
        return source.clone();
    }

    /** Reads into an array of the caller. */
    @Benchmark
    public float[] read() {
        array.read(0, destination);
        return destination;
    }

    /** Creates an array from a Java array of the caller. */
    @Benchmark
    public long make() {
        try (NDArray made = NDArray.of(source, Shape.of(LENGTH))) {
            return made.size();
        }
    }

    /** Reads into a new array. */
    @Benchmark
    public float[] toFloats() {
        return array.toFloats();
    }

    /** Reads into an array of the caller. */
    @Benchmark
    public Object readFromClojure() {
        return readInto.invoke(array, destination);
    }

    /** Creates an array from a Java array of the caller. */
    @Benchmark
    public Object makeFromClojure() {
        return dispose.invoke(make.invoke(source, PersistentVector.create((long) LENGTH)));
    }

    /** Reads into a new array. */
    @Benchmark
    public Object toFloatsFromClojure() {
        return toArray.invoke(array);
    }
}
