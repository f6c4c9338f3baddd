;; Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
(ns dev.kvstore.impl.optimizers
  "The constructors of `org.apache.clojure-mxnet.optimizer` as data.

    constructors  a vector of maps: the symbol of the function, the symbol of the method of `Optimizer`
                  that it calls, its title and its documentation")

(set! *warn-on-reflection* true)

(def constructors
  "Each makes an optimizer with `opts`."
  '[{:function sgd
    :factory sgd
    :title "Stochastic gradient descent, with or without momentum."
    :doc "Returns the optimizer `sgd`. Stochastic gradient descent, with or without momentum.

  With q = clip(rescale * gradient):

  - without momentum: w = (1 - lr * wd) * w - lr * q
  - with momentum: m = momentum * m - lr * wd * w - lr * q, w = w + m

  Source: the operators sgd_update and sgd_mom_update of Apache MXNet 1.9.

  `opts` are those of every optimizer (:learning-rate 0.01, :wd 0.0001), and
    :momentum     0; fraction of the last step that is added; 0 for no momentum
    :lazy-update  true; whether a row-sparse gradient changes only its own rows of weight and state;
                  otherwise missing rows count as 0
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (sgd {:rescale-grad 0.5}))"}
   {:function nag-operator
    :factory nagOperator
    :title "Nesterov's accelerated gradient, as the operator of MXNet computes it."
    :doc "Returns the optimizer `nag-operator`. Nesterov's accelerated gradient, as the operator of MXNet
  computes it.

  With q = clip(rescale * gradient) and the new weight w':

  - m = momentum * m
  - w' = w - m + (momentum + 1) * (m - lr * (q + wd * w))
  - m = m - lr * (q + wd * w')

  Without momentum, it is the same as sgd.

  Source: the operator nag_mom_update of Apache MXNet 1.9.

  `opts` are those of every optimizer (:learning-rate 0.01, :wd 0), and
    :momentum  0; fraction of the last step that is added; 0 for no momentum
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (nag-operator {:rescale-grad 0.5}))"}
   {:function nag
    :factory nag
    :title "Nesterov's accelerated gradient, as most libraries compute it."
    :doc "Returns the optimizer `nag`. Nesterov's accelerated gradient, as most libraries compute it.

  With q = clip(rescale * gradient) and r = q + wd * w:

  - m = momentum * m + r
  - w = w - lr * (r + momentum * m)

  Without momentum, it is the same as sgd.

  Source: Sutskever, Martens, Dahl and Hinton, \"On the importance of initialization and momentum in
  deep learning\", 2013.

  `opts` are those of every optimizer (:learning-rate 0.01, :wd 0.0001), and
    :momentum  0; decay of the sum of gradients; 0 for no momentum
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (nag {:rescale-grad 0.5}))"}
   {:function dcasgd
    :factory dcasgd
    :title "Gradient descent with delay compensation: corrects gradients that belong to an older weight."
    :doc "Returns the optimizer `dcasgd`. Gradient descent with delay compensation: corrects gradients that
  belong to an older weight.

  With q = clip(rescale * gradient), the weight p before the previous step, and u = -lr * (q + wd *
  w + lambda * q * q * (w - p)):

  - without momentum: w = w + u
  - with momentum: m = momentum * m + u, w = w + m

  Source: Zheng and others, \"Asynchronous stochastic gradient descent with delay compensation\",
  2017.

  `opts` are those of every optimizer (:learning-rate 0.01, :wd 0), and
    :momentum  0; fraction of the last step that is added; 0 for no momentum
    :lambda    0.04; strength of the compensation
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (dcasgd {:rescale-grad 0.5}))"}
   {:function sgld
    :factory sgld
    :title "Stochastic gradient Langevin dynamics: gradient descent with noise, which samples the posterior of the weights."
    :doc "Returns the optimizer `sgld`. Stochastic gradient Langevin dynamics: gradient descent with noise,
  which samples the posterior of the weights.

  With q = clip(rescale * gradient) and standard normal noise e:

  - w = w - lr / 2 * (q + wd * w) + sqrt(lr) * e

  The noise depends only on seed, the key, the number of the update and the index of the element.

  Source: Welling and Teh, \"Bayesian learning via stochastic gradient Langevin dynamics\", 2011.

  `opts` are those of every optimizer (:learning-rate 0.01, :wd 0.0001), and
    :seed  0; seed of the noise
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (sgld {:rescale-grad 0.5}))"}
   {:function adam
    :factory adam
    :title "Adam: divides the mean gradient by the root of the mean squared gradient."
    :doc "Returns the optimizer `adam`. Adam: divides the mean gradient by the root of the mean squared
  gradient.

  With q = clip(rescale * gradient + wd * w), update number t and b1 = beta1 * decay-factor^(t - 1):

  - m = b1 * m + (1 - b1) * q
  - v = beta2 * v + (1 - beta2) * q^2
  - w = w - lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon)

  With decoupled-wd, the step subtracts lr * wd * w, and q does not contain wd * w. With
  pytorch-epsilon, the step is lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + epsilon).

  Source: Kingma and Ba, \"Adam: a method for stochastic optimization\", 2015, the efficient order of
  section 2.

  `opts` are those of every optimizer (:learning-rate 0.002, :wd 0), and
    :beta1            0.9; decay of the mean gradient
    :beta2            0.999; decay of the mean squared gradient
    :epsilon          1e-8; added to the divisor to avoid division by 0
    :decay-factor     0.99999999; factor on beta1 after each update
    :decoupled-wd     true; whether weight decay is subtracted from the weight instead of added to
                      the gradient
    :pytorch-epsilon  false; whether epsilon is added after the square root and the bias correction,
                      as by PyTorch
    :lazy-update      true; whether a row-sparse gradient changes only its own rows of weight and
                      state; otherwise missing rows count as 0
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (adam {:rescale-grad 0.5}))"}
   {:function adamw
    :factory adamw
    :title "AdamW: Adam with decoupled weight decay."
    :doc "Returns the optimizer `adamw`. AdamW: Adam with decoupled weight decay.

  With q = clip(rescale * gradient) and update number t:

  - m = beta1 * m + (1 - beta1) * q
  - v = beta2 * v + (1 - beta2) * q^2
  - w = w - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) - lr * wd * w

  Source: Loshchilov and Hutter, \"Decoupled weight decay regularization\", 2019.

  `opts` are those of every optimizer (:learning-rate 0.001, :wd 0.01), and
    :beta1    0.9; decay of the mean gradient
    :beta2    0.999; decay of the mean squared gradient
    :epsilon  1e-8; added to the divisor to avoid division by 0
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (adamw {:rescale-grad 0.5}))"}
   {:function ada-grad
    :factory adaGrad
    :title "AdaGrad: divides the gradient by the root of the sum of all squared gradients."
    :doc "Returns the optimizer `ada-grad`. AdaGrad: divides the gradient by the root of the sum of all
  squared gradients.

  With q = clip(rescale * gradient):

  - h = h + q^2
  - w = w - lr * (q / sqrt(h + epsilon) + wd * w)

  Source: Duchi, Hazan and Singer, \"Adaptive subgradient methods for online learning and stochastic
  optimization\", 2011.

  `opts` are those of every optimizer (:learning-rate 0.05, :wd 0), and
    :epsilon      1e-7; added to the divisor to avoid division by 0
    :lazy-update  true; whether a row-sparse gradient changes only its own rows of weight and state;
                  otherwise missing rows count as 0
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (ada-grad {:rescale-grad 0.5}))"}
   {:function ada-delta
    :factory adaDelta
    :title "AdaDelta: scales steps by the size of earlier steps, and ignores the learning rate."
    :doc "Returns the optimizer `ada-delta`. AdaDelta: scales steps by the size of earlier steps, and
  ignores the learning rate.

  With q = clip(rescale * gradient):

  - a = rho * a + (1 - rho) * q^2
  - d = sqrt(D + epsilon) / sqrt(a + epsilon) * q
  - D = rho * D + (1 - rho) * d^2
  - w = w - (d + wd * w)

  Source: Zeiler, \"ADADELTA: an adaptive learning rate method\", 2012.

  `opts` are those of every optimizer (:learning-rate 0.01, :wd 0), and
    :rho      0.05; decay of the mean squared gradient and the mean squared step
    :epsilon  1e-8; added to the divisor to avoid division by 0
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (ada-delta {:rescale-grad 0.5}))"}
   {:function rms-prop
    :factory rmsProp
    :title "RMSProp: divides the gradient by the root of the mean squared gradient, plain or centered."
    :doc "Returns the optimizer `rms-prop`. RMSProp: divides the gradient by the root of the mean squared
  gradient, plain or centered.

  With q = clip(rescale * gradient + wd * w) and n = gamma1 * n + (1 - gamma1) * q^2:

  - plain: w = w - lr * q / sqrt(n + epsilon)
  - centered: G = gamma1 * G + (1 - gamma1) * q, d = gamma2 * d - lr * q / sqrt(n - G^2 + epsilon),
    w = w + d; a negative n - G^2 counts as 0

  With decoupled-wd, wd * w is added to the quotient, and not part of q. With clip-weights above 0,
  the new weight is clipped. With pytorch-epsilon, epsilon is added to the root, not under it.

  Source: Tieleman and Hinton, \"Neural networks for machine learning\", lecture 6.5, 2012; Graves,
  \"Generating sequences with recurrent neural networks\", 2013, equations 38 to 45.

  `opts` are those of every optimizer (:learning-rate 0.002, :wd 0), and
    :gamma1           0.95; decay of the mean gradient and the mean squared gradient
    :gamma2           0.9; fraction of the last step that is added, if centered
    :epsilon          0.0001; added to the divisor to avoid division by 0
    :centered         true; whether the mean gradient is subtracted, as by Graves
    :clip-weights     0; bound on each element of the new weight; 0 for none
    :decoupled-wd     true; whether weight decay is subtracted from the weight instead of added to
                      the gradient
    :pytorch-epsilon  false; whether epsilon is added after the square root and the bias correction,
                      as by PyTorch
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (rms-prop {:rescale-grad 0.5}))"}
   {:function ftrl
    :factory ftrl
    :title "FTRL: follows the regularized leader, per coordinate. Gives sparse weights of linear models."
    :doc "Returns the optimizer `ftrl`. FTRL: follows the regularized leader, per coordinate. Gives sparse
  weights of linear models.

  With q = clip(rescale * gradient):

  - z = z + q - (sqrt(n + q^2) - sqrt(n)) * w / lr
  - n = n + q^2
  - w = (sign(z) * lambda1 - z) / ((beta + sqrt(n)) / lr + wd) if |z| > lambda1, else 0

  With learning rate 0, an update changes neither weight nor state.

  Source: McMahan and others, \"Ad click prediction: a view from the trenches\", 2013.

  `opts` are those of every optimizer (:learning-rate 0.1, :wd 0), and
    :lambda1      0.01; strength of the L1 penalty
    :beta         1; a larger value makes the first steps smaller
    :lazy-update  true; whether a row-sparse gradient changes only its own rows of weight and state;
                  otherwise missing rows count as 0
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (ftrl {:rescale-grad 0.5}))"}
   {:function ada-max
    :factory adaMax
    :title "Adamax: Adam with the infinity norm instead of the variance."
    :doc "Returns the optimizer `ada-max`. Adamax: Adam with the infinity norm instead of the variance.

  With q = clip(rescale * gradient + wd * w) and update number t:

  - m = beta1 * m + (1 - beta1) * q
  - u = max(beta2 * u, |q|)
  - w = w - lr / (1 - beta1^t) * m / u; the weight stays if u is 0

  Source: Kingma and Ba, \"Adam: a method for stochastic optimization\", 2015, algorithm 2.

  `opts` are those of every optimizer (:learning-rate 0.002, :wd 0), and
    :beta1  0.9; decay of the mean gradient
    :beta2  0.999; decay of the largest gradient
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (ada-max {:rescale-grad 0.5}))"}
   {:function nadam
    :factory nadam
    :title "Nadam: Adam with Nesterov momentum that grows on a schedule."
    :doc "Returns the optimizer `nadam`. Nadam: Adam with Nesterov momentum that grows on a schedule.

  With q = clip(rescale * gradient + wd * w), update number t, f(t) = beta1 * (1 - 0.5 * 0.96^(t *
  schedule-decay)), S = f(1) * .. * f(t) and S' = S * f(t + 1):

  - m = beta1 * m + (1 - beta1) * q
  - v = beta2 * v + (1 - beta2) * q^2
  - d = (1 - f(t)) * q / (1 - S) + f(t + 1) * m / (1 - S')
  - w = w - lr * d / (sqrt(v / (1 - beta2^t)) + epsilon)

  Source: Dozat, \"Incorporating Nesterov momentum into Adam\", 2016.

  `opts` are those of every optimizer (:learning-rate 0.001, :wd 0), and
    :beta1           0.9; decay of the mean gradient
    :beta2           0.999; decay of the mean squared gradient
    :epsilon         1e-8; added to the divisor to avoid division by 0
    :schedule-decay  0.004; speed at which the momentum approaches beta1
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (nadam {:rescale-grad 0.5}))"}
   {:function signum
    :factory signum
    :title "Signum: steps of one size, in the direction of the sign of the momentum."
    :doc "Returns the optimizer `signum`. Signum: steps of one size, in the direction of the sign of the
  momentum.

  With q = clip(rescale * gradient):

  - with momentum: m = momentum * m - (1 - momentum) * (q + wd * w), w = (1 - lr * wd-lh) * w + lr *
    sign(m)
  - without momentum: w = (1 - lr * (wd + wd-lh)) * w - lr * sign(q)

  Source: Bernstein, Wang, Azizzadenesheli and Anandkumar, \"signSGD: compressed optimisation for
  non-convex problems\", 2018.

  `opts` are those of every optimizer (:learning-rate 0.01, :wd 0), and
    :momentum  0.9; decay of the momentum; if 0, the step uses the sign of the gradient
    :wd-lh     0; decoupled weight decay
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (signum {:rescale-grad 0.5}))"}
   {:function ftml
    :factory ftml
    :title "FTML: follows the moving leader."
    :doc "Returns the optimizer `ftml`. FTML: follows the moving leader.

  With q = clip(rescale * gradient + wd * w) and update number t:

  - v = beta2 * v + (1 - beta2) * q^2
  - D = (1 - beta1^t) / lr * (sqrt(v / (1 - beta2^t)) + epsilon)
  - z = beta1 * z + (1 - beta1) * q - (D - beta1 * d) * w
  - d = D, w = -z / d

  With learning rate 0, an update changes neither weight nor state, and t does not count it.

  Source: Zheng and Kwok, \"Follow the moving leader in deep learning\", 2017.

  `opts` are those of every optimizer (:learning-rate 0.01, :wd 0), and
    :beta1    0.6; decay of the mean gradient
    :beta2    0.999; decay of the mean squared gradient
    :epsilon  1e-8; added to the divisor to avoid division by 0
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (ftml {:rescale-grad 0.5}))"}
   {:function lion
    :factory lion
    :title "Lion: steps of one size, in the direction of the sign of a mean gradient."
    :doc "Returns the optimizer `lion`. Lion: steps of one size, in the direction of the sign of a mean
  gradient.

  With q = clip(rescale * gradient):

  - c = beta1 * m + (1 - beta1) * q
  - w = w - lr * (sign(c) + wd * w)
  - m = beta2 * m + (1 - beta2) * q

  The state is half of Adam's. The authors recommend a third to a tenth of the learning rate of
  AdamW, and a weight decay that is larger by the same factor.

  Source: Chen et al., \"Symbolic discovery of optimization algorithms\", 2023, algorithm 2.

  `opts` are those of every optimizer (:learning-rate 0.0001, :wd 0), and
    :beta1  0.9; weight of the mean gradient in the direction of a step
    :beta2  0.99; decay of the mean gradient
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (lion {:rescale-grad 0.5}))"}
   {:function ada-belief
    :factory adaBelief
    :title "AdaBelief: Adam with the variance of the gradient around its mean, so an expected gradient makes a large step."
    :doc "Returns the optimizer `ada-belief`. AdaBelief: Adam with the variance of the gradient around its
  mean, so an expected gradient makes a large step.

  With q = clip(rescale * gradient) and update number t:

  - m = beta1 * m + (1 - beta1) * q
  - s = beta2 * s + (1 - beta2) * (q - m)^2 + epsilon
  - w = (1 - lr * wd) * w - lr * (m / (1 - beta1^t)) / (sqrt(s / (1 - beta2^t)) + epsilon)

  Source: Zhuang et al., \"AdaBelief optimizer: adapting stepsizes by the belief in observed
  gradients\", 2020, algorithm 2, with decoupled weight decay.

  `opts` are those of every optimizer (:learning-rate 0.001, :wd 0), and
    :beta1    0.9; decay of the mean gradient
    :beta2    0.999; decay of the variance
    :epsilon  1e-8; added to the divisor to avoid division by 0
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (ada-belief {:rescale-grad 0.5}))"}
   {:function lars
    :factory lars
    :title "LARS: gradient descent that scales the learning rate of each key by the norms of weight and gradient."
    :doc "Returns the optimizer `lars`. LARS: gradient descent that scales the learning rate of each key by
  the norms of weight and gradient.

  With q = clip(rescale * gradient) and Euclidean norms over all elements of a key:

  - rate = lr * eta * |w| / (|rescale * gradient| + wd * |w| + epsilon), or lr if a norm is 0
  - m = momentum * m - rate * wd * w - rate * q
  - w = w + m

  Keys that end in gamma, beta or bias use rate = lr. With momentum-correction, momentum is
  multiplied by lr and divided by the lr of the key's last update.

  Source: You, Gitman and Ginsburg, \"Large batch training of convolutional networks\", 2017, with the
  options of MXNet 1.9; the correction is from Goyal et al., \"Accurate, large minibatch SGD\", 2017.

  `opts` are those of every optimizer (:learning-rate 0.01, :wd 0), and
    :momentum             0; fraction of the last step that is added; 0 for no momentum
    :eta                  0.001; trust coefficient: norm of a step over norm of the weight, at
                          learning rate 1
    :epsilon              0; added to the divisor to avoid division by 0
    :momentum-correction  true; whether a change of the learning rate also scales the momentum
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (lars {:rescale-grad 0.5}))"}
   {:function lamb
    :factory lamb
    :title "LAMB: Adam with weight decay that scales the step of each key by the norm of the weight."
    :doc "Returns the optimizer `lamb`. LAMB: Adam with weight decay that scales the step of each key by the
  norm of the weight.

  With q = clip(rescale * gradient), update number t and Euclidean norms over all elements of a key:

  - m = beta1 * m + (1 - beta1) * q
  - v = beta2 * v + (1 - beta2) * q^2
  - u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + wd * w
  - w = w - lr * |w| / |u| * u

  |w| is first clamped to lower-bound and upper-bound. If |w| or |u| is 0, the quotient counts as 1.
  Without bias-correction, the divisors 1 - beta1^t and 1 - beta2^t are 1.

  Source: You et al., \"Large batch optimization for deep learning: training BERT in 76 minutes\",
  2020, algorithm 2, with the options of MXNet 1.9.

  `opts` are those of every optimizer (:learning-rate 0.001, :wd 0), and
    :beta1            0.9; decay of the mean gradient
    :beta2            0.999; decay of the mean squared gradient
    :epsilon          1e-6; added to the divisor to avoid division by 0
    :lower-bound      0; lower limit of the weight norm; 0 for none
    :upper-bound      0; upper limit of the weight norm; 0 for none
    :bias-correction  true; whether to correct the bias of means that start at 0
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (lamb {:rescale-grad 0.5}))"}
   {:function group-ada-grad
    :factory groupAdaGrad
    :title "GroupAdaGrad: AdaGrad with one learning rate for each row of the weight."
    :doc "Returns the optimizer `group-ada-grad`. GroupAdaGrad: AdaGrad with one learning rate for each row
  of the weight.

  With q = clip(rescale * gradient), for each row along the first axis:

  - h = h + mean(q^2), with the mean over the row
  - w = w - lr * (q / sqrt(h + epsilon) + wd * w)

  Source: the operator group_adagrad_update of Apache MXNet 1.9, which has no weight decay, after
  Duchi, Hazan and Singer, \"Adaptive subgradient methods for online learning and stochastic
  optimization\", 2011.

  `opts` are those of every optimizer (:learning-rate 0.01, :wd 0), and
    :epsilon      1e-5; added to the divisor to avoid division by 0
    :lazy-update  true; whether a row-sparse gradient changes only its own rows of weight and state;
                  otherwise missing rows count as 0
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (group-ada-grad {:rescale-grad 0.5}))"}])
