package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.util.Arrays;
import java.util.StringJoiner;

/**
 * How the learning rate of an optimizer changes with the number of a key's update, given to {@link
 * Optimizer#scheduler}. Immutable, a pure function of the base and of that number.
 *
 * <pre>{@code
 * LrScheduler halves = LrScheduler.factor(2, 0.5);
 * halves.learningRate(0.1, 3);   // 0.05
 * }</pre>
 *
 * <p>The base is the learning rate of the optimizer.
 */
public final class LrScheduler {
    private static final double LOWEST = 1e-8;

    private static final int KIND = 0;
    private static final int WARMUP_MODE = 1;
    private static final int WARMUP_STEPS = 2;
    private static final int WARMUP_BEGIN = 3;
    private static final int OWN = 4;
    private static final int STOP = OWN + 2;

    /** Which function it is. */
    enum Kind {
        FACTOR(0, "factor"),
        MULTI_FACTOR(1, "multi-factor"),
        POLY(2, "poly"),
        COSINE(3, "cosine");

        /** The number at the native border. */
        final int code;

        private final String text;

        Kind(int code, String text) {
            this.code = code;
            this.text = text;
        }

        /** Whether its own number in this place is a count, and not the bits of a double. */
        private boolean isCount(int place) {
            return this == MULTI_FACTOR ? place > 0 : place == 0;
        }
    }

    /** How the learning rate gets to its base in the first updates. */
    public enum Warmup {
        /** In equal steps. */
        LINEAR(0),
        /** It stays where it began until the warm-up is over. */
        CONSTANT(1);

        /** The number at the native border. */
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
        // Numbers that are no schedule are refused here, and not when it is used.
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
     * Returns the schedule that multiplies by {@code factor} after every {@code step} updates, and does
     * not fall below 1e-8.
     *
     * @param step a number of updates, at least 1
     * @param factor from 0 to 1
     * @return the schedule
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when they are not
     */
    public static LrScheduler factor(long step, double factor) {
        return of(Kind.FACTOR, step, bits(factor), bits(LOWEST));
    }

    /**
     * Returns the schedule that multiplies by {@code factor} after each of these numbers of updates.
     *
     * @param steps ascending, from 1 on
     * @param factor from 0 to 1
     * @return the schedule
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when they are not
     */
    public static LrScheduler multiFactor(long[] steps, double factor) {
        requireNonNull(steps, "steps");
        long[] own = new long[1 + steps.length];
        own[0] = bits(factor);
        System.arraycopy(steps, 0, own, 1, steps.length);
        return of(Kind.MULTI_FACTOR, own);
    }

    /**
     * Returns the schedule that falls from the base to {@code finalLr} at update {@code maxUpdate} as a
     * polynomial: {@code finalLr + (base - finalLr) * (1 - n / N)^power}, with {@code n} and {@code N} counted
     * from the end of the warm-up to the update and to {@code maxUpdate}.
     *
     * @param maxUpdate the update at which it ends, at least 1
     * @param power the power
     * @param finalLr the learning rate from then on
     * @return the schedule
     * @throws KVStoreException with {@code INVALID_ARGUMENT} for other numbers
     */
    public static LrScheduler poly(long maxUpdate, double power, double finalLr) {
        return of(Kind.POLY, maxUpdate, bits(power), bits(finalLr));
    }

    /**
     * Returns the schedule that falls from the base to {@code finalLr} at update {@code maxUpdate} as half
     * a wave: {@code finalLr + (base - finalLr) * (1 + cos(pi * n / N)) / 2}, with {@code n} and {@code N}
     * counted from the end of the warm-up to the update and to {@code maxUpdate}.
     *
     * @param maxUpdate the update at which it ends, at least 1
     * @param finalLr the learning rate from then on
     * @return the schedule
     * @throws KVStoreException with {@code INVALID_ARGUMENT} for other numbers
     */
    public static LrScheduler cosine(long maxUpdate, double finalLr) {
        return of(Kind.COSINE, maxUpdate, bits(finalLr));
    }

    /**
     * Returns this schedule with a warm-up: before update {@code steps} the learning rate comes from
     * {@code beginLr}, and the base is reached at that update.
     *
     * @param steps a number of updates
     * @param beginLr the learning rate at first
     * @param mode how it gets to the base
     * @return the changed schedule
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this schedule ends before the warm-up
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
     * Returns this schedule with another lower bound; only that of {@link #factor} has one.
     *
     * @param stopFactorLr the lowest learning rate
     * @return the changed schedule
     * @throws KVStoreException with {@code INVALID_ARGUMENT} for another kind of schedule
     */
    public LrScheduler stop(double stopFactorLr) {
        if (kind != Kind.FACTOR) {
            throw KVStoreException.invalidArgument("only a factor schedule has a lower bound");
        }
        long[] changed = numbers.clone();
        changed[STOP] = bits(stopFactorLr);
        return new LrScheduler(kind, changed);
    }

    /**
     * Returns the learning rate of an update.
     *
     * @param base the learning rate of the optimizer
     * @param numUpdate the number of the key's update, counted from 1
     * @return the learning rate
     */
    public double learningRate(double base, long numUpdate) {
        NativeLibrary.load();
        return NativeOptimizer.learningRate(numbers, base, numUpdate);
    }

    /**
     * The schedule as the native library takes it: the codes of its kind and of the mode of its warm-up, the
     * updates of the warm-up, where that begins, and its own numbers. Fractions are the bits of a double.
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
