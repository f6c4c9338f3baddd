(ns org.apache.clojure-mxnet.optimizer
  "Update rules that run on the store, for `kvstore/set-optimizer`.

  With the formulas and defaults of MXNet's optimizers for the JVM
    sgd        stochastic gradient descent, momentum
    dcasgd     delay-compensated asynchronous gradient descent
    nag        Nesterov's accelerated gradient
    ada-delta ada-grad rms-prop adam
    sgld       stochastic gradient Langevin dynamics
  With those of its Python package
    ftrl ada-max nadam signum ftml
  Of the paper
    adamw      Adam with decoupled weight decay
  Without a store
    create-state update

  An optimizer is a value: one of them can serve any number of stores, each keeps its own state. In the
  formulas w is the weight and q = clip(rescale-grad * gradient).

  Besides its own, every optimizer takes these options:
    :learning-rate      size of a step; the default is the optimizer's own; `:lr` is the same
    :wd                 weight decay; `:weight-decay` is the same
    :clip-gradient      bound on every element of the rescaled gradient; 0, the default, is off
    :rescale-grad       factor on the gradient, 1; `:rescale-gradient` is the same
    :begin-num-update   how many updates a key is taken to have had before, 0
    :lr-scheduler       a schedule of the lr-scheduler namespace
    :lr-mult :wd-mult   maps of key to a factor on its learning rate or weight decay
  sgd, adam, ada-grad and ftrl also take
    :lazy-update        true (the default): a row-sparse push changes weight and state in its rows
                        only; false: the other rows of the gradient are 0

  Boolean options also take 1 and 0. Give an option that has two names by one of them.

  Each throws \"Incorrect sgd optimizer options\" (with its own name) for a value of another kind, code
  `:invalid-argument` for a number out of range, and names an option that it does not know."
  (:refer-clojure :exclude [update])
  (:require [clojure.string :as string]
            [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.hyper-parameters :as hyper-parameters]
            [dev.kvstore.impl.pairs :as pairs]
            [dev.kvstore.impl.printing])
  (:import (dev.kvstore LrScheduler NDArray Optimizer OptimizerState)))

(set! *warn-on-reflection* true)

(defn- incorrect
  [optimizer-name opts reason]
  (errors/invalid (str "Incorrect " optimizer-name " optimizer options: " reason) opts))

(defn- with-multipliers
  "Adds the factors of the map `key->factor` by `add`, a function of optimizer, key and factor."
  [optimizer key->factor add]
  (reduce-kv (fn [optimizer k factor] (add optimizer (pairs/key-name k) factor))
             optimizer
             (or key->factor {})))

(defn- wrong-factors
  "Returns why the map `x` of key to factor is wrong for `option`, for a message, or nil."
  [option x]
  (when-not (or (nil? x)
                (and (map? x) (every? pairs/single-key? (keys x)) (every? number? (vals x))))
    (str "expected a map of keys to numbers for " option ", found " (errors/shown x))))

(defn- wrong-option
  "Returns why the first wrong value of `opts` is wrong, for a message, or nil."
  [numbers {:keys [lr-scheduler lr-mult wd-mult]}]
  (or (some (fn [[option value]] (hyper-parameters/wrong-value option value)) numbers)
      (when-not (or (nil? lr-scheduler) (instance? LrScheduler lr-scheduler))
        (str "expected an LrScheduler for :lr-scheduler, found " (errors/shown lr-scheduler)))
      (wrong-factors :lr-mult lr-mult)
      (wrong-factors :wd-mult wd-mult)))

(defn- checked-options
  "Returns the map `opts` when it has only options of the vector `known`, with values that they can have."
  [optimizer-name known opts]
  (when-not (and (or (nil? opts) (map? opts)) (every? keyword? (keys opts)))
    (incorrect optimizer-name opts (str "expected a map with keywords for keys, found " (errors/shown opts))))
  (let [{:keys [lr-mult wd-mult]} opts
        numbers (dissoc opts :lr-scheduler :lr-mult :wd-mult)]
    (when-let [unknown (first (remove (comp (set known) hyper-parameters/native-name) (keys numbers)))]
      (errors/invalid (str "Unknown option " (pr-str unknown) " of " optimizer-name ", expected one of "
                           (string/join " " (map (comp str hyper-parameters/option) known))
                           " :lr-scheduler :lr-mult :wd-mult")
                      unknown))
    (when-let [wrong (wrong-option numbers opts)]
      (incorrect optimizer-name opts wrong))
    (run! pairs/check-names [lr-mult wd-mult])
    (assoc opts :numbers (hyper-parameters/native-values (or numbers {})))))

(defn- with-options
  "Returns `optimizer` with the options of the map `opts`; `optimizer-name` stands for it in messages."
  ^Optimizer [optimizer-name ^Optimizer optimizer opts]
  (let [{:keys [numbers lr-scheduler lr-mult wd-mult]}
        (checked-options optimizer-name (vec (keys (.hyperParameters optimizer))) opts)]
    (errors/guard
      (-> (reduce-kv (fn [^Optimizer optimizer ^String native-name value]
                       (.with optimizer native-name (double value)))
                     (.scheduler optimizer lr-scheduler)
                     numbers)
          (with-multipliers lr-mult (fn [^Optimizer optimizer ^String k factor]
                                      (.learningRateMultiplier optimizer k (double factor))))
          (with-multipliers wd-mult (fn [^Optimizer optimizer ^String k factor]
                                      (.weightDecayMultiplier optimizer k (double factor))))))))

(defn- named
  ^Optimizer [native-name]
  (errors/guard (Optimizer/of native-name)))

(defn sgd
  "Returns stochastic gradient descent: m = momentum * m - learning-rate * (q + wd * w), w = w + m.

  `opts` are those of every optimizer (learning-rate 0.01, wd 1e-4) and `:momentum` 0. Errors are those of
  the namespace.

      (kvstore/set-optimizer (kvstore/create) (sgd {:learning-rate 0.1 :momentum 0.9}))"
  (^dev.kvstore.Optimizer [] (sgd nil))
  (^dev.kvstore.Optimizer [opts] (with-options "sgd" (errors/guard (Optimizer/sgd)) opts)))

(defn dcasgd
  "Returns delay-compensated asynchronous gradient descent, where p is the weight of the last update:
  m = momentum * m - learning-rate * (q + wd * w + lambda * q^2 * (w - p)), p = w, w = w + m.

  `opts` are those of every optimizer (learning-rate 0.01, wd 0), `:momentum` 0 and `:lambda` 0.04. Errors are
  those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (dcasgd {:lambda 0.1}))"
  (^dev.kvstore.Optimizer [] (dcasgd nil))
  (^dev.kvstore.Optimizer [opts] (with-options "dcasgd" (errors/guard (Optimizer/dcasgd)) opts)))

(defn nag
  "Returns Nesterov's accelerated gradient:
  r = q + wd * w, m = momentum * m + r, w = w - learning-rate * (r + momentum * m).

  `opts` are those of every optimizer (learning-rate 0.01, wd 1e-4) and `:momentum` 0. Errors are those of
  the namespace.

      (kvstore/set-optimizer (kvstore/create) (nag {:momentum 0.9}))"
  (^dev.kvstore.Optimizer [] (nag nil))
  (^dev.kvstore.Optimizer [opts] (with-options "nag" (errors/guard (Optimizer/nag)) opts)))

(defn ada-delta
  "Returns AdaDelta: a = rho * a + (1 - rho) * q^2, d = sqrt(D + epsilon) / sqrt(a + epsilon) * q,
  D = rho * D + (1 - rho) * d^2, w = (1 - wd) * w - d.

  `opts` are those of every optimizer (wd 0), `:rho` 0.05 and `:epsilon` 1e-8; the learning rate plays no part.
  Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (ada-delta {:rho 0.9}))"
  (^dev.kvstore.Optimizer [] (ada-delta nil))
  (^dev.kvstore.Optimizer [opts] (with-options "ada-delta" (errors/guard (Optimizer/adaDelta)) opts)))

(defn rms-prop
  "Returns centered RMSProp: n = (1 - gamma1) * q^2 + gamma1 * n, G = (1 - gamma1) * q + gamma1 * G,
  D = gamma2 * D - learning-rate * (q / sqrt(n - G^2 + epsilon) + wd * w), w = w + D.

  `opts` are those of every optimizer (learning-rate 0.002, wd 0), `:gamma1` 0.95, `:gamma2` 0.9, `:epsilon`
  1e-4, `:clip-weights` 0, a bound on the weights that is off, `:centered` 1, with 0 for the form without G
  and D, and `:decoupled-wd` 1, with 0 for q = clip(rescale-grad * gradient + wd * w) instead. Where n - G^2 is below
  zero it counts as 0. Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (rms-prop {:gamma1 0.9}))"
  (^dev.kvstore.Optimizer [] (rms-prop nil))
  (^dev.kvstore.Optimizer [opts] (with-options "rms-prop" (errors/guard (Optimizer/rmsProp)) opts)))

(defn ada-grad
  "Returns AdaGrad: h = h + q^2, w = w - learning-rate * (q / sqrt(h + epsilon) + wd * w).

  `opts` are those of every optimizer (learning-rate 0.05, wd 0) and `:epsilon` 1e-7. Errors are those of the
  namespace.

      (kvstore/set-optimizer (kvstore/create) (ada-grad {:learning-rate 0.1}))"
  (^dev.kvstore.Optimizer [] (ada-grad nil))
  (^dev.kvstore.Optimizer [opts] (with-options "ada-grad" (errors/guard (Optimizer/adaGrad)) opts)))

(defn adam
  "Returns Adam, at update t of the key: b = beta1 * decay-factor^(t - 1), m = b * m + (1 - b) * q,
  v = beta2 * v + (1 - beta2) * q^2,
  w = w - learning-rate * (sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon) + wd * w).

  `opts` are those of every optimizer (learning-rate 0.002, wd 0), `:beta1` 0.9, `:beta2` 0.999, `:epsilon`
  1e-8, `:decay-factor` 1 - 1e-8 and `:decoupled-wd` 1, with 0 for q = clip(rescale-grad * gradient + wd * w)
  instead. Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (adam {:learning-rate 0.001}))"
  (^dev.kvstore.Optimizer [] (adam nil))
  (^dev.kvstore.Optimizer [opts] (with-options "adam" (errors/guard (Optimizer/adam)) opts)))

(defn sgld
  "Returns stochastic gradient Langevin dynamics:
  w = w - learning-rate / 2 * (q + wd * w) + N(0, sqrt(learning-rate)).

  The noise depends on `:seed`, key, update and element only. `opts` are those of every optimizer
  (learning-rate 0.01, wd 1e-4) and `:seed` 0. Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (sgld {:seed 7}))"
  (^dev.kvstore.Optimizer [] (sgld nil))
  (^dev.kvstore.Optimizer [opts] (with-options "sgld" (errors/guard (Optimizer/sgld)) opts)))

(defn adamw
  "Returns Adam with decoupled weight decay: m = beta1 * m + (1 - beta1) * q,
  v = beta2 * v + (1 - beta2) * q^2, and with m' = m / (1 - beta1^t) and v' = v / (1 - beta2^t)
  w = w - learning-rate * (m' / (sqrt(v') + epsilon) + wd * w).

  `opts` are those of every optimizer (learning-rate 0.001, wd 0.01), `:beta1` 0.9, `:beta2` 0.999 and
  `:epsilon` 1e-8. Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (adamw {:wd 0.1}))"
  (^dev.kvstore.Optimizer [] (adamw nil))
  (^dev.kvstore.Optimizer [opts] (with-options "adamw" (named "adamw") opts)))

(defn ftrl
  "Returns FTRL: z = z + q - (sqrt(n + q^2) - sqrt(n)) * w / learning-rate, n = n + q^2, and w = (sign(z) *
  lambda1 - z) / ((beta + sqrt(n)) / learning-rate + wd) where the size of z exceeds lambda1, else 0.

  `opts` are those of every optimizer (learning-rate 0.1, wd 0), `:lambda1` 0.01 and `:beta` 1. Errors are those
  of the namespace.

      (kvstore/set-optimizer (kvstore/create) (ftrl {:lambda1 0.1}))"
  (^dev.kvstore.Optimizer [] (ftrl nil))
  (^dev.kvstore.Optimizer [opts] (with-options "ftrl" (named "ftrl") opts)))

(defn ada-max
  "Returns AdaMax, with q = clip(rescale-grad * gradient + wd * w): m = beta1 * m + (1 - beta1) * q,
  u = max(beta2 * u, size of q), w = w - learning-rate / (1 - beta1^t) * m / u, and no step where u is 0.

  `opts` are those of every optimizer (learning-rate 0.002, wd 0), `:beta1` 0.9 and `:beta2` 0.999. Errors are
  those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (ada-max {:beta1 0.8}))"
  (^dev.kvstore.Optimizer [] (ada-max nil))
  (^dev.kvstore.Optimizer [opts] (with-options "ada-max" (named "adamax") opts)))

(defn nadam
  "Returns Adam with Nesterov's momentum, with q = clip(rescale-grad * gradient + wd * w) and the momentum of
  update t, p(t) = beta1 * (1 - 0.96^(t * schedule-decay) / 2): m and v as in `adam`, S = p(1) * .. * p(t),
  w = w - learning-rate * ((1 - p(t)) * q / (1 - S) + p(t + 1) * m / (1 - S * p(t + 1))) /
  (sqrt(v / (1 - beta2^t)) + epsilon).

  `opts` are those of every optimizer (learning-rate 0.001, wd 0), `:beta1` 0.9, `:beta2` 0.999, `:epsilon`
  1e-8 and `:schedule-decay` 0.004. Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (nadam {:schedule-decay 0.01}))"
  (^dev.kvstore.Optimizer [] (nadam nil))
  (^dev.kvstore.Optimizer [opts] (with-options "nadam" (named "nadam") opts)))

(defn signum
  "Returns the sign of momentum: m = momentum * m - (1 - momentum) * (q + wd * w),
  w = (1 - learning-rate * wd-lh) * w + learning-rate * sign(m). With `:momentum` 0 it is
  w = (1 - learning-rate * wd) * w - learning-rate * sign(q).

  `opts` are those of every optimizer (learning-rate 0.01, wd 0), `:momentum` 0.9 and `:wd-lh` 0. Errors are
  those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (signum {:momentum 0.8}))"
  (^dev.kvstore.Optimizer [] (signum nil))
  (^dev.kvstore.Optimizer [opts] (with-options "signum" (named "signum") opts)))

(defn ftml
  "Returns FTML (follow the moving leader), with q = clip(rescale-grad * gradient + wd * w): v = beta2 * v + (1 - beta2) * q^2,
  D = (1 - beta1^t) / learning-rate * (sqrt(v / (1 - beta2^t)) + epsilon),
  z = beta1 * z + (1 - beta1) * q - (D - beta1 * d) * w, d = D, w = -z / d.

  `opts` are those of every optimizer (learning-rate 0.01, wd 0), `:beta1` 0.6, `:beta2` 0.999 and `:epsilon`
  1e-8. Errors are those of the namespace.

      (kvstore/set-optimizer (kvstore/create) (ftml {:beta1 0.5}))"
  (^dev.kvstore.Optimizer [] (ftml nil))
  (^dev.kvstore.Optimizer [opts] (with-options "ftml" (named "ftml") opts)))

(defn- key-text
  "The key of an `index`: a number is its digits, anything else a key as elsewhere."
  ^String [index]
  (if (int? index)
    (str index)
    (pairs/key-name index)))

(defn create-state
  "Returns what `optimizer` keeps for `weight`, for `update`; it is closed by `with-open` or in time.

  `index`, a number or a key, is taken for MXNet's sake. Throws code `:invalid-argument` for a weight of
  integers.

      (instance? java.lang.AutoCloseable (create-state (adam) 0 (ndarray/ones [2]))) ;=> true"
  ^dev.kvstore.OptimizerState [^Optimizer optimizer index ^NDArray weight]
  (key-text index)
  (errors/guard (.createState optimizer weight)))

(defn update
  "Changes `weight` by one step of `optimizer`, outside of any store, and returns `optimizer`.

  `index`, a number or a key, is what multipliers and noise go by; `state` is that of `create-state`. Throws
  code `:spec-mismatch` when `grad` has not the shape and dtype of `weight`.

      (let [w (ndarray/ones [2])
            opt (sgd {:learning-rate 0.5 :wd 0})]
        (update opt 0 w (ndarray/ones [2]) (create-state opt 0 w))
        (ndarray/->vec w)) ;=> [0.5 0.5]"
  ^dev.kvstore.Optimizer
  [^Optimizer optimizer index ^NDArray weight ^NDArray grad ^OptimizerState state]
  (let [k (key-text index)]
    (errors/guard (.update optimizer k weight grad state))))
