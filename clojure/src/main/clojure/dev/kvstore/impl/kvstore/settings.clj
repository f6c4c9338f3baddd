(ns dev.kvstore.impl.kvstore.settings
  "Settings for pushes. org.apache.clojure-mxnet.kvstore exports these functions.

    set-updater set-optimizer              a function of the caller, or an optimizer
    push-staleness                         the staleness of the push that an updater runs for
    hyper-parameters set-hyper-parameters  the hyper-parameters of the store's optimizer
    set-gradient-compression               compression to one or two bits per element
    clip-global-norm set-clip-global-norm  the bound of the global norm of a push"
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.hyper-parameters :as hyper-parameters]
            [dev.kvstore.impl.pairs :as pairs]
            [dev.kvstore.impl.updater :as updater])
  (:import (clojure.lang IPending ITransientCollection MultiFn)
           (dev.kvstore KVStore Optimizer Snapshot Updater)
           (java.util OptionalLong)))

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
  "Makes `f` the updater of later pushes, and returns `kvstore`. If `f` is nil, pushed sums replace
  the stored values.

  The store calls (f key pushed stored) once per key and push, in the thread that pushes. `f`
  changes the array `stored` in place; its result is ignored. Both arrays are closed when `f`
  returns. If `f` throws, the key keeps its value, and push throws the same exception object.
  Inside `f`, pull returns the last committed value of any key. Calling push, init, remove or a
  setter of the same store throws code `:invalid-argument`. `f` must not wait for another thread
  that makes such a call, because that may deadlock. Throws \"Invalid updater\" unless `f` is nil
  or a function. Keywords, symbols and collections are rejected.

  The store keeps `f` alive. If `f` refers to the store, for example by closing over it, the
  garbage collector cannot release the store: close such a store yourself.

      (set-updater kv (fn [_ pushed stored] (ndarray/+= stored pushed)))"
  ^dev.kvstore.KVStore [^KVStore kvstore f]
  (errors/check #(or (nil? %) (updater? %)) f "updater"
                "nil or a function of key, pushed and stored")
  (errors/guard (.setUpdater kvstore (some-> f updater/java))))

(defn push-staleness
  "Returns the staleness of the push that an updater runs for: the number of pushes that have
  changed `k`, the key of the updater, since the worker pulled it. Returns nil outside of an updater
  and in stores without servers. Throws \"Invalid keys\" if `k` is not a key.

      (push-staleness \"w\") ;=> nil"
  [k]
  (let [key-name (pairs/key-name k)
        ^OptionalLong staleness (errors/guard (Updater/pushStaleness key-name))]
    (when (.isPresent staleness)
      (.getAsLong staleness))))

(defn set-optimizer
  "Makes `optimizer` the optimizer of later pushes, with a new state for every key, and returns
  `kvstore`.

  Throws \"Invalid optimizer\" for anything that the optimizer namespace did not create.

      (set-optimizer kv (optimizer/sgd {:learning-rate 0.1}))"
  ^dev.kvstore.KVStore [^KVStore kvstore ^Optimizer optimizer]
  (errors/check #(instance? Optimizer %) optimizer "optimizer" "an Optimizer")
  (errors/guard (.setOptimizer kvstore optimizer)))

(defn hyper-parameters
  "Returns the hyper-parameters of the optimizer of `kvstore`, a store or a snapshot, as a map of
  keywords to numbers.

  Throws code `:invalid-argument` if there is no optimizer, and code `:closed` if `kvstore` is
  closed.

      (:momentum (hyper-parameters
                   (set-optimizer (create) (optimizer/sgd {:momentum 0.5})))) ;=> 0.5"
  [kvstore]
  (hyper-parameters/options
    (errors/guard
      (if (instance? Snapshot kvstore)
        (.hyperParameters ^Snapshot kvstore)
        (.hyperParameters ^KVStore kvstore)))))

(defn set-hyper-parameters
  "Changes hyper-parameters of the optimizer of `kvstore`, all or none, and returns `kvstore`.

  `changed` maps keywords to numbers, or to booleans for boolean options. The names are those of
  the optimizer namespace, including `:lr`. States and update counts stay. Throws \"Invalid
  hyper-parameters\" for anything else. Throws code `:invalid-argument` if there is no optimizer,
  if it has no such hyper-parameter, or if a number is out of range.

      (set-hyper-parameters kv {:learning-rate 0.001})"
  ^dev.kvstore.KVStore [^KVStore kvstore changed]
  (errors/check #(and (map? %) (every? keyword? (keys %))) changed "hyper-parameters"
                "a map of keywords to numbers")
  (when-let [wrong (some (fn [[option value]] (hyper-parameters/wrong-value option value)) changed)]
    (errors/invalid (str "Invalid hyper-parameters: " wrong) changed))
  (errors/guard (.setHyperParameters kvstore (hyper-parameters/native-values changed))))

(defn set-gradient-compression
  "Compresses the values of all later pushes, and returns `kvstore`. nil turns compression off.

  `params` is a map of `:type`, :2bit or :1bit, and `:threshold`, a number above 0, 0.5 by
  default. The store keeps a residual for each key and each position in the list of its values.
  Compression adds each pushed element to its residual, encodes the residual as one of a few
  numbers, pushes that number, and subtracts it from the residual. :2bit pushes the threshold if
  the residual is at least the threshold, its negative if the residual is at most the negative
  threshold, and 0 otherwise. :1bit pushes 1 if the residual is above the threshold, and -1
  otherwise. Integers cannot be compressed: pushing them then throws code `:invalid-argument`.
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
  "Clips the sums of all later pushes by the global norm: scales them so that the Euclidean norm
  over all keys of a push is at most `bound`. Returns `kvstore`. nil turns clipping off. The
  factor is `bound / (norm + 1e-8)`.

  Each push has its own norm, so push all gradients of a model in one call. The store clips before
  the optimizer or updater runs, and before `:rescale-grad` is applied. A norm that is NaN or
  infinite does not clip. Integers cannot be clipped: pushing them then throws code
  `:invalid-argument`. Throws code `:invalid-argument` if `bound` is not a finite number above 0,
  or if gradient compression is on. Throws \"Invalid bound of the norm\" for anything else.

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
  "Returns the bound of the global norm of pushes to `kvstore`, or nil if clipping is off.

  Throws code `:closed` if `kvstore` is closed.

      (clip-global-norm (set-clip-global-norm (create) 5)) ;=> 5.0"
  [^KVStore kvstore]
  (errors/guard (let [bound (.clipGlobalNorm kvstore)]
                  (when (.isPresent bound)
                    (.getAsDouble bound)))))
