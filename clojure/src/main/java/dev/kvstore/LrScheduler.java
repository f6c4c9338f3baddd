package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.util.Arrays;
import java.util.StringJoiner;

/**
 * A learning rate schedule for {@link Optimizer#scheduler}: a pure function of the base learning
 * rate and the update count of a key. Immutable.
 *
 * <pre>{@code
 * LrScheduler halves = LrScheduler.factor(2, 0.5);
 * halves.learningRate(0.1, 3);   // 0.05
 * }</pre>
 *
 * <p>The base is the learning rate of the optimizer. Update counts start at 1.
 */
public final class LrScheduler {
    private static final double LOWEST = 1e-8;

    private static final int KIND = 0;
    private static final int WARMUP_MODE = 1;
    private static final int WARMUP_STEPS = 2;
    private static final int WARMUP_BEGIN = 3;
    private static final int OWN = 4;
    private static final int STOP = OWN + 2;

    /** The function that a schedule computes. */
    enum Kind {
        FACTOR(0, "factor"),
        MULTI_FACTOR(1, "multi-factor"),
        POLY(2, "poly"),
        COSINE(3, "cosine");

        /** The code of this function in the native library. */
        final int code;

        private final String text;

        Kind(int code, String text) {
            this.code = code;
            this.text = text;
        }

        /**
         * Whether the parameter at this position is a count. Otherwise it is the bits of a double.
         */
        private boolean isCount(int place) {
            return this == MULTI_FACTOR ? place > 0 : place == 0;
        }
    }

    /** How the learning rate reaches its base in the first updates. */
    public enum Warmup {
        /** It rises in equal steps. */
        LINEAR(0),
        /** It keeps its first value until the warm-up ends. */
        CONSTANT(1);

        /** The code of this mode in the native library. */
        final int code;

        Warmup(int code) {
            this.code = code;
        }
    }

    private final Kind kind;
    private final long[] numbers;

    private LrScheduler(Kind kind, long... numbers) {
        this.kind = kind;
        this.numbers = numbers;
        // Compute one learning rate, so that invalid parameters fail here and not at the first use.
        learningRate(1, 1);
    }

    private static LrScheduler of(Kind kind, long... own) {
        long[] numbers = new long[OWN + own.length];
        numbers[KIND] = kind.code;
        System.arraycopy(own, 0, numbers, OWN, own.length);
        return new LrScheduler(kind, numbers);
    }

    private static long bits(double number) {
        return Double.doubleToRawLongBits(number);
    }

    /**
     * Returns a schedule that multiplies the learning rate by {@code factor} after every
     * {@code step} updates, but never goes below 1e-8.
     *
     * @param step the number of updates, at least 1
     * @param factor a factor from 0 to 1
     * @return the schedule
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if an argument is out of range
     */
    public static LrScheduler factor(long step, double factor) {
        return of(Kind.FACTOR, step, bits(factor), bits(LOWEST));
    }

    /**
     * Returns a schedule that multiplies the learning rate by {@code factor} after each of these
     * update counts.
     *
     * @param steps update counts in ascending order, each at least 1
     * @param factor a factor from 0 to 1
     * @return the schedule
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if an argument is out of range
     */
    public static LrScheduler multiFactor(long[] steps, double factor) {
        requireNonNull(steps, "steps");
        long[] own = new long[1 + steps.length];
        own[0] = bits(factor);
        System.arraycopy(steps, 0, own, 1, steps.length);
        return of(Kind.MULTI_FACTOR, own);
    }

    /**
     * Returns a schedule that decays polynomially from the base to {@code finalLr}:
     * {@code finalLr + (base - finalLr) * (1 - n / N)^power}, where {@code n} is the update count
     * and {@code N} is {@code maxUpdate}, both counted from the end of the warm-up.
     *
     * @param maxUpdate the update count at which the decay ends, at least 1
     * @param power the exponent
     * @param finalLr the learning rate from {@code maxUpdate} on
     * @return the schedule
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if an argument is out of range
     */
    public static LrScheduler poly(long maxUpdate, double power, double finalLr) {
        return of(Kind.POLY, maxUpdate, bits(power), bits(finalLr));
    }

    /**
     * Returns a schedule that decays from the base to {@code finalLr} along half a cosine wave:
     * {@code finalLr + (base - finalLr) * (1 + cos(pi * n / N)) / 2}, where {@code n} is the update
     * count and {@code N} is {@code maxUpdate}, both counted from the end of the warm-up.
     *
     * @param maxUpdate the update count at which the decay ends, at least 1
     * @param finalLr the learning rate from {@code maxUpdate} on
     * @return the schedule
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if an argument is out of range
     */
    public static LrScheduler cosine(long maxUpdate, double finalLr) {
        return of(Kind.COSINE, maxUpdate, bits(finalLr));
    }

    /**
     * Returns this schedule with a warm-up. The learning rate starts at {@code beginLr} and reaches
     * the base at update {@code steps}.
     *
     * @param steps the number of updates of the warm-up
     * @param beginLr the first learning rate
     * @param mode how the learning rate reaches the base
     * @return a new schedule
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if this schedule ends before the
     *     warm-up
     */
    public LrScheduler warmup(long steps, double beginLr, Warmup mode) {
        requireNonNull(mode, "mode");
        long[] changed = numbers.clone();
        changed[WARMUP_MODE] = mode.code;
        changed[WARMUP_STEPS] = steps;
        changed[WARMUP_BEGIN] = bits(beginLr);
        return new LrScheduler(kind, changed);
    }

    /**
     * Returns this schedule with another lower bound. Only {@link #factor} schedules have a lower
     * bound.
     *
     * @param stopFactorLr the lowest learning rate
     * @return a new schedule
     * @throws KVStoreException with {@code INVALID_ARGUMENT} for other schedules
     */
    public LrScheduler stop(double stopFactorLr) {
        if (kind != Kind.FACTOR) {
            throw KVStoreException.invalidArgument(
                    "stopFactorLr: expected a factor schedule, found " + this);
        }
        long[] changed = numbers.clone();
        changed[STOP] = bits(stopFactorLr);
        return new LrScheduler(kind, changed);
    }

    /**
     * Returns the learning rate of an update.
     *
     * @param base the learning rate of the optimizer
     * @param numUpdate the update count of the key, which starts at 1
     * @return the learning rate
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if {@code numUpdate} is negative
     */
    public double learningRate(double base, long numUpdate) {
        NativeLibrary.load();
        return NativeOptimizer.learningRate(numbers, base, numUpdate);
    }

    /**
     * Returns the schedule in the encoding of the native library: the code of the function, the
     * mode of the warm-up, the number of its updates, its first learning rate, and the parameters
     * of the function. Fractions are encoded as the bits of a double.
     */
    long[] numbers() {
        return numbers;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof LrScheduler that && Arrays.equals(numbers, that.numbers);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(numbers);
    }

    @Override
    public String toString() {
        StringJoiner own = new StringJoiner(", ", kind.text + "[", "]");
        for (int place = 0; place < numbers.length - OWN; place++) {
            long number = numbers[OWN + place];
            own.add(kind.isCount(place)
                    ? Long.toString(number)
                    : Double.toString(Double.longBitsToDouble(number)));
        }
        return numbers[WARMUP_STEPS] == 0
                ? own.toString()
                : own + " after " + numbers[WARMUP_STEPS] + " updates of warm-up";
    }
}
