;; Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
(ns dev.kvstore.impl.optimizers
  "The constructors of `org.apache.clojure-mxnet.optimizer` as data.

    constructors  a vector of maps: the symbol of the function, that of the method of `Optimizer` that it
                  calls, its title and its documentation")

(set! *warn-on-reflection* true)

(def constructors
  "Each makes an optimizer with `opts`."
  '[{:function sgd
    :factory sgd
    :title "Stochastic gradient descent, with and without momentum."
    :doc "Returns the optimizer `sgd`. Stochastic gradient descent, with and without momentum.

  With q = clip(rescale * gradient):

  - without momentum w = (1 - lr * wd) * w - lr * q;
  - with momentum m = momentum * m - lr * wd * w - lr * q and w = w + m.

  Source: the operators sgd_update and sgd_mom_update of Apache MXNet 1.9.

  `opts` are those of every optimizer (:learning-rate 0.01, :wd 0.0001), and
    :momentum     0; the share of the last step that is kept; 0 for none
    :lazy-update  true; whether a gradient of some rows changes weight and state in those rows only; otherwise
                  the other rows count as 0
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (sgd {:rescale-grad 0.5}))"}
   {:function nag-operator
    :factory nagOperator
    :title "Nesterov's accelerated gradient as an operator of MXNet computes it."
    :doc "Returns the optimizer `nag-operator`. Nesterov's accelerated gradient as an operator of MXNet computes it.

  With q = clip(rescale * gradient): m = momentum * m, then w' = w - m + (momentum + 1) * (m - lr * (q + wd *
  w)) and m = m - lr * (q + wd * w'), with the new weight in the last term. Without momentum it is gradient
  descent.

  Source: the operator nag_mom_update of Apache MXNet 1.9.

  `opts` are those of every optimizer (:learning-rate 0.01, :wd 0), and
    :momentum  0; the share of the last step that is kept; 0 for none
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (nag-operator {:rescale-grad 0.5}))"}
   {:function nag
    :factory nag
    :title "Nesterov's accelerated gradient as most libraries compute it."
    :doc "Returns the optimizer `nag`. Nesterov's accelerated gradient as most libraries compute it.

  With q = clip(rescale * gradient) and r = q + wd * w: m = momentum * m + r and w = w - lr * (r + momentum *
  m). Without momentum it is gradient descent.

  Source: Sutskever, Martens, Dahl and Hinton, \"On the importance of initialization and momentum in deep
  learning\", 2013.

  `opts` are those of every optimizer (:learning-rate 0.01, :wd 0.0001), and
    :momentum  0; the share of the last gradients that is kept; 0 for none
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (nag {:rescale-grad 0.5}))"}
   {:function dcasgd
    :factory dcasgd
    :title "Gradient descent with delay compensation: a gradient that was computed for an older weight p is corrected towards the present one."
    :doc "Returns the optimizer `dcasgd`. Gradient descent with delay compensation: a gradient that was computed for
  an older weight p is corrected towards the present one.

  With q = clip(rescale * gradient) and u = -lr * (q + wd * w + lambda * q * q * (w - p)): without momentum w
  = w + u; with it m = momentum * m + u and w = w + m. Then p is the weight from before the step.

  Source: Zheng and others, \"Asynchronous stochastic gradient descent with delay compensation\", 2017.

  `opts` are those of every optimizer (:learning-rate 0.01, :wd 0), and
    :momentum  0; the share of the last step that is kept; 0 for none
    :lambda    0.04; strength of the compensation
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (dcasgd {:rescale-grad 0.5}))"}
   {:function sgld
    :factory sgld
    :title "Stochastic gradient Langevin dynamics: gradient descent with noise, so that the weights become samples of the posterior."
    :doc "Returns the optimizer `sgld`. Stochastic gradient Langevin dynamics: gradient descent with noise, so that
  the weights become samples of the posterior.

  With q = clip(rescale * gradient): w = w - lr / 2 * (q + wd * w) + sqrt(lr) * e, where e is standard normal.
  The noise is a function of the hyper-parameter seed, the key, the number of the update and the element's
  index, so it does not depend on threads or on other keys.

  Source: Welling and Teh, \"Bayesian learning via stochastic gradient Langevin dynamics\", 2011.

  `opts` are those of every optimizer (:learning-rate 0.01, :wd 0.0001), and
    :seed  0; chooses the noise
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (sgld {:rescale-grad 0.5}))"}
   {:function adam
    :factory adam
    :title "Adam: steps of the mean gradient over the root of the mean squared gradient."
    :doc "Returns the optimizer `adam`. Adam: steps of the mean gradient over the root of the mean squared gradient.

  With q = clip(rescale * gradient + wd * w), t the number of the update and b1 = beta1 * decay-factor^(t -
  1): m = b1 * m + (1 - b1) * q, v = beta2 * v + (1 - beta2) * q^2 and w = w - lr * sqrt(1 - beta2^t) / (1 -
  beta1^t) * m / (sqrt(v) + epsilon).

  With decoupled-wd the weight decay does not enter q; the step subtracts lr * wd * w instead. With
  pytorch-epsilon the divisor is sqrt(v / (1 - beta2^t)) + epsilon, and the step size before it lr / (1 -
  beta1^t).

  Source: Kingma and Ba, \"Adam: a method for stochastic optimization\", 2015, the efficient order of section 2.

  `opts` are those of every optimizer (:learning-rate 0.002, :wd 0), and
    :beta1            0.9; decay of the mean of the gradients
    :beta2            0.999; decay of the mean of their squares
    :epsilon          1e-8; is added so that the quotient is finite
    :decay-factor     0.99999999; beta1 is multiplied by it after each update
    :decoupled-wd     true; whether the weight decay is subtracted from the weight, and not part of the
                      gradient
    :pytorch-epsilon  false; whether epsilon is added after the square root and the bias correction, as
                      PyTorch does
    :lazy-update      true; whether a gradient of some rows changes weight and state in those rows only;
                      otherwise the other rows count as 0
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (adam {:rescale-grad 0.5}))"}
   {:function adamw
    :factory adamw
    :title "AdamW: Adam with decoupled weight decay."
    :doc "Returns the optimizer `adamw`. AdamW: Adam with decoupled weight decay.

  With q = clip(rescale * gradient) and t the number of the update: m = beta1 * m + (1 - beta1) * q, v = beta2
  * v + (1 - beta2) * q^2 and w = w - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) - lr * wd
  * w.

  Source: Loshchilov and Hutter, \"Decoupled weight decay regularization\", 2019.

  `opts` are those of every optimizer (:learning-rate 0.001, :wd 0.01), and
    :beta1    0.9; decay of the mean of the gradients
    :beta2    0.999; decay of the mean of their squares
    :epsilon  1e-8; is added so that the quotient is finite
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (adamw {:rescale-grad 0.5}))"}
   {:function ada-grad
    :factory adaGrad
    :title "AdaGrad: each element's steps shrink with the sum of its squared gradients."
    :doc "Returns the optimizer `ada-grad`. AdaGrad: each element's steps shrink with the sum of its squared
  gradients.

  With q = clip(rescale * gradient): h = h + q^2 and w = w - lr * (q / sqrt(h + epsilon) + wd * w).

  Source: Duchi, Hazan and Singer, \"Adaptive subgradient methods for online learning and stochastic
  optimization\", 2011.

  `opts` are those of every optimizer (:learning-rate 0.05, :wd 0), and
    :epsilon      1e-7; is added so that the quotient is finite
    :lazy-update  true; whether a gradient of some rows changes weight and state in those rows only; otherwise
                  the other rows count as 0
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (ada-grad {:rescale-grad 0.5}))"}
   {:function ada-delta
    :factory adaDelta
    :title "AdaDelta: steps measured by the size of earlier steps, without a learning rate."
    :doc "Returns the optimizer `ada-delta`. AdaDelta: steps measured by the size of earlier steps, without a learning
  rate.

  With q = clip(rescale * gradient): a = rho * a + (1 - rho) * q^2, d = sqrt(D + epsilon) / sqrt(a + epsilon)
  * q, D = rho * D + (1 - rho) * d^2 and w = w - (d + wd * w).

  Source: Zeiler, \"ADADELTA: an adaptive learning rate method\", 2012.

  `opts` are those of every optimizer (:learning-rate 0.01, :wd 0), and
    :rho      0.05; decay of the means of the squared gradients and of the squared steps
    :epsilon  1e-8; is added so that the quotient is finite
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (ada-delta {:rescale-grad 0.5}))"}
   {:function rms-prop
    :factory rmsProp
    :title "RMSProp: steps divided by the root of the mean squared gradient, plain or centered."
    :doc "Returns the optimizer `rms-prop`. RMSProp: steps divided by the root of the mean squared gradient, plain or
  centered.

  With q = clip(rescale * gradient + wd * w) and n = gamma1 * n + (1 - gamma1) * q^2:

  - plain w = w - lr * q / sqrt(n + epsilon);
  - centered also G = gamma1 * G + (1 - gamma1) * q, d = gamma2 * d - lr * q / sqrt(n - G^2 + epsilon) and w =
    w + d. The variance n - G^2 counts as 0 when rounding makes it negative.

  With decoupled-wd the weight decay does not enter q: wd * w is added to the quotient instead. With
  clip-weights above 0 the new weight is moved into that bound. With pytorch-epsilon epsilon is added to the
  root, not under it.

  Source: Tieleman and Hinton, \"Neural networks for machine learning\", lecture 6.5, 2012; Graves, \"Generating
  sequences with recurrent neural networks\", 2013, equations 38 to 45.

  `opts` are those of every optimizer (:learning-rate 0.002, :wd 0), and
    :gamma1           0.95; decay of the means of the gradients and of their squares
    :gamma2           0.9; the share of the last step that is kept, if centered
    :epsilon          0.0001; is added so that the quotient is finite
    :centered         true; whether the mean of the gradients is subtracted: the form of Graves
    :clip-weights     0; bound on each element of the new weight; 0 for none
    :decoupled-wd     true; whether the weight decay is subtracted from the weight, and not part of the
                      gradient
    :pytorch-epsilon  false; whether epsilon is added after the square root and the bias correction, as
                      PyTorch does
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (rms-prop {:rescale-grad 0.5}))"}
   {:function ftrl
    :factory ftrl
    :title "Follow the regularized leader, per coordinate: sparse weights for linear models."
    :doc "Returns the optimizer `ftrl`. Follow the regularized leader, per coordinate: sparse weights for linear
  models.

  With q = clip(rescale * gradient): z = z + q - (sqrt(n + q^2) - sqrt(n)) * w / lr, n = n + q^2, and w =
  (sign(z) * lambda1 - z) / ((beta + sqrt(n)) / lr + wd) where |z| > lambda1, else 0.

  An update with learning rate 0 is skipped: weight and state do not change.

  Source: McMahan and others, \"Ad click prediction: a view from the trenches\", 2013.

  `opts` are those of every optimizer (:learning-rate 0.1, :wd 0), and
    :lambda1      0.01; strength of the L1 penalty
    :beta         1; the greater, the smaller the first steps
    :lazy-update  true; whether a gradient of some rows changes weight and state in those rows only; otherwise
                  the other rows count as 0
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (ftrl {:rescale-grad 0.5}))"}
   {:function ada-max
    :factory adaMax
    :title "Adamax: Adam with the infinity norm in place of the variance."
    :doc "Returns the optimizer `ada-max`. Adamax: Adam with the infinity norm in place of the variance.

  With q = clip(rescale * gradient + wd * w): m = beta1 * m + (1 - beta1) * q, u = max(beta2 * u, |q|) and w =
  w - lr / (1 - beta1^t) * m / u. Where u is 0 there has been no gradient yet, and the weight stays.

  Source: Kingma and Ba, \"Adam: a method for stochastic optimization\", 2015, algorithm 2.

  `opts` are those of every optimizer (:learning-rate 0.002, :wd 0), and
    :beta1  0.9; decay of the mean of the gradients
    :beta2  0.999; decay of the greatest gradient
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (ada-max {:rescale-grad 0.5}))"}
   {:function nadam
    :factory nadam
    :title "Nadam: Adam with Nesterov momentum, whose momentum grows on a schedule."
    :doc "Returns the optimizer `nadam`. Nadam: Adam with Nesterov momentum, whose momentum grows on a schedule.

  With q = clip(rescale * gradient + wd * w), t the number of the update and f(t) = beta1 * (1 - 0.5 * 0.96^(t
  * schedule-decay)); S is the product of f(1) .. f(t) and S' = S * f(t + 1): m = beta1 * m + (1 - beta1) * q,
  v = beta2 * v + (1 - beta2) * q^2 and w = w - lr * ((1 - f(t)) * q / (1 - S) + f(t + 1) * m / (1 - S')) /
  (sqrt(v / (1 - beta2^t)) + epsilon).

  Source: Dozat, \"Incorporating Nesterov momentum into Adam\", 2016.

  `opts` are those of every optimizer (:learning-rate 0.001, :wd 0), and
    :beta1           0.9; decay of the mean of the gradients
    :beta2           0.999; decay of the mean of their squares
    :epsilon         1e-8; is added so that the quotient is finite
    :schedule-decay  0.004; how fast the momentum approaches beta1
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (nadam {:rescale-grad 0.5}))"}
   {:function signum
    :factory signum
    :title "Signum: steps of one size, in the direction of the momentum's sign."
    :doc "Returns the optimizer `signum`. Signum: steps of one size, in the direction of the momentum's sign.

  With q = clip(rescale * gradient):

  - with momentum m = momentum * m - (1 - momentum) * (q + wd * w) and w = (1 - lr * wd-lh) * w + lr *
    sign(m);
  - without w = (1 - lr * (wd + wd-lh)) * w - lr * sign(q).

  Source: Bernstein, Wang, Azizzadenesheli and Anandkumar, \"signSGD: compressed optimisation for non-convex
  problems\", 2018.

  `opts` are those of every optimizer (:learning-rate 0.01, :wd 0), and
    :momentum  0.9; the share of the last momentum that is kept; with 0 the step has the sign of the gradient
    :wd-lh     0; weight decay beside the gradient
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (signum {:rescale-grad 0.5}))"}
   {:function ftml
    :factory ftml
    :title "Follow the moving leader."
    :doc "Returns the optimizer `ftml`. Follow the moving leader.

  With q = clip(rescale * gradient + wd * w): v = beta2 * v + (1 - beta2) * q^2, D = (1 - beta1^t) / lr *
  (sqrt(v / (1 - beta2^t)) + epsilon), z = beta1 * z + (1 - beta1) * q - (D - beta1 * d) * w, then d = D and w
  = -z / d.

  An update with learning rate 0 is skipped: weight, state and t do not change.

  Source: Zheng and Kwok, \"Follow the moving leader in deep learning\", 2017.

  `opts` are those of every optimizer (:learning-rate 0.01, :wd 0), and
    :beta1    0.6; decay of the mean of the gradients
    :beta2    0.999; decay of the mean of their squares
    :epsilon  1e-8; is added so that the quotient is finite
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (ftml {:rescale-grad 0.5}))"}
   {:function lion
    :factory lion
    :title "Lion: steps of one size, in the direction of the sign of a mean gradient."
    :doc "Returns the optimizer `lion`. Lion: steps of one size, in the direction of the sign of a mean gradient.

  With q = clip(rescale * gradient): c = beta1 * m + (1 - beta1) * q, w = w - lr * (sign(c) + wd * w) and m =
  beta2 * m + (1 - beta2) * q.

  Its state is half of Adam's. The authors recommend a third to a tenth of the learning rate of AdamW, and a
  weight decay that is as much larger.

  Source: Chen et al., \"Symbolic discovery of optimization algorithms\", 2023, algorithm 2.

  `opts` are those of every optimizer (:learning-rate 0.0001, :wd 0), and
    :beta1  0.9; the share of the mean in the direction of a step, beside the gradient
    :beta2  0.99; decay of the mean of the gradients
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (lion {:rescale-grad 0.5}))"}
   {:function ada-belief
    :factory adaBelief
    :title "AdaBelief: Adam with the variance of the gradient around its mean, so that a gradient as it was expected makes a large step."
    :doc "Returns the optimizer `ada-belief`. AdaBelief: Adam with the variance of the gradient around its mean, so
  that a gradient as it was expected makes a large step.

  With q = clip(rescale * gradient) and t the number of the update: m = beta1 * m + (1 - beta1) * q, s = beta2
  * s + (1 - beta2) * (q - m)^2 + epsilon and w = (1 - lr * wd) * w - lr * (m / (1 - beta1^t)) / (sqrt(s / (1
  - beta2^t)) + epsilon).

  Source: Zhuang et al., \"AdaBelief optimizer: adapting stepsizes by the belief in observed gradients\", 2020,
  algorithm 2, with decoupled weight decay.

  `opts` are those of every optimizer (:learning-rate 0.001, :wd 0), and
    :beta1    0.9; decay of the mean of the gradients
    :beta2    0.999; decay of the variance around that mean
    :epsilon  1e-8; is added so that the quotient is finite
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (ada-belief {:rescale-grad 0.5}))"}
   {:function lars
    :factory lars
    :title "LARS: gradient descent whose learning rate is scaled for each key by the norms of weight and gradient."
    :doc "Returns the optimizer `lars`. LARS: gradient descent whose learning rate is scaled for each key by the norms
  of weight and gradient.

  With q = clip(rescale * gradient) and Euclidean norms over all elements of a key: rate = lr * eta * |w| /
  (|rescale * gradient| + wd * |w| + epsilon), or lr if one of the norms is 0, m = momentum * m - rate * wd *
  w - rate * q and w = w + m.

  Keys whose names end in gamma, beta or bias take rate = lr. With momentum-correction, momentum is multiplied
  by lr over that of the key's last update.

  Source: You, Gitman and Ginsburg, \"Large batch training of convolutional networks\", 2017, with the options
  of MXNet 1.9; the correction is from Goyal et al., \"Accurate, large minibatch SGD\", 2017.

  `opts` are those of every optimizer (:learning-rate 0.01, :wd 0), and
    :momentum             0; the share of the last step that is kept; 0 for none
    :eta                  0.001; trust coefficient: norm of a step over the norm of the weight, at learning
                          rate 1
    :epsilon              0; is added so that the quotient is finite
    :momentum-correction  true; whether a change of the learning rate also scales the momentum
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (lars {:rescale-grad 0.5}))"}
   {:function lamb
    :factory lamb
    :title "LAMB: Adam's direction with weight decay, scaled for each key by the norm of the weight."
    :doc "Returns the optimizer `lamb`. LAMB: Adam's direction with weight decay, scaled for each key by the norm of
  the weight.

  With q = clip(rescale * gradient), t the number of the update and Euclidean norms over all elements of a
  key: m = beta1 * m + (1 - beta1) * q, v = beta2 * v + (1 - beta2) * q^2, u = (m / (1 - beta1^t)) / (sqrt(v /
  (1 - beta2^t)) + epsilon) + wd * w and w = w - lr * |w| / |u| * u.

  |w| is first moved into the interval from lower-bound to upper-bound; if it or |u| is 0, the quotient is 1.
  Without bias-correction the divisors 1 - beta1^t and 1 - beta2^t are 1.

  Source: You et al., \"Large batch optimization for deep learning: training BERT in 76 minutes\", 2020,
  algorithm 2, with the options of MXNet 1.9.

  `opts` are those of every optimizer (:learning-rate 0.001, :wd 0), and
    :beta1            0.9; decay of the mean of the gradients
    :beta2            0.999; decay of the mean of their squares
    :epsilon          1e-6; is added so that the quotient is finite
    :lower-bound      0; lower limit of the weight norm; 0 for none
    :upper-bound      0; upper limit of the weight norm; 0 for none
    :bias-correction  true; whether the means are corrected for starting at 0
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (lamb {:rescale-grad 0.5}))"}
   {:function group-ada-grad
    :factory groupAdaGrad
    :title "GroupAdaGrad: AdaGrad with one learning rate for each row of the weight."
    :doc "Returns the optimizer `group-ada-grad`. GroupAdaGrad: AdaGrad with one learning rate for each row of the
  weight.

  With q = clip(rescale * gradient), and for each row of the weight, along its first axis: h = h + mean(q^2)
  over the row and w = w - lr * (q / sqrt(h + epsilon) + wd * w).

  Its state is one number for each row.

  Source: the operator group_adagrad_update of Apache MXNet 1.9, without weight decay, after Duchi, Hazan and
  Singer, \"Adaptive subgradient methods for online learning and stochastic optimization\", 2011.

  `opts` are those of every optimizer (:learning-rate 0.01, :wd 0), and
    :epsilon      1e-5; is added so that the quotient is finite
    :lazy-update  true; whether a gradient of some rows changes weight and state in those rows only; otherwise
                  the other rows count as 0
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (group-ada-grad {:rescale-grad 0.5}))"}])
