// Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
package dev.kvstore;

/** A factory method for each optimizer. {@link Optimizer} inherits them. */
abstract sealed class OptimizerFactories extends OptimizerOptions permits Optimizer {
    OptimizerFactories() {}

    /**
     * {@return {@code sgd}} Stochastic gradient descent, with and without momentum.
     *
     * <p>With {@code q = clip(rescale * gradient)}:
     * <ul>
     * <li>without momentum {@code w = (1 - lr * wd) * w - lr * q};
     * <li>with momentum {@code m = momentum * m - lr * wd * w - lr * q} and {@code w = w + m}.
     * </ul>
     *
     * <p>Source: the operators {@code sgd_update} and {@code sgd_mom_update} of Apache MXNet 1.9.
     *
     * <p>{@code learning_rate} is 0.01, {@code wd} is 0.0001. Its own hyper-parameters:
     * <ul>
     * <li>{@code momentum}, 0: The share of the last step that is kept; 0 for none.
     * <li>{@code lazy_update}, true: Whether a gradient of some rows changes weight and state in those rows
     * only; otherwise the other rows count as 0.
     * </ul>
     */
    public static Optimizer sgd() {
        return Optimizer.of("sgd")
                .with("wd", 0.0001);
    }

    /**
     * {@return {@code nag}} Nesterov's accelerated gradient as an operator of MXNet computes it.
     *
     * <p>With {@code q = clip(rescale * gradient)}: {@code m = momentum * m}, then {@code w' = w - m +
     * (momentum + 1) * (m - lr * (q + wd * w))} and {@code m = m - lr * (q + wd * w')}, with the new weight
     * in the last term. Without momentum it is gradient descent.
     *
     * <p>Source: the operator {@code nag_mom_update} of Apache MXNet 1.9.
     *
     * <p>{@code learning_rate} is 0.01, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code momentum}, 0: The share of the last step that is kept; 0 for none.
     * </ul>
     */
    public static Optimizer nagOperator() {
        return Optimizer.of("nag");
    }

    /**
     * {@return {@code nesterov}} Nesterov's accelerated gradient as most libraries compute it.
     *
     * <p>With {@code q = clip(rescale * gradient)} and {@code r = q + wd * w}: {@code m = momentum * m + r}
     * and {@code w = w - lr * (r + momentum * m)}. Without momentum it is gradient descent.
     *
     * <p>Source: Sutskever, Martens, Dahl and Hinton, "On the importance of initialization and momentum in
     * deep learning", 2013.
     *
     * <p>{@code learning_rate} is 0.01, {@code wd} is 0.0001. Its own hyper-parameters:
     * <ul>
     * <li>{@code momentum}, 0: The share of the last gradients that is kept; 0 for none.
     * </ul>
     */
    public static Optimizer nag() {
        return Optimizer.of("nesterov")
                .with("wd", 0.0001);
    }

    /**
     * {@return {@code dcasgd}} Gradient descent with delay compensation: a gradient that was computed for an
     * older weight {@code p} is corrected towards the present one.
     *
     * <p>With {@code q = clip(rescale * gradient)} and {@code u = -lr * (q + wd * w + lamda * q * q * (w -
     * p))}: without momentum {@code w = w + u}; with it {@code m = momentum * m + u} and {@code w = w + m}.
     * Then {@code p} is the weight from before the step.
     *
     * <p>Source: Zheng and others, "Asynchronous stochastic gradient descent with delay compensation", 2017.
     *
     * <p>{@code learning_rate} is 0.01, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code momentum}, 0: The share of the last step that is kept; 0 for none.
     * <li>{@code lamda}, 0.04: Strength of the compensation.
     * </ul>
     */
    public static Optimizer dcasgd() {
        return Optimizer.of("dcasgd");
    }

    /**
     * {@return {@code sgld}} Stochastic gradient Langevin dynamics: gradient descent with noise, so that the
     * weights become samples of the posterior.
     *
     * <p>With {@code q = clip(rescale * gradient)}: {@code w = w - lr / 2 * (q + wd * w) + sqrt(lr) * e},
     * where {@code e} is standard normal. The noise is a function of the hyper-parameter {@code seed}, the
     * key, the number of the update and the element's index, so it does not depend on threads or on other
     * keys.
     *
     * <p>Source: Welling and Teh, "Bayesian learning via stochastic gradient Langevin dynamics", 2011.
     *
     * <p>{@code learning_rate} is 0.01, {@code wd} is 0.0001. Its own hyper-parameters:
     * <ul>
     * <li>{@code seed}, 0: Chooses the noise.
     * </ul>
     */
    public static Optimizer sgld() {
        return Optimizer.of("sgld")
                .with("wd", 0.0001);
    }

    /**
     * {@return {@code adam}} Adam: steps of the mean gradient over the root of the mean squared gradient.
     *
     * <p>With {@code q = clip(rescale * gradient + wd * w)}, {@code t} the number of the update and {@code b1
     * = beta1 * decay_factor^(t - 1)}: {@code m = b1 * m + (1 - b1) * q}, {@code v = beta2 * v + (1 - beta2)
     * * q^2} and {@code w = w - lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon)}.
     *
     * <p>With {@code decoupled_wd} the weight decay does not enter {@code q}; the step subtracts {@code lr *
     * wd * w} instead. With {@code pytorch_epsilon} the divisor is {@code sqrt(v / (1 - beta2^t)) + epsilon},
     * and the step size before it {@code lr / (1 - beta1^t)}.
     *
     * <p>Source: Kingma and Ba, "Adam: a method for stochastic optimization", 2015, the efficient order of
     * section 2.
     *
     * <p>{@code learning_rate} is 0.002, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code beta1}, 0.9: Decay of the mean of the gradients.
     * <li>{@code beta2}, 0.999: Decay of the mean of their squares.
     * <li>{@code epsilon}, 1e-8: Is added so that the quotient is finite.
     * <li>{@code decay_factor}, 0.99999999: {@code beta1} is multiplied by it after each update.
     * <li>{@code decoupled_wd}, true: Whether the weight decay is subtracted from the weight, and not part of
     * the gradient.
     * <li>{@code pytorch_epsilon}, false: Whether epsilon is added after the square root and the bias
     * correction, as PyTorch does.
     * <li>{@code lazy_update}, true: Whether a gradient of some rows changes weight and state in those rows
     * only; otherwise the other rows count as 0.
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
     * <p>With {@code q = clip(rescale * gradient)} and {@code t} the number of the update: {@code m = beta1 *
     * m + (1 - beta1) * q}, {@code v = beta2 * v + (1 - beta2) * q^2} and {@code w = w - lr * (m / (1 -
     * beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) - lr * wd * w}.
     *
     * <p>Source: Loshchilov and Hutter, "Decoupled weight decay regularization", 2019.
     *
     * <p>{@code learning_rate} is 0.001, {@code wd} is 0.01. Its own hyper-parameters:
     * <ul>
     * <li>{@code beta1}, 0.9: Decay of the mean of the gradients.
     * <li>{@code beta2}, 0.999: Decay of the mean of their squares.
     * <li>{@code epsilon}, 1e-8: Is added so that the quotient is finite.
     * </ul>
     */
    public static Optimizer adamw() {
        return Optimizer.of("adamw");
    }

    /**
     * {@return {@code adagrad}} AdaGrad: each element's steps shrink with the sum of its squared gradients.
     *
     * <p>With {@code q = clip(rescale * gradient)}: {@code h = h + q^2} and {@code w = w - lr * (q / sqrt(h +
     * epsilon) + wd * w)}.
     *
     * <p>Source: Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic
     * optimization", 2011.
     *
     * <p>{@code learning_rate} is 0.05, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code epsilon}, 1e-7: Is added so that the quotient is finite.
     * <li>{@code lazy_update}, true: Whether a gradient of some rows changes weight and state in those rows
     * only; otherwise the other rows count as 0.
     * </ul>
     */
    public static Optimizer adaGrad() {
        return Optimizer.of("adagrad")
                .with("learning_rate", 0.05);
    }

    /**
     * {@return {@code adadelta}} AdaDelta: steps measured by the size of earlier steps, without a learning
     * rate.
     *
     * <p>With {@code q = clip(rescale * gradient)}: {@code a = rho * a + (1 - rho) * q^2}, {@code d = sqrt(D
     * + epsilon) / sqrt(a + epsilon) * q}, {@code D = rho * D + (1 - rho) * d^2} and {@code w = w - (d + wd *
     * w)}.
     *
     * <p>Source: Zeiler, "ADADELTA: an adaptive learning rate method", 2012.
     *
     * <p>{@code learning_rate} is 0.01, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code rho}, 0.05: Decay of the means of the squared gradients and of the squared steps.
     * <li>{@code epsilon}, 1e-8: Is added so that the quotient is finite.
     * </ul>
     */
    public static Optimizer adaDelta() {
        return Optimizer.of("adadelta")
                .with("rho", 0.05)
                .with("epsilon", 1e-8);
    }

    /**
     * {@return {@code rmsprop}} RMSProp: steps divided by the root of the mean squared gradient, plain or
     * centered.
     *
     * <p>With {@code q = clip(rescale * gradient + wd * w)} and {@code n = gamma1 * n + (1 - gamma1) * q^2}:
     * <ul>
     * <li>plain {@code w = w - lr * q / sqrt(n + epsilon)};
     * <li>centered also {@code G = gamma1 * G + (1 - gamma1) * q}, {@code d = gamma2 * d - lr * q / sqrt(n -
     * G^2 + epsilon)} and {@code w = w + d}. The variance {@code n - G^2} counts as 0 when rounding makes it
     * negative.
     * </ul>
     *
     * <p>With {@code decoupled_wd} the weight decay does not enter {@code q}: {@code wd * w} is added to the
     * quotient instead. With {@code clip_weights} above 0 the new weight is moved into that bound. With
     * {@code pytorch_epsilon} epsilon is added to the root, not under it.
     *
     * <p>Source: Tieleman and Hinton, "Neural networks for machine learning", lecture 6.5, 2012; Graves,
     * "Generating sequences with recurrent neural networks", 2013, equations 38 to 45.
     *
     * <p>{@code learning_rate} is 0.002, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code gamma1}, 0.95: Decay of the means of the gradients and of their squares.
     * <li>{@code gamma2}, 0.9: The share of the last step that is kept, if {@code centered}.
     * <li>{@code epsilon}, 0.0001: Is added so that the quotient is finite.
     * <li>{@code centered}, true: Whether the mean of the gradients is subtracted: the form of Graves.
     * <li>{@code clip_weights}, 0: Bound on each element of the new weight; 0 for none.
     * <li>{@code decoupled_wd}, true: Whether the weight decay is subtracted from the weight, and not part of
     * the gradient.
     * <li>{@code pytorch_epsilon}, false: Whether epsilon is added after the square root and the bias
     * correction, as PyTorch does.
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
     * {@return {@code ftrl}} Follow the regularized leader, per coordinate: sparse weights for linear models.
     *
     * <p>With {@code q = clip(rescale * gradient)}: {@code z = z + q - (sqrt(n + q^2) - sqrt(n)) * w / lr},
     * {@code n = n + q^2}, and {@code w = (sign(z) * lamda1 - z) / ((beta + sqrt(n)) / lr + wd)} where {@code
     * |z| > lamda1}, else 0.
     *
     * <p>An update with learning rate 0 is skipped: weight and state do not change.
     *
     * <p>Source: McMahan and others, "Ad click prediction: a view from the trenches", 2013.
     *
     * <p>{@code learning_rate} is 0.1, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code lamda1}, 0.01: Strength of the L1 penalty.
     * <li>{@code beta}, 1: The greater, the smaller the first steps.
     * <li>{@code lazy_update}, true: Whether a gradient of some rows changes weight and state in those rows
     * only; otherwise the other rows count as 0.
     * </ul>
     */
    public static Optimizer ftrl() {
        return Optimizer.of("ftrl");
    }

    /**
     * {@return {@code adamax}} Adamax: Adam with the infinity norm in place of the variance.
     *
     * <p>With {@code q = clip(rescale * gradient + wd * w)}: {@code m = beta1 * m + (1 - beta1) * q}, {@code
     * u = max(beta2 * u, |q|)} and {@code w = w - lr / (1 - beta1^t) * m / u}. Where {@code u} is 0 there has
     * been no gradient yet, and the weight stays.
     *
     * <p>Source: Kingma and Ba, "Adam: a method for stochastic optimization", 2015, algorithm 2.
     *
     * <p>{@code learning_rate} is 0.002, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code beta1}, 0.9: Decay of the mean of the gradients.
     * <li>{@code beta2}, 0.999: Decay of the greatest gradient.
     * </ul>
     */
    public static Optimizer adaMax() {
        return Optimizer.of("adamax");
    }

    /**
     * {@return {@code nadam}} Nadam: Adam with Nesterov momentum, whose momentum grows on a schedule.
     *
     * <p>With {@code q = clip(rescale * gradient + wd * w)}, {@code t} the number of the update and {@code
     * f(t) = beta1 * (1 - 0.5 * 0.96^(t * schedule_decay))}; {@code S} is the product of {@code f(1) .. f(t)}
     * and {@code S' = S * f(t + 1)}: {@code m = beta1 * m + (1 - beta1) * q}, {@code v = beta2 * v + (1 -
     * beta2) * q^2} and {@code w = w - lr * ((1 - f(t)) * q / (1 - S) + f(t + 1) * m / (1 - S')) / (sqrt(v /
     * (1 - beta2^t)) + epsilon)}.
     *
     * <p>Source: Dozat, "Incorporating Nesterov momentum into Adam", 2016.
     *
     * <p>{@code learning_rate} is 0.001, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code beta1}, 0.9: Decay of the mean of the gradients.
     * <li>{@code beta2}, 0.999: Decay of the mean of their squares.
     * <li>{@code epsilon}, 1e-8: Is added so that the quotient is finite.
     * <li>{@code schedule_decay}, 0.004: How fast the momentum approaches {@code beta1}.
     * </ul>
     */
    public static Optimizer nadam() {
        return Optimizer.of("nadam");
    }

    /**
     * {@return {@code signum}} Signum: steps of one size, in the direction of the momentum's sign.
     *
     * <p>With {@code q = clip(rescale * gradient)}:
     * <ul>
     * <li>with momentum {@code m = momentum * m - (1 - momentum) * (q + wd * w)} and {@code w = (1 - lr *
     * wd_lh) * w + lr * sign(m)};
     * <li>without {@code w = (1 - lr * (wd + wd_lh)) * w - lr * sign(q)}.
     * </ul>
     *
     * <p>Source: Bernstein, Wang, Azizzadenesheli and Anandkumar, "signSGD: compressed optimisation for
     * non-convex problems", 2018.
     *
     * <p>{@code learning_rate} is 0.01, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code momentum}, 0.9: The share of the last momentum that is kept; with 0 the step has the sign of
     * the gradient.
     * <li>{@code wd_lh}, 0: Weight decay beside the gradient.
     * </ul>
     */
    public static Optimizer signum() {
        return Optimizer.of("signum");
    }

    /**
     * {@return {@code ftml}} Follow the moving leader.
     *
     * <p>With {@code q = clip(rescale * gradient + wd * w)}: {@code v = beta2 * v + (1 - beta2) * q^2},
     * {@code D = (1 - beta1^t) / lr * (sqrt(v / (1 - beta2^t)) + epsilon)}, {@code z = beta1 * z + (1 -
     * beta1) * q - (D - beta1 * d) * w}, then {@code d = D} and {@code w = -z / d}.
     *
     * <p>An update with learning rate 0 is skipped: weight, state and {@code t} do not change.
     *
     * <p>Source: Zheng and Kwok, "Follow the moving leader in deep learning", 2017.
     *
     * <p>{@code learning_rate} is 0.01, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code beta1}, 0.6: Decay of the mean of the gradients.
     * <li>{@code beta2}, 0.999: Decay of the mean of their squares.
     * <li>{@code epsilon}, 1e-8: Is added so that the quotient is finite.
     * </ul>
     */
    public static Optimizer ftml() {
        return Optimizer.of("ftml");
    }

    /**
     * {@return {@code lion}} Lion: steps of one size, in the direction of the sign of a mean gradient.
     *
     * <p>With {@code q = clip(rescale * gradient)}: {@code c = beta1 * m + (1 - beta1) * q}, {@code w = w -
     * lr * (sign(c) + wd * w)} and {@code m = beta2 * m + (1 - beta2) * q}.
     *
     * <p>Its state is half of Adam's. The authors recommend a third to a tenth of the learning rate of AdamW,
     * and a weight decay that is as much larger.
     *
     * <p>Source: Chen et al., "Symbolic discovery of optimization algorithms", 2023, algorithm 2.
     *
     * <p>{@code learning_rate} is 0.0001, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code beta1}, 0.9: The share of the mean in the direction of a step, beside the gradient.
     * <li>{@code beta2}, 0.99: Decay of the mean of the gradients.
     * </ul>
     */
    public static Optimizer lion() {
        return Optimizer.of("lion");
    }

    /**
     * {@return {@code adabelief}} AdaBelief: Adam with the variance of the gradient around its mean, so that
     * a gradient as it was expected makes a large step.
     *
     * <p>With {@code q = clip(rescale * gradient)} and {@code t} the number of the update: {@code m = beta1 *
     * m + (1 - beta1) * q}, {@code s = beta2 * s + (1 - beta2) * (q - m)^2 + epsilon} and {@code w = (1 - lr
     * * wd) * w - lr * (m / (1 - beta1^t)) / (sqrt(s / (1 - beta2^t)) + epsilon)}.
     *
     * <p>Source: Zhuang et al., "AdaBelief optimizer: adapting stepsizes by the belief in observed
     * gradients", 2020, algorithm 2, with decoupled weight decay.
     *
     * <p>{@code learning_rate} is 0.001, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code beta1}, 0.9: Decay of the mean of the gradients.
     * <li>{@code beta2}, 0.999: Decay of the variance around that mean.
     * <li>{@code epsilon}, 1e-8: Is added so that the quotient is finite.
     * </ul>
     */
    public static Optimizer adaBelief() {
        return Optimizer.of("adabelief");
    }

    /**
     * {@return {@code lars}} LARS: gradient descent whose learning rate is scaled for each key by the norms
     * of weight and gradient.
     *
     * <p>With {@code q = clip(rescale * gradient)} and Euclidean norms over all elements of a key: {@code
     * rate = lr * eta * |w| / (|rescale * gradient| + wd * |w| + epsilon)}, or {@code lr} if one of the norms
     * is 0, {@code m = momentum * m - rate * wd * w - rate * q} and {@code w = w + m}.
     *
     * <p>Keys whose names end in {@code gamma}, {@code beta} or {@code bias} take {@code rate = lr}. With
     * {@code momentum_correction}, {@code momentum} is multiplied by {@code lr} over that of the key's last
     * update.
     *
     * <p>Source: You, Gitman and Ginsburg, "Large batch training of convolutional networks", 2017, with the
     * options of MXNet 1.9; the correction is from Goyal et al., "Accurate, large minibatch SGD", 2017.
     *
     * <p>{@code learning_rate} is 0.01, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code momentum}, 0: The share of the last step that is kept; 0 for none.
     * <li>{@code eta}, 0.001: Trust coefficient: norm of a step over the norm of the weight, at learning rate
     * 1.
     * <li>{@code epsilon}, 0: Is added so that the quotient is finite.
     * <li>{@code momentum_correction}, true: Whether a change of the learning rate also scales the momentum.
     * </ul>
     */
    public static Optimizer lars() {
        return Optimizer.of("lars");
    }

    /**
     * {@return {@code lamb}} LAMB: Adam's direction with weight decay, scaled for each key by the norm of the
     * weight.
     *
     * <p>With {@code q = clip(rescale * gradient)}, {@code t} the number of the update and Euclidean norms
     * over all elements of a key: {@code m = beta1 * m + (1 - beta1) * q}, {@code v = beta2 * v + (1 - beta2)
     * * q^2}, {@code u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + wd * w} and {@code w = w
     * - lr * |w| / |u| * u}.
     *
     * <p>{@code |w|} is first moved into the interval from {@code lower_bound} to {@code upper_bound}; if it
     * or {@code |u|} is 0, the quotient is 1. Without {@code bias_correction} the divisors {@code 1 -
     * beta1^t} and {@code 1 - beta2^t} are 1.
     *
     * <p>Source: You et al., "Large batch optimization for deep learning: training BERT in 76 minutes", 2020,
     * algorithm 2, with the options of MXNet 1.9.
     *
     * <p>{@code learning_rate} is 0.001, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code beta1}, 0.9: Decay of the mean of the gradients.
     * <li>{@code beta2}, 0.999: Decay of the mean of their squares.
     * <li>{@code epsilon}, 1e-6: Is added so that the quotient is finite.
     * <li>{@code lower_bound}, 0: Lower limit of the weight norm; 0 for none.
     * <li>{@code upper_bound}, 0: Upper limit of the weight norm; 0 for none.
     * <li>{@code bias_correction}, true: Whether the means are corrected for starting at 0.
     * </ul>
     */
    public static Optimizer lamb() {
        return Optimizer.of("lamb");
    }

    /**
     * {@return {@code groupadagrad}} GroupAdaGrad: AdaGrad with one learning rate for each row of the weight.
     *
     * <p>With {@code q = clip(rescale * gradient)}, and for each row of the weight, along its first axis:
     * {@code h = h + mean(q^2)} over the row and {@code w = w - lr * (q / sqrt(h + epsilon) + wd * w)}.
     *
     * <p>Its state is one number for each row.
     *
     * <p>Source: the operator {@code group_adagrad_update} of Apache MXNet 1.9, without weight decay, after
     * Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic
     * optimization", 2011.
     *
     * <p>{@code learning_rate} is 0.01, {@code wd} is 0. Its own hyper-parameters:
     * <ul>
     * <li>{@code epsilon}, 1e-5: Is added so that the quotient is finite.
     * <li>{@code lazy_update}, true: Whether a gradient of some rows changes weight and state in those rows
     * only; otherwise the other rows count as 0.
     * </ul>
     */
    public static Optimizer groupAdaGrad() {
        return Optimizer.of("groupadagrad");
    }
}
