(ns kvstore.demo.training
  "Data-parallel training: the store adds up what the devices found and takes the step.

    run   trains a network on the digits and tests it"
  (:require [clojure.string :as string]
            [kvstore.demo.digits :as digits]
            [kvstore.demo.network :as network]
            [kvstore.demo.screen :as screen]
            [org.apache.clojure-mxnet.context :as context]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray]
            [org.apache.clojure-mxnet.optimizer :as optimizer]))

(set! *warn-on-reflection* true)

(def ^:private seed 1998)
(def ^:private num-hidden 64)
(def ^:private num-epochs 60)
(def ^:private batch-size 32)
(def ^:private devices (mapv context/cpu (range 4)))
(def ^:private ks [:w1 :b1 :w2 :b2])

(defn- replica
  "A copy of `parameters` in the context `ctx`, for a device to compute with."
  [parameters ctx]
  (update-vals parameters #(ndarray/copy-to % (ndarray/empty (ndarray/shape-vec %) {:ctx ctx}))))

(defn- per-key
  "The arrays of `maps` in the form in which the store takes them: a list for each key."
  [maps]
  (for [k ks]
    (map k maps)))

(defn- dispose-all
  "Frees the arrays in `maps`."
  [maps]
  (run! ndarray/dispose (mapcat vals maps)))

(defn- step
  "Learns from one batch, of which every device has a part. Returns the loss summed over it."
  [kv replicas parts]
  (let [results (doall (pmap #(network/gradients %1 %2 batch-size) replicas parts))
        gradients (map :gradients results)]
    (kvstore/push kv ks (per-key gradients))
    (kvstore/pull kv ks (per-key replicas))
    (dispose-all gradients)
    (transduce (map :loss) + results)))

(defn- train
  [kv replicas batches]
  (let [num-samples (* batch-size (count batches))
        start (System/nanoTime)]
    (doseq [epoch (range 1 (inc num-epochs))]
      (let [loss (/ (transduce (map #(step kv replicas %)) + batches) num-samples)
            seconds (/ (- (System/nanoTime) start) 1e9)]
        (screen/progress epoch num-epochs
                         (format "epoch %2d   loss %.4f   %,.0f samples/s"
                                 epoch (double loss) (/ (* epoch num-samples) seconds)))))))

(defn- evaluate
  "Reads the `tested` digits. Returns the :accuracy, the :mistakes and how many were tested."
  [parameters tested]
  (with-open [x (digits/pixels tested (context/cpu))
              ones (digits/ones-column tested (context/cpu))]
    (let [answers (map #(assoc %1 :read %2) tested (network/predict parameters x ones))
          mistakes (remove #(= (:label %) (:read %)) answers)]
      {:accuracy (- 1.0 (/ (count mistakes) (double (count tested))))
       :mistakes mistakes
       :num-tested (count tested)})))

(defn run
  "Trains on four fifths of the digits and returns what `evaluate` says of the rest.

  Every device computes the gradients of its part of a batch and pushes them under the same keys; SGD with
  momentum takes one step with their sum, on the store; every device pulls the new parameters."
  []
  (with-open [kv (kvstore/create "device")]
    (let [[learned tested] (digits/split seed)
          parameters (network/initial seed num-hidden)
          replicas (mapv #(replica parameters %) devices)
          batches (doall (digits/batches learned batch-size devices))]
      (kvstore/init kv parameters)
      (kvstore/set-optimizer kv (optimizer/sgd {:learning-rate 0.1 :momentum 0.9}))
      (screen/facts {"digits" (format "%d to learn from, %d to be tested with" (count learned) (count tested))
                     "devices" (string/join " " devices)
                     "parameters" (format "%s, updated on the store by SGD with momentum"
                                          (string/join " " (kvstore/keys kv)))})
      (println)
      (train kv replicas batches)
      (println)
      (try
        (evaluate (first replicas) tested)
        (finally
          (dispose-all (apply concat [parameters] replicas batches)))))))
