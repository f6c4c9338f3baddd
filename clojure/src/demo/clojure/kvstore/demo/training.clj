(ns kvstore.demo.training
  "Data-parallel training: the store sums the gradients of the devices and makes the step.

    run        trains a network on the digits and tests it
    show       does the same and prints the results
    evaluate   tests a network"
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
(def ^:private ks [:w1 :b1 :w2 :b2])

(defn- replica
  "Returns a copy of `parameters` in the context `ctx`, for the computations of a device."
  [parameters ctx]
  (update-vals parameters #(ndarray/copy-to % (ndarray/empty (ndarray/shape-vec %) {:ctx ctx}))))

(defn- per-key
  "Returns the arrays of `maps` in the form that the store takes: a list for each key."
  [maps]
  (for [k ks]
    (map k maps)))

(defn- dispose-all
  "Closes the arrays in `maps`."
  [maps]
  (run! ndarray/dispose (mapcat vals maps)))

(defn- step
  "Trains on one batch that is divided between the devices. Returns the loss summed over the batch."
  [kv replicas parts]
  (let [results (doall (pmap #(network/gradients %1 %2 batch-size) replicas parts))
        gradients (map :gradients results)]
    (kvstore/push kv ks (per-key gradients))
    (kvstore/pull kv ks (per-key replicas))
    (dispose-all gradients)
    (transduce (map :loss) + results)))

(defn- num-digits
  "Returns the number of digits in `batches`."
  [batches]
  (transduce (comp cat (map #(ndarray/size (:ones %)))) + batches))

(defn- train
  [kv replicas batches]
  (let [num-samples (num-digits batches)
        start (System/nanoTime)]
    (doseq [epoch (range 1 (inc num-epochs))]
      (let [loss (/ (transduce (map #(step kv replicas %)) + batches) num-samples)
            seconds (/ (- (System/nanoTime) start) 1e9)]
        (screen/progress epoch num-epochs
                         (format "epoch %2d   loss %.4f   %,.0f samples/s"
                                 epoch (double loss) (/ (* epoch num-samples) seconds)))))))

(defn evaluate
  "Reads the `tested` digits with a network of these `parameters`. Returns the :accuracy, the
  :mistakes and the number of digits."
  [parameters tested]
  (with-open [x (digits/pixels tested (context/cpu))
              ones (digits/ones-column tested (context/cpu))]
    (let [answers (map #(assoc %1 :read %2) tested (network/predict parameters x ones))
          mistakes (remove #(= (:label %) (:read %)) answers)]
      {:accuracy (- 1.0 (/ (count mistakes) (double (count tested))))
       :mistakes mistakes
       :num-tested (count tested)})))

(defn run
  "Trains with the store `kv` on four fifths of the digits, and returns what `evaluate` returns for
  the rest.

  Each of the `devices` computes the gradients of its part of a batch and pushes them under the
  same keys. SGD with momentum makes one step with their sum, on the store. Then each device pulls
  the new parameters. If workers share the store, a batch has parts for the devices of all
  workers. The trained parameters are in the store."
  [kv devices]
  (let [[learned tested] (digits/split seed)
        worker {:rank (kvstore/rank kv) :num-workers (kvstore/num-workers kv)}
        parameters (network/initial seed num-hidden)
        replicas (mapv #(replica parameters %) devices)
        batches (doall (digits/batches learned batch-size devices worker))]
    (kvstore/init kv parameters)
    (kvstore/set-optimizer kv (optimizer/sgd {:learning-rate 0.1 :momentum 0.9}))
    (screen/facts {"digits" (format "%d to learn from, %d to be tested with"
                                    (count learned) (count tested))
                   "devices" (string/join " " devices)
                   "parameters" (format "%s, updated on the store by SGD with momentum"
                                        (string/join " " (kvstore/keys kv)))})
    (println)
    (train kv replicas batches)
    (println)
    (try
      (evaluate (first replicas) tested)
      (finally
        (dispose-all (apply concat [parameters] replicas batches))))))

(defn show
  "Calls `run` and prints the result. Throws if the accuracy is too low."
  [kv devices]
  (let [{:keys [accuracy mistakes num-tested]} (run kv devices)]
    (screen/facts {"accuracy" (format "%.1f %% of %d digits that it never saw"
                                      (* 100.0 accuracy) num-tested)
                   "wrong" (format "%d, some of them:" (count mistakes))})
    (screen/pictures (take 5 mistakes))
    (when (< accuracy 0.95)
      (throw (ex-info "the network reads too few digits" {:accuracy accuracy :expected 0.95})))))
