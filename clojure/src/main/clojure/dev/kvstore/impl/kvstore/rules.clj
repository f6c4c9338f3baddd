(ns dev.kvstore.impl.kvstore.rules
  "What a push does to a value; offered by org.apache.clojure-mxnet.kvstore.

    set-updater set-optimizer              a function of the caller's, or an update rule
    hyper-parameters set-hyper-parameters  of the rule, while it runs
    set-gradient-compression               one or two bits an element
    clip-global-norm set-clip-global-norm  a bound of the norm of a push"
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.hyper-parameters :as hyper-parameters]
            [dev.kvstore.impl.updater :as updater])
  (:import (clojure.lang IPending ITransientCollection MultiFn)
           (dev.kvstore KVStore Optimizer Snapshot)))

(set! *warn-on-reflection* true)

(defn- updater?
  "Returns whether `f` can be an updater. Keywords, symbols and collections are callable, but only
  look up."
  [f]
  (or (fn? f)
      (var? f)
      (instance? MultiFn f)
      (and (ifn? f)
           (not (keyword? f))
           (not (symbol? f))
           (or (record? f) (not (coll? f)))
           (not (instance? ITransientCollection f))
           (not (instance? IPending f)))))

(defn set-updater
  "Makes `f` what happens to a pushed sum, and returns `kvstore`. With nil the sum replaces the value again.

  `f` is called as (f key pushed stored), once per key and push, in the thread that pushes; it changes the
  array `stored` in place and its result is ignored. Both arrays end with the call. When it throws, the
  key keeps its value and the caller of push gets that very object. Inside it, pull gives the last
  committed value of any key; push, init, remove and the setters of the same store are code
  `:invalid-argument`, and waiting for another thread that calls them may never end. Throws
  \"Invalid updater\" unless `f` is nil or a function. Keywords, symbols and collections are rejected.

  The store keeps `f`. A store that `f` refers to, as one that closes over it does, is therefore never
  collected: dispose such a store.

      (set-updater kv (fn [_ pushed stored] (ndarray/+= stored pushed)))"
  ^dev.kvstore.KVStore [^KVStore kvstore f]
  (errors/check #(or (nil? %) (updater? %)) f "updater" "nil or a function of key, pushed and stored")
  (errors/guard (.setUpdater kvstore (some-> f updater/java))))

(defn set-optimizer
  "Makes `optimizer` what happens to a pushed sum, with a new state for every key; returns `kvstore`.

  Throws \"Invalid optimizer\" for what the optimizer namespace did not make.

      (set-optimizer kv (optimizer/sgd {:learning-rate 0.1}))"
  ^dev.kvstore.KVStore [^KVStore kvstore ^Optimizer optimizer]
  (errors/check #(instance? Optimizer %) optimizer "optimizer" "an Optimizer")
  (errors/guard (.setOptimizer kvstore optimizer)))

(defn hyper-parameters
  "Returns the hyper-parameters of the optimizer that runs on `kvstore`, which may be a snapshot, as a map of keyword
  to number.

  Throws code `:invalid-argument` when it has none, and code `:closed` when `kvstore` was disposed.

      (:momentum (hyper-parameters (set-optimizer (create) (optimizer/sgd {:momentum 0.5})))) ;=> 0.5"
  [kvstore]
  (hyper-parameters/options
    (errors/guard
      (if (instance? Snapshot kvstore)
        (.hyperParameters ^Snapshot kvstore)
        (.hyperParameters ^KVStore kvstore)))))

(defn set-hyper-parameters
  "Changes hyper-parameters of the optimizer that runs on `kvstore`, all or none, and returns `kvstore`.

  `changed` maps keywords to numbers, or to booleans for boolean options. The names are those of the
  optimizer namespace, also `:lr`. States and counts are kept. Throws \"Invalid hyper-parameters\" for
  anything else, and code `:invalid-argument` when there is no optimizer, when it has no such hyper-parameter,
  and for a number that it cannot have.

      (set-hyper-parameters kv {:learning-rate 0.001})"
  ^dev.kvstore.KVStore [^KVStore kvstore changed]
  (errors/check #(and (map? %) (every? keyword? (keys %))) changed "hyper-parameters" "a map of keywords to numbers")
  (when-let [wrong (some (fn [[option value]] (hyper-parameters/wrong-value option value)) changed)]
    (errors/invalid (str "Invalid hyper-parameters: " wrong) changed))
  (errors/guard (.setHyperParameters kvstore (hyper-parameters/native-values changed))))

(defn set-gradient-compression
  "Compresses the values of every push from now on, and returns `kvstore`. With nil they are pushed whole again.

  `params` is a map of `:type`, :2bit or :1bit, and `:threshold`, a number above 0, 0.5 by default. For each key
  and each position in the list of its values a residual is kept. An element is added to it, what is pushed is
  what its code means, and that is taken off the residual. :2bit means the threshold for a residual of at least
  that, its negative for one of at most that, and otherwise 0; :1bit means 1 for a residual above the
  threshold, and otherwise -1. Integers cannot be compressed: pushing them is code `:invalid-argument` then.
  Throws \"Invalid gradient compression\" for anything else.

      (let [kv (init (create) \"w\" (ndarray/zeros [2]))]
        (set-gradient-compression kv {:type :2bit :threshold 0.5})
        (push kv \"w\" (ndarray/array [0.3 -0.7] [2]))
        (ndarray/->vec (pull kv \"w\"))) ;=> [0.0 -0.5]"
  ^dev.kvstore.KVStore [^KVStore kvstore params]
  (let [{:keys [type threshold] :or {threshold 0.5}} params]
    (errors/check #(or (nil? %)
                       (and (map? %) (every? #{:type :threshold} (keys %))
                            (or (string? type) (keyword? type)) (number? threshold)))
                  params "gradient compression" "nil or a map of :type and :threshold")
    (errors/guard (if params
                    (.setGradientCompression kvstore (name type) (double threshold))
                    (.clearGradientCompression kvstore)))))

(defn set-clip-global-norm
  "Scales the sums of every push from now on, so that the Euclidean norm over all keys of the push is at most
  `bound`, and returns `kvstore`. nil removes the bound. The factor is `bound / (norm + 1e-8)`.

  Each push has a norm of its own, so the gradients of a model belong in one push. An optimizer or updater
  gets the clipped sums; `:rescale-grad` comes after. A norm that is not finite clips nothing. Integers cannot be
  clipped: pushing them is code `:invalid-argument` then, and so is a bound that is not a finite number above 0,
  or one beside gradient compression. Throws \"Invalid bound of the norm\" for anything else.

      (let [kv (init (create) {\"a\" (ndarray/zeros [1]) \"b\" (ndarray/zeros [1])})]
        (set-clip-global-norm kv 5)
        (push kv {\"a\" (ndarray/array [6] [1]) \"b\" (ndarray/array [8] [1])})
        (map ndarray/to-scalar (pull kv [\"a\" \"b\"]))) ;=> (3.0 4.0)"
  ^dev.kvstore.KVStore [^KVStore kvstore bound]
  (errors/check #(or (nil? %) (number? %)) bound "bound of the norm" "nil or a number")
  (errors/guard (if bound
                  (.setClipGlobalNorm kvstore (double bound))
                  (.clearClipGlobalNorm kvstore))))

(defn clip-global-norm
  "Returns the bound of the norm of a push to `kvstore`, or nil if there is none.

  Throws code `:closed` when `kvstore` was disposed.

      (clip-global-norm (set-clip-global-norm (create) 5)) ;=> 5.0"
  [^KVStore kvstore]
  (errors/guard (let [bound (.clipGlobalNorm kvstore)]
                  (when (.isPresent bound)
                    (.getAsDouble bound)))))
