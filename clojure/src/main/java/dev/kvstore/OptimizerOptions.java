// Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
package dev.kvstore;

import java.util.Map;
import java.util.Set;

/** A method for each hyper-parameter of any optimizer. {@link Optimizer} inherits them. */
abstract sealed class OptimizerOptions permits OptimizerFactories {
    OptimizerOptions() {}

    /** Other names of hyper-parameters. */
    static final Map<String, String> ALIASES = Map.of(
            "lr", "learning_rate",
            "weight_decay", "wd",
            "eps", "epsilon",
            "lambda", "lamda",
            "lambda1", "lamda1",
            "num_update", "begin_num_update");

    /** Hyper-parameters that are true or false, kept as 1 or 0. */
    static final Set<String> FLAGS = Set.of("lazy_update", "decoupled_wd", "pytorch_epsilon", "centered", "momentum_correction", "bias_correction");

    /**
     * {@return this optimizer with another value of one hyper-parameter}
     *
     * @param hyperParameter its name
     * @param value its value; 0 or 1 for a boolean
     */
    public abstract Optimizer with(String hyperParameter, double value);

    /**
     * {@return this optimizer with another {@code learning_rate}} Step size; with a schedule, its
     * base.
     *
     * @param value a number of at least 0
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer learningRate(double value) {
        return with("learning_rate", value);
    }

    /**
     * {@return this optimizer with another {@code wd}} Weight decay.
     *
     * @param value a finite number
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer weightDecay(double value) {
        return with("wd", value);
    }

    /**
     * {@return this optimizer with another {@code rescale_grad}} Factor on the gradient.
     *
     * @param value a finite number
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer rescaleGrad(double value) {
        return with("rescale_grad", value);
    }

    /**
     * {@return this optimizer with another {@code clip_gradient}} Bound on each element of the
     * rescaled gradient; 0 for none.
     *
     * @param value a number of at least 0
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer clipGradient(double value) {
        return with("clip_gradient", value);
    }

    /**
     * {@return this optimizer with another {@code begin_num_update}} Update count that keys start
     * with.
     *
     * @param value a whole number of at least 0
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer beginNumUpdate(long value) {
        return with("begin_num_update", value);
    }

    /**
     * {@return this optimizer with another {@code staleness_power}} Stores on servers divide the
     * learning rate by {@code 1 + staleness} to this power.
     *
     * @param value a number of at least 0
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer stalenessPower(double value) {
        return with("staleness_power", value);
    }

    /**
     * {@return this optimizer with another {@code momentum}} What it is depends on the optimizer:
     * see its factory.
     *
     * @param value a finite number
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer momentum(double value) {
        return with("momentum", value);
    }

    /**
     * {@return this optimizer with another {@code lazy_update}} Whether a row-sparse gradient
     * changes only its own rows of weight and state; otherwise missing rows count as 0.
     *
     * @param value true or false
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer lazyUpdate(boolean value) {
        return with("lazy_update", value ? 1 : 0);
    }

    /**
     * {@return this optimizer with another {@code lamda}} Strength of the compensation.
     *
     * @param value a finite number
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer lambda(double value) {
        return with("lamda", value);
    }

    /**
     * {@return this optimizer with another {@code seed}} Seed of the noise.
     *
     * @param value a whole number of at least 0
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer seed(long value) {
        return with("seed", value);
    }

    /**
     * {@return this optimizer with another {@code beta1}} What it is depends on the optimizer: see
     * its factory.
     *
     * @param value a number of at least 0 and below 1
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer beta1(double value) {
        return with("beta1", value);
    }

    /**
     * {@return this optimizer with another {@code beta2}} What it is depends on the optimizer: see
     * its factory.
     *
     * @param value a number of at least 0 and below 1
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer beta2(double value) {
        return with("beta2", value);
    }

    /**
     * {@return this optimizer with another {@code epsilon}} Added to the divisor to avoid division
     * by 0.
     *
     * @param value a number of at least 0
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer epsilon(double value) {
        return with("epsilon", value);
    }

    /**
     * {@return this optimizer with another {@code decay_factor}} Factor on {@code beta1} after each
     * update.
     *
     * @param value a number of at least 0
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer decayFactor(double value) {
        return with("decay_factor", value);
    }

    /**
     * {@return this optimizer with another {@code decoupled_wd}} Whether weight decay is subtracted
     * from the weight instead of added to the gradient.
     *
     * @param value true or false
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer decoupledWd(boolean value) {
        return with("decoupled_wd", value ? 1 : 0);
    }

    /**
     * {@return this optimizer with another {@code pytorch_epsilon}} Whether epsilon is added after
     * the square root and the bias correction, as by PyTorch.
     *
     * @param value true or false
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer pytorchEpsilon(boolean value) {
        return with("pytorch_epsilon", value ? 1 : 0);
    }

    /**
     * {@return this optimizer with another {@code rho}} Decay of the mean squared gradient and the
     * mean squared step.
     *
     * @param value a number of at least 0 and below 1
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer rho(double value) {
        return with("rho", value);
    }

    /**
     * {@return this optimizer with another {@code gamma1}} Decay of the mean gradient and the mean
     * squared gradient.
     *
     * @param value a number of at least 0 and below 1
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer gamma1(double value) {
        return with("gamma1", value);
    }

    /**
     * {@return this optimizer with another {@code gamma2}} Fraction of the last step that is added,
     * if {@code centered}.
     *
     * @param value a finite number
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer gamma2(double value) {
        return with("gamma2", value);
    }

    /**
     * {@return this optimizer with another {@code centered}} Whether the mean gradient is
     * subtracted, as by Graves.
     *
     * @param value true or false
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer centered(boolean value) {
        return with("centered", value ? 1 : 0);
    }

    /**
     * {@return this optimizer with another {@code clip_weights}} Bound on each element of the new
     * weight; 0 for none.
     *
     * @param value a number of at least 0
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer clipWeights(double value) {
        return with("clip_weights", value);
    }

    /**
     * {@return this optimizer with another {@code lamda1}} Strength of the L1 penalty.
     *
     * @param value a number of at least 0
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer lambda1(double value) {
        return with("lamda1", value);
    }

    /**
     * {@return this optimizer with another {@code beta}} A larger value makes the first steps
     * smaller.
     *
     * @param value a number of at least 0
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer beta(double value) {
        return with("beta", value);
    }

    /**
     * {@return this optimizer with another {@code schedule_decay}} Speed at which the momentum
     * approaches {@code beta1}.
     *
     * @param value a number of at least 0
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer scheduleDecay(double value) {
        return with("schedule_decay", value);
    }

    /**
     * {@return this optimizer with another {@code wd_lh}} Decoupled weight decay.
     *
     * @param value a number of at least 0
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer wdLh(double value) {
        return with("wd_lh", value);
    }

    /**
     * {@return this optimizer with another {@code eta}} Trust coefficient: norm of a step over norm
     * of the weight, at learning rate 1.
     *
     * @param value a number of at least 0
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer eta(double value) {
        return with("eta", value);
    }

    /**
     * {@return this optimizer with another {@code momentum_correction}} Whether a change of the
     * learning rate also scales the momentum.
     *
     * @param value true or false
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer momentumCorrection(boolean value) {
        return with("momentum_correction", value ? 1 : 0);
    }

    /**
     * {@return this optimizer with another {@code lower_bound}} Lower limit of the weight norm; 0
     * for none.
     *
     * @param value a number of at least 0
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer lowerBound(double value) {
        return with("lower_bound", value);
    }

    /**
     * {@return this optimizer with another {@code upper_bound}} Upper limit of the weight norm; 0
     * for none.
     *
     * @param value a number of at least 0
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer upperBound(double value) {
        return with("upper_bound", value);
    }

    /**
     * {@return this optimizer with another {@code bias_correction}} Whether to correct the bias of
     * means that start at 0.
     *
     * @param value true or false
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such
     *     hyper-parameter, or it cannot have this value
     */
    public Optimizer biasCorrection(boolean value) {
        return with("bias_correction", value ? 1 : 0);
    }
}
