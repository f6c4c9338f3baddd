(ns org.apache.clojure-mxnet.optimizer
  "Optimizers for `kvstore/set-optimizer`.

  With the formulas and defaults of MXNet's optimizers for the JVM
    sgd        stochastic gradient descent, momentum
    dcasgd     delay-compensated asynchronous gradient descent
    nag        Nesterov's accelerated gradient
    ada-delta ada-grad rms-prop adam
    sgld       stochastic gradient Langevin dynamics
  The other optimizers have the formulas and defaults of MXNet's Python package or of a paper; the
  documentation of each names its source. The end of this text lists all constructors.

  `create-state` and `update` make single steps without a store.

  An optimizer is a value: several stores can share it, and each keeps its own states. In the
  formulas, w is the weight, lr the learning rate, rescale is rescale-grad, and clip clamps every
  element to the range from -clip-gradient to clip-gradient.

  Besides its own, every optimizer takes these options:
    :learning-rate      step size; each optimizer has its own default; alias `:lr`
    :wd                 weight decay; alias `:weight-decay`
    :clip-gradient      bound on each element of the rescaled gradient; 0, the default, disables it
    :rescale-grad       factor on the gradient, 1 by default; alias `:rescale-gradient`
    :begin-num-update   the initial update count of every key, 0 by default
    :lr-scheduler       a schedule of the lr-scheduler namespace
    :lr-mult :wd-mult   maps from keys to factors on the learning rate or weight decay
  sgd, adam, ada-grad and ftrl also take
    :lazy-update        true (the default): a row-sparse push changes weight and state in its rows
                        only; false: the other rows of the gradient are 0

  Boolean options also take 1 and 0. Use only one name of an option that has an alias.

  Each constructor throws \"Incorrect sgd optimizer options\" (with its own name) if a value has
  the wrong type, code `:invalid-argument` if a number is out of range, and an error that names an
  unknown option."
  (:refer-clojure :exclude [update])
  (:require [clojure.string :as string]
            [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.hyper-parameters :as hyper-parameters]
            [dev.kvstore.impl.optimizers :as optimizers]
            [dev.kvstore.impl.option-names :as option-names]
            [dev.kvstore.impl.pairs :as pairs]
            [dev.kvstore.impl.printing])
  (:import (dev.kvstore LrScheduler NDArray Optimizer OptimizerState)))

(set! *warn-on-reflection* true)

(defn- incorrect
  [optimizer-name opts reason]
  (errors/invalid (str "Incorrect " optimizer-name " optimizer options: " reason) opts))

(defn- with-multipliers
  "Adds the factors of the map `key->factor` to `optimizer`. `add` is a function of optimizer, key
  and factor."
  [optimizer key->factor add]
  (reduce-kv (fn [optimizer k factor] (add optimizer (pairs/key-name k) factor))
             optimizer
             (or key->factor {})))

(defn- wrong-factors
  "Returns why `x`, a map of keys to factors, is invalid for `option`, as a message, or nil."
  [option x]
  (when-not (or (nil? x)
                (and (map? x) (every? pairs/single-key? (keys x)) (every? number? (vals x))))
    (str "`" option "`: expected a map of keys to numbers, found " (errors/shown x))))

(defn- wrong-option
  "Returns why the first invalid value of `opts` is invalid, as a message, or nil."
  [numbers {:keys [lr-scheduler lr-mult wd-mult]}]
  (or (some (fn [[option value]] (hyper-parameters/wrong-value option value)) numbers)
      (when-not (or (nil? lr-scheduler) (instance? LrScheduler lr-scheduler))
        (str "`:lr-scheduler`: expected an LrScheduler, found " (errors/shown lr-scheduler)))
      (wrong-factors :lr-mult lr-mult)
      (wrong-factors :wd-mult wd-mult)))

(defn- checked-options
  "Returns the map `opts` if it has only options of the vector `known`, with valid values."
  [optimizer-name known opts]
  (when-not (and (or (nil? opts) (map? opts)) (every? keyword? (keys opts)))
    (incorrect optimizer-name opts
               (str "expected a map with keywords for keys, found " (errors/shown opts))))
  (let [{:keys [lr-mult wd-mult]} opts
        numbers (dissoc opts :lr-scheduler :lr-mult :wd-mult)]
    (when-let [unknown (first (remove (comp (set known) option-names/native-name)
                                      (keys numbers)))]
      (errors/invalid (str "optimizer `" optimizer-name "` has no hyper-parameter `"
                           (pr-str unknown) "`: expected one of "
                           (string/join ", " (map (comp str option-names/option) known))
                           ", :lr-scheduler, :lr-mult, :wd-mult")
                      unknown))
    (when-let [wrong (wrong-option numbers opts)]
      (incorrect optimizer-name opts wrong))
    (run! pairs/check-names [lr-mult wd-mult])
    (assoc opts :numbers (hyper-parameters/native-values (or numbers {})))))

(defn- with-options
  "Returns `optimizer` with the options of the map `opts`; `optimizer-name` is its name in
  messages."
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

(defmacro ^:private define-constructors
  "Defines a function for each of `optimizers/constructors`."
  []
  `(do ~@(for [{:keys [function factory doc]} optimizers/constructors
               :let [tagged #(with-meta % {:tag 'dev.kvstore.Optimizer})]]
           `(defn ~function
              ~doc
              (~(tagged []) (~function nil))
              (~(tagged '[opts])
               (with-options ~(name function) (errors/guard (. Optimizer ~factory)) ~'opts))))))

(define-constructors)

(alter-meta! *ns* clojure.core/update :doc str
             "\n\n  All constructors:\n"
             (string/join "\n" (for [{:keys [function title]} optimizers/constructors]
                                 (format "    %-12s  %s" function title))))

(defn- key-text
  "Returns the key of an `index`. The key of a number is its digits; anything else must be a key
  itself."
  ^String [index]
  (if (int? index)
    (str index)
    (pairs/key-name index)))

(defn create-state
  "Returns a new `optimizer` state of `weight` for `update`. `with-open` closes it; otherwise it is
  released after it has been garbage-collected.

  `index`, a number or a key, exists for compatibility with MXNet and has no effect. Throws code
  `:invalid-argument` if the weight has an integer dtype.

      (instance? java.lang.AutoCloseable (create-state (adam) 0 (ndarray/ones [2]))) ;=> true"
  ^dev.kvstore.OptimizerState [^Optimizer optimizer index ^NDArray weight]
  (key-text index)
  (errors/guard (.createState optimizer weight)))

(defn update
  "Updates `weight` by one step of `optimizer` without a store, and returns `optimizer`.

  `index`, a number or a key, selects multipliers and random numbers. `state` is the result of
  `create-state` for this weight. Throws code `:spec-mismatch` if `grad` has another shape or
  dtype than `weight`.

      (let [w (ndarray/ones [2])
            opt (sgd {:learning-rate 0.5 :wd 0})]
        (update opt 0 w (ndarray/ones [2]) (create-state opt 0 w))
        (ndarray/->vec w)) ;=> [0.5 0.5]"
  ^dev.kvstore.Optimizer
  [^Optimizer optimizer index ^NDArray weight ^NDArray grad ^OptimizerState state]
  (let [k (key-text index)]
    (errors/guard (.update optimizer k weight grad state))))
