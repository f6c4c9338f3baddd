package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.util.Arrays;

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
    private static final int FACTOR = 0;
    private static final int MULTI_FACTOR = 1;
    private static final int POLY = 2;
    private static final int COSINE = 3;

    private static final double LOWEST = 1e-8;

    private static final int KIND = 0;
    private static final int WARMUP_STEPS = 1;
    private static final int WARMUP_BEGIN = 2;
    private static final int WARMUP_MODE = 3;
    private static final int OWN = 4;
    private static final int STOP = OWN + 2;

    /** How the learning rate gets to its base in the first updates. */
    public enum Warmup {
        /** In equal steps. */
        LINEAR,
        /** It stays where it began until the warm-up is over. */
        CONSTANT
    }

    private final double[] numbers;

    private LrScheduler(double... numbers) {
        this.numbers = numbers;
        // Numbers that are no schedule are refused here, and not when it is used.
        learningRate(1, 1);
    }

    private static LrScheduler of(int kind, double... own) {
        double[] numbers = new double[OWN + own.length];
        numbers[KIND] = kind;
        System.arraycopy(own, 0, numbers, OWN, own.length);
        return new LrScheduler(numbers);
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
        return of(FACTOR, step, factor, LOWEST);
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
        double[] own = new double[1 + steps.length];
        own[0] = factor;
        for (int i = 0; i < steps.length; i++) {
            own[i + 1] = steps[i];
        }
        return of(MULTI_FACTOR, own);
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
        return of(POLY, maxUpdate, power, finalLr);
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
        return of(COSINE, maxUpdate, finalLr);
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
        double[] changed = numbers.clone();
        changed[WARMUP_STEPS] = steps;
        changed[WARMUP_BEGIN] = beginLr;
        changed[WARMUP_MODE] = mode.ordinal();
        return new LrScheduler(changed);
    }

    /**
     * Returns this schedule with another lower bound; only that of {@link #factor} has one.
     *
     * @param stopFactorLr the lowest learning rate
     * @return the changed schedule
     * @throws KVStoreException with {@code INVALID_ARGUMENT} for another kind of schedule
     */
    public LrScheduler stop(double stopFactorLr) {
        if (numbers[KIND] != FACTOR) {
            throw KVStoreException.invalidArgument("only a factor schedule has a lower bound");
        }
        double[] changed = numbers.clone();
        changed[STOP] = stopFactorLr;
        return new LrScheduler(changed);
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

    /** The schedule as the native library takes it. */
    double[] numbers() {
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
        String kind = new String[] {"factor", "multi-factor", "poly", "cosine"}[(int) numbers[KIND]];
        String own = Arrays.toString(Arrays.copyOfRange(numbers, OWN, numbers.length));
        return numbers[WARMUP_STEPS] == 0
                ? kind + own
                : kind + own + " after " + (long) numbers[WARMUP_STEPS] + " updates of warm-up";
    }
}
