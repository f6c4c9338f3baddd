package dev.kvstore;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;

/**
 * An update rule with its hyper-parameters, given to {@link KVStore#setOptimizer(Optimizer)}.
 * Immutable: every method that changes a value returns another optimizer.
 *
 * <pre>{@code
 * store.setOptimizer(Optimizer.sgd().learningRate(0.1).momentum(0.9));
 * }</pre>
 */
public final class Optimizer {
    private static final String LEARNING_RATE = "learning_rate";
    private static final String MOMENTUM = "momentum";
    private static final String WEIGHT_DECAY = "wd";
    private static final String CLIP_GRADIENT = "clip_gradient";
    private static final String RESCALE_GRAD = "rescale_grad";

    private final String name;
    private final Map<String, Double> hyperParameters;

    private Optimizer(String name, Map<String, Double> hyperParameters) {
        this.name = name;
        this.hyperParameters = Collections.unmodifiableMap(hyperParameters);
    }

    /**
     * Returns stochastic gradient descent with the defaults {@code learning_rate} 0.01, {@code
     * momentum} 0, {@code wd} 0.0001, {@code clip_gradient} 0 (off) and {@code rescale_grad} 1.
     *
     * <p>With {@code g = clip(rescale_grad * gradient) + wd * weight}: {@code m = momentum * m -
     * learning_rate * g}, {@code weight = weight + m}.
     *
     * @return the optimizer
     */
    public static Optimizer sgd() {
        Map<String, Double> defaults = new LinkedHashMap<>();
        defaults.put(LEARNING_RATE, 0.01);
        defaults.put(MOMENTUM, 0.0);
        defaults.put(WEIGHT_DECAY, 0.0001);
        defaults.put(CLIP_GRADIENT, 0.0);
        defaults.put(RESCALE_GRAD, 1.0);
        return new Optimizer("sgd", defaults);
    }

    /**
     * Returns this optimizer with another value of one hyper-parameter.
     *
     * @param hyperParameter a key of {@link #hyperParameters()}
     * @param value its value
     * @return the changed optimizer
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter
     */
    public Optimizer with(String hyperParameter, double value) {
        Objects.requireNonNull(hyperParameter, "hyperParameter");
        if (!hyperParameters.containsKey(hyperParameter)) {
            throw KVStoreException.invalidArgument(
                    "optimizer `" + name + "` has no hyper-parameter `" + hyperParameter
                            + "`, expected one of " + String.join(", ", hyperParameters.keySet()));
        }
        Map<String, Double> changed = new LinkedHashMap<>(hyperParameters);
        changed.put(hyperParameter, value);
        return new Optimizer(name, changed);
    }

    /**
     * Returns this optimizer with another learning rate.
     *
     * @param value the size of one step
     * @return the changed optimizer
     */
    public Optimizer learningRate(double value) {
        return with(LEARNING_RATE, value);
    }

    /**
     * Returns this optimizer with another momentum.
     *
     * @param value the share of the last step that is kept; 0 turns it off
     * @return the changed optimizer
     */
    public Optimizer momentum(double value) {
        return with(MOMENTUM, value);
    }

    /**
     * Returns this optimizer with another weight decay.
     *
     * @param value the share of the weight that is added to its gradient
     * @return the changed optimizer
     */
    public Optimizer weightDecay(double value) {
        return with(WEIGHT_DECAY, value);
    }

    /**
     * Returns this optimizer with another bound for the gradient.
     *
     * @param value every element is cut to between {@code -value} and {@code value}; 0 turns it off
     * @return the changed optimizer
     */
    public Optimizer clipGradient(double value) {
        return with(CLIP_GRADIENT, value);
    }

    /**
     * Returns this optimizer with another factor for the gradient.
     *
     * @param value the factor, for example one over the size of a batch
     * @return the changed optimizer
     */
    public Optimizer rescaleGrad(double value) {
        return with(RESCALE_GRAD, value);
    }

    /**
     * Returns the name of the update rule.
     *
     * @return for example {@code sgd}
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

    @Override
    public boolean equals(Object other) {
        return other instanceof Optimizer that
                && name.equals(that.name)
                && hyperParameters.equals(that.hyperParameters);
    }

    @Override
    public int hashCode() {
        return Objects.hash(name, hyperParameters);
    }

    @Override
    public String toString() {
        return name + hyperParameters;
    }
}
