(ns example.poisoned
  "Recovers from a batch with damaged pixels, which makes every weight NaN. The store rolls back to
  a snapshot, and training continues after the damaged batches."
  (:require [example.digits :as digits]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray]
            [org.apache.clojure-mxnet.optimizer :as optimizer]
            [org.apache.clojure-mxnet.resource-scope :as resource-scope]))

(set! *warn-on-reflection* true)

(def ^:private num-epochs 20)
(def ^:private batches-per-snapshot 8)

(defn- poison
  "Sets the pixels of one digit of the batch `number` to NaN."
  [batches number]
  (let [{:keys [x]} (nth batches number)]
    (ndarray/set (ndarray/slice x 0) (repeat 64 ##NaN))
    batches))

(defn- learn-all
  "Trains on some batches. Returns the largest loss, or NaN if there was one."
  [kv batches]
  (reduce (fn [worst batch]
            (resource-scope/using
              (let [{:keys [loss gradient]} (digits/learn (kvstore/pull kv "w") batch)]
                (kvstore/push kv "w" gradient)
                (if (or (NaN? worst) (NaN? loss)) ##NaN (max worst loss)))))
          0.0
          batches))

(defn- learn-or-go-back
  "Trains on some batches, and rolls all of them back if a loss is NaN. Returns whether it rolled
  back."
  [kv batches]
  (with-open [good (kvstore/snapshot kv)]
    (when (NaN? (learn-all kv batches))
      (kvstore/rollback kv good)
      true)))

(defn -main
  []
  (let [batches (poison (digits/batches) 17)
        kv (-> (kvstore/create)
               (kvstore/init "w" (ndarray/zeros [64 10]))
               (kvstore/set-optimizer (optimizer/sgd {:learning-rate 0.5 :momentum 0.9})))
        times (frequencies (for [_ (range num-epochs)
                                 some-batches (partition-all batches-per-snapshot batches)]
                             (boolean (learn-or-go-back kv some-batches))))
        whole? (not-any? #(Double/isNaN %) (ndarray/->vec (kvstore/pull kv "w")))]
    (println (format "went back %d times of %d, %s" (times true) (reduce + (vals times))
                     (if whole? "every weight is a number" "WEIGHTS ARE LOST")))
    (shutdown-agents)))
