(ns dev.kvstore.dist-job
  "The programs of the ranks of a job, which DistIT starts.

    -main   runs a program"
  (:require [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray]
            [org.apache.clojure-mxnet.optimizer :as optimizer])
  (:import (clojure.lang ExceptionInfo)))

(set! *warn-on-reflection* true)

(defn- push-sum
  "Pushes 1 from rank 0 and 2 from rank 1. Returns the new value, whose elements must all be equal."
  [kv]
  (kvstore/push kv "w" (ndarray/full [2 3] (inc (kvstore/rank kv))))
  (let [[x & others] (ndarray/->vec (kvstore/pull kv "w"))]
    (assert (apply = x others))
    x))

(defn- use-verbs
  [kv]
  (assert (= 2 (kvstore/num-workers kv)))
  (kvstore/init kv "w" (ndarray/zeros [2 3]))
  (assert (= 3.0 (push-sum kv)))
  (kvstore/set-optimizer kv (optimizer/sgd {:learning-rate 0.5 :wd 0.0}))
  (assert (= (- 3.0 1.5) (push-sum kv)))
  (kvstore/set-updater kv (fn [_ pushed stored] (ndarray/+= stored (ndarray/* pushed 2))))
  (assert (= (+ 1.5 6.0) (push-sum kv)))
  (let [mine (ex-info "mine" {})]
    (kvstore/set-updater kv (fn [& _] (throw mine)))
    (assert (identical? mine (try (push-sum kv) (catch ExceptionInfo e e)))))
  (kvstore/set-updater kv nil)
  (assert (= 3.0 (push-sum kv)))
  (kvstore/barrier kv))

(defn- create
  []
  (try
    (with-open [kv (kvstore/create "dist_sync")]
      (println "made" (str kv)))
    (catch ExceptionInfo e
      (println (str (:kvstore/code (ex-data e)) ": " (ex-message e))))))

(defn- run
  [program]
  (let [kv (kvstore/create "dist_sync")
        rank (kvstore/rank kv)]
    (case program
      "verbs" (with-open [kv kv]
                (use-verbs kv))
      "unclosed" (do (kvstore/init kv "w" (ndarray/zeros [2 3]))
                     (push-sum kv)
                     (dotimes [_ 50]
                       (kvstore/push kv "w" (ndarray/full [2 3] 1)))))
    (println (str "rank " rank " is done"))))

(defn -main
  "Runs the program with the name `program`."
  [program]
  (if (= program "create")
    (create)
    (run program)))
