package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.lang.ref.Reference;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.LongConsumer;

/**
 * An optimizer: an update rule with its hyper-parameters. {@link KVStore#setOptimizer(Optimizer)}
 * takes one. Optimizers are immutable: methods that change a value return a new optimizer.
 *
 * <pre>{@code
 * store.setOptimizer(Optimizer.sgd().learningRate(0.1).momentum(0.9));
 * }</pre>
 *
 * <p>Every optimizer has {@code learning_rate}, {@code wd} (weight decay), {@code rescale_grad},
 * {@code clip_gradient}, {@code begin_num_update} and {@code staleness_power}. The documentation of
 * each factory method lists the others.
 *
 * <p>In the formulas {@code w} is the weight, {@code lr} the learning rate, {@code rescale} is
 * {@code rescale_grad}, and {@code clip} clamps every element to the range from
 * {@code -clip_gradient} to {@code clip_gradient}. Each hyper-parameter has a method such as
 * {@link #beta1}. {@link #with(String, double)} takes its name in MXNet's Python package.
 *
 * <p>{@link #sgd}, {@link #dcasgd}, {@link #nag}, {@link #adaDelta}, {@link #rmsProp},
 * {@link #adaGrad}, {@link #adam} and {@link #sgld} have the formulas and defaults of MXNet's
 * optimizers for the JVM. The others follow MXNet's Python package or a paper; the
 * documentation of each names its source. {@link #of} uses the same defaults as the Rust and Python
 * bindings.
 */
public final class Optimizer extends OptimizerFactories {
    private final String name;
    private final Map<String, Double> hyperParameters;
    private final LrScheduler scheduler;
    private final Map<String, Double> learningRateMultipliers;
    private final Map<String, Double> weightDecayMultipliers;

    private Optimizer(
            String name,
            Map<String, Double> hyperParameters,
            LrScheduler scheduler,
            Map<String, Double> learningRateMultipliers,
            Map<String, Double> weightDecayMultipliers) {
        this.name = name;
        this.hyperParameters = Collections.unmodifiableMap(hyperParameters);
        this.scheduler = scheduler;
        this.learningRateMultipliers = Collections.unmodifiableMap(learningRateMultipliers);
        this.weightDecayMultipliers = Collections.unmodifiableMap(weightDecayMultipliers);
        // Create a native optimizer, so that invalid values fail here and not at the first use.
        run(optimizer -> { });
    }

    // ---- optimizers by name -----------------------------------------------------------------

    /**
     * Returns the names that {@link #of} accepts.
     *
     * @return for example {@code sgd}, {@code adamw}, {@code ftrl}
     */
    public static List<String> names() {
        NativeLibrary.load();
        return List.of(NativeOptimizer.names());
    }

    /**
     * Returns an optimizer with the formula and the defaults of MXNet's Python package, or, for
     * {@code adamw}, of its paper.
     *
     * @param name one of {@link #names}
     * @return the optimizer
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the name is unknown
     */
    public static Optimizer of(String name) {
        requireNonNull(name, "name");
        NativeLibrary.load();
        String[] names = NativeOptimizer.defaultNames(name);
        double[] values = NativeOptimizer.defaultValues(name);
        return new Optimizer(name, map(names, values), null, Map.of(), Map.of());
    }

    // ---- changing a value -------------------------------------------------------------------

    /**
     * Returns a copy of this optimizer with another value of one hyper-parameter.
     *
     * @param hyperParameter a key of {@link #hyperParameters()}, or an alias such as {@code lr}
     * @param value the value; 0 or 1 for a boolean
     * @return a new optimizer
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if this optimizer has no such
     *     hyper-parameter
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the value is not valid for the
     *     hyper-parameter
     */
    @Override
    public Optimizer with(String hyperParameter, double value) {
        String canonical = canonicalName(requireNonNull(hyperParameter, "hyperParameter"));
        if (!hyperParameters.containsKey(canonical)) {
            throw KVStoreException.invalidArgument(
                    "optimizer `" + name + "` has no hyper-parameter `" + hyperParameter
                            + "`: expected one of " + String.join(", ", hyperParameters.keySet()));
        }
        return new Optimizer(
                name,
                with(hyperParameters, canonical, value),
                scheduler,
                learningRateMultipliers,
                weightDecayMultipliers);
    }

    /**
     * Returns a copy of this optimizer with another value of a boolean hyper-parameter.
     *
     * @param hyperParameter the name of a hyper-parameter for which {@link #isFlag} is true
     * @param value the value
     * @return a new optimizer
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if this optimizer has no such
     *     hyper-parameter
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the hyper-parameter is a number
     */
    public Optimizer with(String hyperParameter, boolean value) {
        return with(
                hyperParameter, number(requireNonNull(hyperParameter, "hyperParameter"), value));
    }

    /**
     * Returns whether a hyper-parameter is boolean, stored as 0 or 1.
     *
     * @param hyperParameter the name of a hyper-parameter of any optimizer
     * @return true for {@code lazy_update}, {@code centered} and {@code decoupled_wd}
     */
    public static boolean isFlag(String hyperParameter) {
        return FLAGS.contains(canonicalName(requireNonNull(hyperParameter, "hyperParameter")));
    }

    private static String canonicalName(String hyperParameter) {
        return ALIASES.getOrDefault(hyperParameter, hyperParameter);
    }

    /** Converts a value to a number. Booleans become 0 or 1. */
    private static double number(String hyperParameter, Object value) {
        requireNonNull(value, hyperParameter);
        if (value instanceof Number number) {
            return number.doubleValue();
        }
        if (value instanceof Boolean flag && isFlag(hyperParameter)) {
            return flag ? 1 : 0;
        }
        throw KVStoreException.invalidArgument(
                "hyper-parameter `" + hyperParameter + "`: expected "
                        + (isFlag(hyperParameter) ? "true, false, 0 or 1" : "a number")
                        + ", found " + value + " (" + value.getClass().getName() + ")");
    }

    /** Returns the values by canonical name. */
    static Map<String, Double> canonical(Map<String, ?> changed) {
        Map<String, Double> values = new LinkedHashMap<>();
        Map<String, String> given = new LinkedHashMap<>();
        for (Map.Entry<String, ?> entry : changed.entrySet()) {
            String name = requireNonNull(entry.getKey(), "name");
            String other = given.put(canonicalName(name), name);
            if (other != null) {
                throw KVStoreException.invalidArgument(
                        "`" + other + "` and `" + name
                                + "` name the same hyper-parameter: "
                                + "expected one of them, found both");
            }
            values.put(canonicalName(name), number(name, entry.getValue()));
        }
        return values;
    }

    /**
     * Returns a copy of this optimizer with a learning rate schedule. Its base is the learning rate
     * of the optimizer.
     *
     * @param scheduler the schedule, or null for none
     * @return a new optimizer
     */
    public Optimizer scheduler(LrScheduler scheduler) {
        return new Optimizer(
                name, hyperParameters, scheduler, learningRateMultipliers, weightDecayMultipliers);
    }

    /**
     * Returns a copy of this optimizer that multiplies the learning rate of one key by a factor.
     *
     * @param key the key
     * @param factor the factor
     * @return a new optimizer
     */
    public Optimizer learningRateMultiplier(String key, double factor) {
        requireNonNull(key, "key");
        return new Optimizer(
                name,
                hyperParameters,
                scheduler,
                with(learningRateMultipliers, key, factor),
                weightDecayMultipliers);
    }

    /**
     * Returns a copy of this optimizer that multiplies the weight decay of one key by a factor.
     *
     * @param key the key
     * @param factor the factor
     * @return a new optimizer
     */
    public Optimizer weightDecayMultiplier(String key, double factor) {
        requireNonNull(key, "key");
        return new Optimizer(
                name,
                hyperParameters,
                scheduler,
                learningRateMultipliers,
                with(weightDecayMultipliers, key, factor));
    }

    // ---- properties -------------------------------------------------------------------------

    /**
     * Returns the name of the update rule.
     *
     * @return one of {@link #names}
     */
    public String name() {
        return name;
    }

    /**
     * Returns every hyper-parameter with its value.
     *
     * @return an unmodifiable map
     */
    public Map<String, Double> hyperParameters() {
        return hyperParameters;
    }

    /**
     * Returns the schedule of the learning rate.
     *
     * @return the schedule, or null if there is none
     */
    public LrScheduler scheduler() {
        return scheduler;
    }

    // ---- use without a store ----------------------------------------------------------------

    /**
     * Creates the initial optimizer state of a weight.
     *
     * @param weight the weight
     * @return a new state
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the weight has an integer data type
     */
    public OptimizerState createState(NDArray weight) {
        requireNonNull(weight, "weight");
        long[] state = new long[1];
        try {
            // The size of the weight is an estimate. Only the native library knows the size of the
            // state.
            NativeMemory.allocate(weight.context(), weight.numBytes(), () -> {
                run(optimizer ->
                        state[0] = NativeOptimizer.createState(optimizer, weight.handle()));
                return state;
            });
            return new OptimizerState(state[0]);
        } finally {
            Reference.reachabilityFence(weight);
        }
    }

    /**
     * Updates a weight by one step, without a store.
     *
     * @param key the key for multipliers and for the random numbers of {@link #sgld}
     * @param weight the weight
     * @param gradient the gradient, of the same shape and data type
     * @param state the state that {@link #createState} returned for this weight
     * @return this optimizer
     * @throws KVStoreException with {@code SPEC_MISMATCH} if the gradient or the state does not
     *     match the shape and data type of the weight
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the state belongs to another
     *     optimizer
     */
    public Optimizer update(String key, NDArray weight, NDArray gradient, OptimizerState state) {
        requireNonNull(key, "key");
        requireNonNull(weight, "weight");
        requireNonNull(gradient, "gradient");
        requireNonNull(state, "state");
        try {
            NativeMemory.retry(() -> run(optimizer -> NativeOptimizer.update(
                    optimizer, key, weight.handle(), gradient.handle(), state.handle())));
            return this;
        } finally {
            Reference.reachabilityFence(weight);
            Reference.reachabilityFence(gradient);
            Reference.reachabilityFence(state);
        }
    }

    /**
     * Calls {@code action} with a native copy of this optimizer, which is released after the call.
     */
    void run(LongConsumer action) {
        NativeLibrary.load();
        long optimizer = NativeOptimizer.create(
                name,
                names(hyperParameters),
                values(hyperParameters),
                scheduler == null ? new long[0] : scheduler.numbers(),
                names(learningRateMultipliers),
                values(learningRateMultipliers),
                names(weightDecayMultipliers),
                values(weightDecayMultipliers));
        try {
            action.accept(optimizer);
        } finally {
            NativeOptimizer.release(optimizer);
        }
    }

    // ---- maps of numbers --------------------------------------------------------------------

    private static Map<String, Double> with(Map<String, Double> map, String key, double value) {
        Map<String, Double> changed = new LinkedHashMap<>(map);
        changed.put(key, value);
        return changed;
    }

    static Map<String, Double> map(String[] names, double[] values) {
        Map<String, Double> map = new LinkedHashMap<>();
        for (int i = 0; i < names.length; i++) {
            map.put(names[i], values[i]);
        }
        return map;
    }

    static String[] names(Map<String, ? extends Number> map) {
        return map.keySet().toArray(String[]::new);
    }

    static double[] values(Map<String, ? extends Number> map) {
        return map.entrySet().stream()
                .mapToDouble(
                        entry -> requireNonNull(entry.getValue(), entry.getKey()).doubleValue())
                .toArray();
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Optimizer that
                && name.equals(that.name)
                && hyperParameters.equals(that.hyperParameters)
                && Objects.equals(scheduler, that.scheduler)
                && learningRateMultipliers.equals(that.learningRateMultipliers)
                && weightDecayMultipliers.equals(that.weightDecayMultipliers);
    }

    @Override
    public int hashCode() {
        return Objects.hash(
                name, hyperParameters, scheduler, learningRateMultipliers, weightDecayMultipliers);
    }

    @Override
    public String toString() {
        return scheduler == null
                ? name + hyperParameters
                : name + hyperParameters + " " + scheduler;
    }
}
