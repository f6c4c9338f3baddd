// Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
package dev.kvstore;

/** A factory method for each optimizer. {@link Optimizer} inherits them. */
abstract sealed class OptimizerFactories extends OptimizerOptions permits Optimizer {
    OptimizerFactories() {}

    /**
     * {@return {@code sgd}} Stochastic gradient descent, with or without momentum.
     *
     * <p>With {@code q = clip(rescale * gradient)}:
     * <ul>
     * <li>without momentum: {@code w = (1 - lr * wd) * w - lr * q}
     * <li>with momentum: {@code m = momentum * m - lr * wd * w - lr * q}, {@code w = w + m}
     * </ul>
     *
     * <p>Source: the operators {@code sgd_update} and {@code sgd_mom_update} of Apache MXNet 1.9.
     *
     * <p>{@code learning_rate} is 0.01, {@code wd} is 0.0001. Its own hyper-parameters:
     * <ul>
     * <li>{@code momentum}, 0: Fraction of the last step that is added; 0 for no momentum.
     * <li>{@code lazy_update}, true: Whether a row-sparse gradient changes only its own rows of
     * weight and state; otherwise missing rows count as 0.
     * </ul>
     */
    public static Optimizer sgd() {
        return Optimizer.of("sgd")
                .with("wd", 0.0001);
    }

    /**
     * {@return {@code nag}} Nesterov's accelerated gradient, as the operator of MXNet computes it.
     *
     * <p>With {@code q = clip(rescale * gradient)} and the new weight {@code w'}:
     * <ul>
     * <li>{@code m = momentum * m}
     * <li>{@code w' = w - m + (momentum + 1) * (m - lr * (q + wd * w))}
     * <li>{@code m = m - lr * (q + wd * w')}
     * </ul>
     *
     * <p>Without momentum, it is the same as {@code sgd}.
     *
     * <p>Source: the operator {@code nag_mom_update} of Apache MXNet 1.9.
     *
     * <p>{@code learning_rate} is 0.01, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code momentum}, 0: Fraction of the last step that is added; 0 for no momentum.
     * </ul>
     */
    public static Optimizer nagOperator() {
        return Optimizer.of("nag");
    }

    /**
     * {@return {@code nesterov}} Nesterov's accelerated gradient, as most libraries compute it.
     *
     * <p>With {@code q = clip(rescale * gradient)} and {@code r = q + wd * w}:
     * <ul>
     * <li>{@code m = momentum * m + r}
     * <li>{@code w = w - lr * (r + momentum * m)}
     * </ul>
     *
     * <p>Without momentum, it is the same as {@code sgd}.
     *
     * <p>Source: Sutskever, Martens, Dahl and Hinton, "On the importance of initialization and
     * momentum in deep learning", 2013.
     *
     * <p>{@code learning_rate} is 0.01, {@code wd} is 0.0001. Its own hyper-parameters:
     * <ul>
     * <li>{@code momentum}, 0: Decay of the sum of gradients; 0 for no momentum.
     * </ul>
     */
    public static Optimizer nag() {
        return Optimizer.of("nesterov")
                .with("wd", 0.0001);
    }

    /**
     * {@return {@code dcasgd}} Gradient descent with delay compensation: corrects gradients that
     * belong to an older weight.
     *
     * <p>With {@code q = clip(rescale * gradient)}, the weight {@code p} before the previous step,
     * and {@code u = -lr * (q + wd * w + lamda * q * q * (w - p))}:
     * <ul>
     * <li>without momentum: {@code w = w + u}
     * <li>with momentum: {@code m = momentum * m + u}, {@code w = w + m}
     * </ul>
     *
     * <p>Source: Zheng and others, "Asynchronous stochastic gradient descent with delay
     * compensation", 2017.
     *
     * <p>{@code learning_rate} is 0.01, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code momentum}, 0: Fraction of the last step that is added; 0 for no momentum.
     * <li>{@code lamda}, 0.04: Strength of the compensation.
     * </ul>
     */
    public static Optimizer dcasgd() {
        return Optimizer.of("dcasgd");
    }

    /**
     * {@return {@code sgld}} Stochastic gradient Langevin dynamics: gradient descent with noise,
     * which samples the posterior of the weights.
     *
     * <p>With {@code q = clip(rescale * gradient)} and standard normal noise {@code e}:
     * <ul>
     * <li>{@code w = w - lr / 2 * (q + wd * w) + sqrt(lr) * e}
     * </ul>
     *
     * <p>The noise depends only on {@code seed}, the key, the number of the update and the index of
     * the element.
     *
     * <p>Source: Welling and Teh, "Bayesian learning via stochastic gradient Langevin dynamics",
     * 2011.
     *
     * <p>{@code learning_rate} is 0.01, {@code wd} is 0.0001. Its own hyper-parameters:
     * <ul>
     * <li>{@code seed}, 0: Seed of the noise.
     * </ul>
     */
    public static Optimizer sgld() {
        return Optimizer.of("sgld")
                .with("wd", 0.0001);
    }

    /**
     * {@return {@code adam}} Adam: divides the mean gradient by the root of the mean squared
     * gradient.
     *
     * <p>With {@code q = clip(rescale * gradient + wd * w)}, update number {@code t} and {@code b1
     * = beta1 * decay_factor^(t - 1)}:
     * <ul>
     * <li>{@code m = b1 * m + (1 - b1) * q}
     * <li>{@code v = beta2 * v + (1 - beta2) * q^2}
     * <li>{@code w = w - lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon)}
     * </ul>
     *
     * <p>With {@code decoupled_wd}, the step subtracts {@code lr * wd * w}, and {@code q} does not
     * contain {@code wd * w}. With {@code pytorch_epsilon}, the step is {@code lr / (1 - beta1^t) *
     * m / (sqrt(v / (1 - beta2^t)) + epsilon)}.
     *
     * <p>Source: Kingma and Ba, "Adam: a method for stochastic optimization", 2015, the efficient
     * order of section 2.
     *
     * <p>{@code learning_rate} is 0.002, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code beta1}, 0.9: Decay of the mean gradient.
     * <li>{@code beta2}, 0.999: Decay of the mean squared gradient.
     * <li>{@code epsilon}, 1e-8: Added to the divisor to avoid division by 0.
     * <li>{@code decay_factor}, 0.99999999: Factor on {@code beta1} after each update.
     * <li>{@code decoupled_wd}, true: Whether weight decay is subtracted from the weight instead of
     * added to the gradient.
     * <li>{@code pytorch_epsilon}, false: Whether epsilon is added after the square root and the
     * bias correction, as by PyTorch.
     * <li>{@code lazy_update}, true: Whether a row-sparse gradient changes only its own rows of
     * weight and state; otherwise missing rows count as 0.
     * </ul>
     */
    public static Optimizer adam() {
        return Optimizer.of("adam")
                .with("learning_rate", 0.002)
                .with("decay_factor", 0.99999999)
                .with("decoupled_wd", 1.0);
    }

    /**
     * {@return {@code adamw}} AdamW: Adam with decoupled weight decay.
     *
     * <p>With {@code q = clip(rescale * gradient)} and update number {@code t}:
     * <ul>
     * <li>{@code m = beta1 * m + (1 - beta1) * q}
     * <li>{@code v = beta2 * v + (1 - beta2) * q^2}
     * <li>{@code w = w - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) - lr * wd *
     * w}
     * </ul>
     *
     * <p>Source: Loshchilov and Hutter, "Decoupled weight decay regularization", 2019.
     *
     * <p>{@code learning_rate} is 0.001, {@code wd} is 0.01. Its own hyper-parameters:
     * <ul>
     * <li>{@code beta1}, 0.9: Decay of the mean gradient.
     * <li>{@code beta2}, 0.999: Decay of the mean squared gradient.
     * <li>{@code epsilon}, 1e-8: Added to the divisor to avoid division by 0.
     * </ul>
     */
    public static Optimizer adamw() {
        return Optimizer.of("adamw");
    }

    /**
     * {@return {@code adagrad}} AdaGrad: divides the gradient by the root of the sum of all squared
     * gradients.
     *
     * <p>With {@code q = clip(rescale * gradient)}:
     * <ul>
     * <li>{@code h = h + q^2}
     * <li>{@code w = w - lr * (q / sqrt(h + epsilon) + wd * w)}
     * </ul>
     *
     * <p>Source: Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and
     * stochastic optimization", 2011.
     *
     * <p>{@code learning_rate} is 0.05, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code epsilon}, 1e-7: Added to the divisor to avoid division by 0.
     * <li>{@code lazy_update}, true: Whether a row-sparse gradient changes only its own rows of
     * weight and state; otherwise missing rows count as 0.
     * </ul>
     */
    public static Optimizer adaGrad() {
        return Optimizer.of("adagrad")
                .with("learning_rate", 0.05);
    }

    /**
     * {@return {@code adadelta}} AdaDelta: scales steps by the size of earlier steps, and ignores
     * the learning rate.
     *
     * <p>With {@code q = clip(rescale * gradient)}:
     * <ul>
     * <li>{@code a = rho * a + (1 - rho) * q^2}
     * <li>{@code d = sqrt(D + epsilon) / sqrt(a + epsilon) * q}
     * <li>{@code D = rho * D + (1 - rho) * d^2}
     * <li>{@code w = w - (d + wd * w)}
     * </ul>
     *
     * <p>Source: Zeiler, "ADADELTA: an adaptive learning rate method", 2012.
     *
     * <p>{@code learning_rate} is 0.01, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code rho}, 0.05: Decay of the mean squared gradient and the mean squared step.
     * <li>{@code epsilon}, 1e-8: Added to the divisor to avoid division by 0.
     * </ul>
     */
    public static Optimizer adaDelta() {
        return Optimizer.of("adadelta")
                .with("rho", 0.05)
                .with("epsilon", 1e-8);
    }

    /**
     * {@return {@code rmsprop}} RMSProp: divides the gradient by the root of the mean squared
     * gradient, plain or centered.
     *
     * <p>With {@code q = clip(rescale * gradient + wd * w)} and {@code n = gamma1 * n + (1 -
     * gamma1) * q^2}:
     * <ul>
     * <li>plain: {@code w = w - lr * q / sqrt(n + epsilon)}
     * <li>centered: {@code G = gamma1 * G + (1 - gamma1) * q}, {@code d = gamma2 * d - lr * q /
     * sqrt(n - G^2 + epsilon)}, {@code w = w + d}; a negative {@code n - G^2} counts as 0
     * </ul>
     *
     * <p>With {@code decoupled_wd}, {@code wd * w} is added to the quotient, and not part of {@code
     * q}. With {@code clip_weights} above 0, the new weight is clipped. With {@code
     * pytorch_epsilon}, epsilon is added to the root, not under it.
     *
     * <p>Source: Tieleman and Hinton, "Neural networks for machine learning", lecture 6.5, 2012;
     * Graves, "Generating sequences with recurrent neural networks", 2013, equations 38 to 45.
     *
     * <p>{@code learning_rate} is 0.002, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code gamma1}, 0.95: Decay of the mean gradient and the mean squared gradient.
     * <li>{@code gamma2}, 0.9: Fraction of the last step that is added, if {@code centered}.
     * <li>{@code epsilon}, 0.0001: Added to the divisor to avoid division by 0.
     * <li>{@code centered}, true: Whether the mean gradient is subtracted, as by Graves.
     * <li>{@code clip_weights}, 0: Bound on each element of the new weight; 0 for none.
     * <li>{@code decoupled_wd}, true: Whether weight decay is subtracted from the weight instead of
     * added to the gradient.
     * <li>{@code pytorch_epsilon}, false: Whether epsilon is added after the square root and the
     * bias correction, as by PyTorch.
     * </ul>
     */
    public static Optimizer rmsProp() {
        return Optimizer.of("rmsprop")
                .with("learning_rate", 0.002)
                .with("gamma1", 0.95)
                .with("centered", 1.0)
                .with("epsilon", 0.0001)
                .with("decoupled_wd", 1.0);
    }

    /**
     * {@return {@code ftrl}} FTRL: follows the regularized leader, per coordinate. Gives sparse
     * weights of linear models.
     *
     * <p>With {@code q = clip(rescale * gradient)}:
     * <ul>
     * <li>{@code z = z + q - (sqrt(n + q^2) - sqrt(n)) * w / lr}
     * <li>{@code n = n + q^2}
     * <li>{@code w = (sign(z) * lamda1 - z) / ((beta + sqrt(n)) / lr + wd)} if {@code |z| >
     * lamda1}, else 0
     * </ul>
     *
     * <p>With learning rate 0, an update changes neither weight nor state.
     *
     * <p>Source: McMahan and others, "Ad click prediction: a view from the trenches", 2013.
     *
     * <p>{@code learning_rate} is 0.1, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code lamda1}, 0.01: Strength of the L1 penalty.
     * <li>{@code beta}, 1: A larger value makes the first steps smaller.
     * <li>{@code lazy_update}, true: Whether a row-sparse gradient changes only its own rows of
     * weight and state; otherwise missing rows count as 0.
     * </ul>
     */
    public static Optimizer ftrl() {
        return Optimizer.of("ftrl");
    }

    /**
     * {@return {@code adamax}} Adamax: Adam with the infinity norm instead of the variance.
     *
     * <p>With {@code q = clip(rescale * gradient + wd * w)} and update number {@code t}:
     * <ul>
     * <li>{@code m = beta1 * m + (1 - beta1) * q}
     * <li>{@code u = max(beta2 * u, |q|)}
     * <li>{@code w = w - lr / (1 - beta1^t) * m / u}; the weight stays if {@code u} is 0
     * </ul>
     *
     * <p>Source: Kingma and Ba, "Adam: a method for stochastic optimization", 2015, algorithm 2.
     *
     * <p>{@code learning_rate} is 0.002, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code beta1}, 0.9: Decay of the mean gradient.
     * <li>{@code beta2}, 0.999: Decay of the largest gradient.
     * </ul>
     */
    public static Optimizer adaMax() {
        return Optimizer.of("adamax");
    }

    /**
     * {@return {@code nadam}} Nadam: Adam with Nesterov momentum that grows on a schedule.
     *
     * <p>With {@code q = clip(rescale * gradient + wd * w)}, update number {@code t}, {@code f(t) =
     * beta1 * (1 - 0.5 * 0.96^(t * schedule_decay))}, {@code S = f(1) * .. * f(t)} and {@code S' =
     * S * f(t + 1)}:
     * <ul>
     * <li>{@code m = beta1 * m + (1 - beta1) * q}
     * <li>{@code v = beta2 * v + (1 - beta2) * q^2}
     * <li>{@code d = (1 - f(t)) * q / (1 - S) + f(t + 1) * m / (1 - S')}
     * <li>{@code w = w - lr * d / (sqrt(v / (1 - beta2^t)) + epsilon)}
     * </ul>
     *
     * <p>Source: Dozat, "Incorporating Nesterov momentum into Adam", 2016.
     *
     * <p>{@code learning_rate} is 0.001, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code beta1}, 0.9: Decay of the mean gradient.
     * <li>{@code beta2}, 0.999: Decay of the mean squared gradient.
     * <li>{@code epsilon}, 1e-8: Added to the divisor to avoid division by 0.
     * <li>{@code schedule_decay}, 0.004: Speed at which the momentum approaches {@code beta1}.
     * </ul>
     */
    public static Optimizer nadam() {
        return Optimizer.of("nadam");
    }

    /**
     * {@return {@code signum}} Signum: steps of one size, in the direction of the sign of the
     * momentum.
     *
     * <p>With {@code q = clip(rescale * gradient)}:
     * <ul>
     * <li>with momentum: {@code m = momentum * m - (1 - momentum) * (q + wd * w)}, {@code w = (1 -
     * lr * wd_lh) * w + lr * sign(m)}
     * <li>without momentum: {@code w = (1 - lr * (wd + wd_lh)) * w - lr * sign(q)}
     * </ul>
     *
     * <p>Source: Bernstein, Wang, Azizzadenesheli and Anandkumar, "signSGD: compressed optimisation
     * for non-convex problems", 2018.
     *
     * <p>{@code learning_rate} is 0.01, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code momentum}, 0.9: Decay of the momentum; if 0, the step uses the sign of the
     * gradient.
     * <li>{@code wd_lh}, 0: Decoupled weight decay.
     * </ul>
     */
    public static Optimizer signum() {
        return Optimizer.of("signum");
    }

    /**
     * {@return {@code ftml}} FTML: follows the moving leader.
     *
     * <p>With {@code q = clip(rescale * gradient + wd * w)} and update number {@code t}:
     * <ul>
     * <li>{@code v = beta2 * v + (1 - beta2) * q^2}
     * <li>{@code D = (1 - beta1^t) / lr * (sqrt(v / (1 - beta2^t)) + epsilon)}
     * <li>{@code z = beta1 * z + (1 - beta1) * q - (D - beta1 * d) * w}
     * <li>{@code d = D}, {@code w = -z / d}
     * </ul>
     *
     * <p>With learning rate 0, an update changes neither weight nor state, and {@code t} does not
     * count it.
     *
     * <p>Source: Zheng and Kwok, "Follow the moving leader in deep learning", 2017.
     *
     * <p>{@code learning_rate} is 0.01, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code beta1}, 0.6: Decay of the mean gradient.
     * <li>{@code beta2}, 0.999: Decay of the mean squared gradient.
     * <li>{@code epsilon}, 1e-8: Added to the divisor to avoid division by 0.
     * </ul>
     */
    public static Optimizer ftml() {
        return Optimizer.of("ftml");
    }

    /**
     * {@return {@code lion}} Lion: steps of one size, in the direction of the sign of a mean
     * gradient.
     *
     * <p>With {@code q = clip(rescale * gradient)}:
     * <ul>
     * <li>{@code c = beta1 * m + (1 - beta1) * q}
     * <li>{@code w = w - lr * (sign(c) + wd * w)}
     * <li>{@code m = beta2 * m + (1 - beta2) * q}
     * </ul>
     *
     * <p>The state is half of Adam's. The authors recommend a third to a tenth of the learning rate
     * of AdamW, and a weight decay that is larger by the same factor.
     *
     * <p>Source: Chen et al., "Symbolic discovery of optimization algorithms", 2023, algorithm 2.
     *
     * <p>{@code learning_rate} is 0.0001, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code beta1}, 0.9: Weight of the mean gradient in the direction of a step.
     * <li>{@code beta2}, 0.99: Decay of the mean gradient.
     * </ul>
     */
    public static Optimizer lion() {
        return Optimizer.of("lion");
    }

    /**
     * {@return {@code adabelief}} AdaBelief: Adam with the variance of the gradient around its
     * mean, so an expected gradient makes a large step.
     *
     * <p>With {@code q = clip(rescale * gradient)} and update number {@code t}:
     * <ul>
     * <li>{@code m = beta1 * m + (1 - beta1) * q}
     * <li>{@code s = beta2 * s + (1 - beta2) * (q - m)^2 + epsilon}
     * <li>{@code w = (1 - lr * wd) * w - lr * (m / (1 - beta1^t)) / (sqrt(s / (1 - beta2^t)) +
     * epsilon)}
     * </ul>
     *
     * <p>Source: Zhuang et al., "AdaBelief optimizer: adapting stepsizes by the belief in observed
     * gradients", 2020, algorithm 2, with decoupled weight decay.
     *
     * <p>{@code learning_rate} is 0.001, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code beta1}, 0.9: Decay of the mean gradient.
     * <li>{@code beta2}, 0.999: Decay of the variance.
     * <li>{@code epsilon}, 1e-8: Added to the divisor to avoid division by 0.
     * </ul>
     */
    public static Optimizer adaBelief() {
        return Optimizer.of("adabelief");
    }

    /**
     * {@return {@code lars}} LARS: gradient descent that scales the learning rate of each key by
     * the norms of weight and gradient.
     *
     * <p>With {@code q = clip(rescale * gradient)} and Euclidean norms over all elements of a key:
     * <ul>
     * <li>{@code rate = lr * eta * |w| / (|rescale * gradient| + wd * |w| + epsilon)}, or {@code
     * lr} if a norm is 0
     * <li>{@code m = momentum * m - rate * wd * w - rate * q}
     * <li>{@code w = w + m}
     * </ul>
     *
     * <p>Keys that end in {@code gamma}, {@code beta} or {@code bias} use {@code rate = lr}. With
     * {@code momentum_correction}, {@code momentum} is multiplied by {@code lr} and divided by the
     * {@code lr} of the key's last update.
     *
     * <p>Source: You, Gitman and Ginsburg, "Large batch training of convolutional networks", 2017,
     * with the options of MXNet 1.9; the correction is from Goyal et al., "Accurate, large
     * minibatch SGD", 2017.
     *
     * <p>{@code learning_rate} is 0.01, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code momentum}, 0: Fraction of the last step that is added; 0 for no momentum.
     * <li>{@code eta}, 0.001: Trust coefficient: norm of a step over norm of the weight, at
     * learning rate 1.
     * <li>{@code epsilon}, 0: Added to the divisor to avoid division by 0.
     * <li>{@code momentum_correction}, true: Whether a change of the learning rate also scales the
     * momentum.
     * </ul>
     */
    public static Optimizer lars() {
        return Optimizer.of("lars");
    }

    /**
     * {@return {@code lamb}} LAMB: Adam with weight decay that scales the step of each key by the
     * norm of the weight.
     *
     * <p>With {@code q = clip(rescale * gradient)}, update number {@code t} and Euclidean norms
     * over all elements of a key:
     * <ul>
     * <li>{@code m = beta1 * m + (1 - beta1) * q}
     * <li>{@code v = beta2 * v + (1 - beta2) * q^2}
     * <li>{@code u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + wd * w}
     * <li>{@code w = w - lr * |w| / |u| * u}
     * </ul>
     *
     * <p>{@code |w|} is first clamped to {@code lower_bound} and {@code upper_bound}. If {@code
     * |w|} or {@code |u|} is 0, the quotient counts as 1. Without {@code bias_correction}, the
     * divisors {@code 1 - beta1^t} and {@code 1 - beta2^t} are 1.
     *
     * <p>Source: You et al., "Large batch optimization for deep learning: training BERT in 76
     * minutes", 2020, algorithm 2, with the options of MXNet 1.9.
     *
     * <p>{@code learning_rate} is 0.001, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code beta1}, 0.9: Decay of the mean gradient.
     * <li>{@code beta2}, 0.999: Decay of the mean squared gradient.
     * <li>{@code epsilon}, 1e-6: Added to the divisor to avoid division by 0.
     * <li>{@code lower_bound}, 0: Lower limit of the weight norm; 0 for none.
     * <li>{@code upper_bound}, 0: Upper limit of the weight norm; 0 for none.
     * <li>{@code bias_correction}, true: Whether to correct the bias of means that start at 0.
     * </ul>
     */
    public static Optimizer lamb() {
        return Optimizer.of("lamb");
    }

    /**
     * {@return {@code groupadagrad}} GroupAdaGrad: AdaGrad with one learning rate for each row of
     * the weight.
     *
     * <p>With {@code q = clip(rescale * gradient)}, for each row along the first axis:
     * <ul>
     * <li>{@code h = h + mean(q^2)}, with the mean over the row
     * <li>{@code w = w - lr * (q / sqrt(h + epsilon) + wd * w)}
     * </ul>
     *
     * <p>Source: the operator {@code group_adagrad_update} of Apache MXNet 1.9, which has no weight
     * decay, after Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and
     * stochastic optimization", 2011.
     *
     * <p>{@code learning_rate} is 0.01, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code epsilon}, 1e-5: Added to the divisor to avoid division by 0.
     * <li>{@code lazy_update}, true: Whether a row-sparse gradient changes only its own rows of
     * weight and state; otherwise missing rows count as 0.
     * </ul>
     */
    public static Optimizer groupAdaGrad() {
        return Optimizer.of("groupadagrad");
    }
}
