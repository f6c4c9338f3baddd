(ns kvstore.demo-net.model
  "The values and the digits of the demo, which are the same in all processes.

    connect                         a store on the servers
    initial                         the initial value of each key
    max-workers                     the number of rows for workers
    batches num-batches batch-size  the digits for training
    accuracy-in num-tested          a test with other digits

  The keys are the parameters of the model, and two columns with a row for each worker, at its
  rank: :pushes, the number of its pushes, and :staleness, the sum of their staleness."
  (:require [kvstore.demo.digits :as digits]
            [kvstore.demo.network :as network]
            [kvstore.demo.training :as training]
            [org.apache.clojure-mxnet.context :as context]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray]))

(set! *warn-on-reflection* true)

(def ^:private seed 1998)
(def ^:private num-hidden 64)
(def ^:private weights [:w1 :b1 :w2 :b2])

(def batch-size
  "The number of digits in a batch."
  32)

(def max-workers
  "The largest number of workers. Dead workers count, because they keep their ranks."
  4)

(def ^:private learned-and-tested (delay (digits/split seed)))

(defn connect
  "Returns a store on `servers`, a list of addresses, with the further options in `opts`.

  The servers divide the rows of :w1 and :w2, which are larger than 1 KiB."
  ^dev.kvstore.KVStore [servers opts]
  (kvstore/create "dist_async" (merge {:servers servers :timeout 30 :divide-above 1024} opts)))

(defn initial
  "Returns a map from each key to its initial value."
  []
  (assoc (network/initial seed num-hidden)
         :pushes (ndarray/zeros [max-workers 1])
         :staleness (ndarray/zeros [max-workers 1])))

(defn batches
  "Returns a vector of all batches."
  []
  (let [[learned _] @learned-and-tested]
    (into [] cat (digits/batches learned batch-size [(context/cpu)] {:rank 0 :num-workers 1}))))

(defn num-batches
  "Returns the number of batches. This number of pushes is an epoch of all workers together."
  []
  (quot (count (first @learned-and-tested)) batch-size))

(defn num-tested
  "Returns the number of digits in the test."
  []
  (count (second @learned-and-tested)))

(defn accuracy-in
  "Returns the share of test digits that the model with the weights in `kv` reads correctly."
  [kv]
  (let [arrays (kvstore/pull kv weights)]
    (try
      (:accuracy (training/evaluate (zipmap weights arrays) (second @learned-and-tested)))
      (finally
        (run! ndarray/dispose arrays)))))
