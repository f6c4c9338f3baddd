(ns kvstore.demo-net.worker
  "A worker of the demo.

    train   joins the servers, and trains until the coordinator stops it"
  (:require [kvstore.demo-net.model :as model]
            [kvstore.demo-net.processes :as processes]
            [kvstore.demo.network :as network]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray])
  (:import (java.util List)))

(set! *warn-on-reflection* true)

;; The pause after each batch. Without it, the training would end before another JVM has started.
(def ^:private pause-ms 20)

(defn- share
  "Returns the :position of the worker `member` among the live workers of `kv`, from 0, and :of, the
  number of live workers."
  [kv member]
  (let [workers (mapv :name (remove :reader (kvstore/members kv)))]
    {:position (max 0 (.indexOf ^List workers member))
     :of (max 1 (count workers))}))

(defn- own
  "Returns every n-th of `batches` for n live workers. Workers begin at different positions, so each
  batch has one worker."
  [batches {:keys [position of]}]
  (take-nth of (drop position batches)))

(defn- own-row
  "Returns a column with a 1 in the row of this worker's rank, and 0 in the others."
  ^dev.kvstore.NDArray [kv]
  (let [rank (kvstore/rank kv)]
    (ndarray/array (map #(if (= rank %) 1 0) (range model/max-workers)) [model/max-workers 1])))

(defn- step
  "Pushes the gradients of `batch` and the `row` of this worker, then pulls all values into
  `replica`."
  [kv replica row batch]
  (let [{:keys [gradients]} (network/gradients replica batch model/batch-size)]
    (kvstore/pushpull kv (assoc gradients :pushes row :staleness row) replica)
    (run! ndarray/dispose (vals gradients))))

(defn train
  "Trains as the worker `member` on `servers`, a list of addresses, until the coordinator stops this
  process.

  A pass goes over this worker's share of the batches, which depends on the workers that are live
  when the pass begins. Before each pass and at the end, reports the share, and the number of
  :passes and :batches so far."
  [member servers]
  (let [stop (processes/stop-requested)
        batches (model/batches)]
    (with-open [kv (model/connect servers {:name member})
                row (own-row kv)]
      (let [replica (model/initial)
            work (fn [num-done batch]
                   (if (realized? stop)
                     (reduced num-done)
                     (do
                       (step kv replica row batch)
                       (Thread/sleep (long pause-ms))
                       (inc num-done))))]
        ;; The first worker stores the values, the others keep them.
        (kvstore/init kv replica {:on-existing :keep})
        (kvstore/pull kv replica)
        (loop [passes 0
               num-done 0]
          (let [part (share kv member)]
            (processes/report (assoc part :passes passes :batches num-done))
            (when-not (realized? stop)
              (let [now-done (long (reduce work num-done (own batches part)))]
                (recur (if (realized? stop) passes (inc passes)) now-done)))))
        (kvstore/leave kv)))))
