;; The updater of the page "KVStore API" of Apache MXNet's documentation for Python, translated to
;; Clojure.

(ns docs.updater
  (:require [org.apache.clojure-mxnet.context :as context]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray]))

(def kv (kvstore/create "local"))
(def shape [2 3])
(def ks ["5" "7" "9"])
(kvstore/init kv ks (repeatedly 3 #(ndarray/ones shape)))

;; from now on, a push computes stored += input * 2
(defn add-twice [key input stored]
  (println "update on key:" key)
  (with-open [twice (ndarray/* input 2)]
    (ndarray/+= stored twice)))
(kvstore/set-updater kv add-twice)

(kvstore/push kv ks (repeatedly 3 #(ndarray/ones shape)))
(def b (repeatedly 3 #(ndarray/zeros shape)))
(kvstore/pull kv ks b)
(ndarray/->vec (second b)) ;=> [3.0 3.0 3.0 3.0 3.0 3.0]

;; four devices: their four values are summed before the updater sees them
(def cpus (map context/cpu (range 4)))
(def b (for [_ ks] (for [cpu cpus] (ndarray/ones shape {:ctx cpu}))))
(kvstore/push kv ks b)
(kvstore/pull kv ks b)
(map ndarray/->vec (second b)) ;=> ([11.0 11.0 11.0 11.0 11.0 11.0] [11.0 11.0 11.0 11.0 11.0 11.0] [11.0 11.0 11.0 11.0 11.0 11.0] [11.0 11.0 11.0 11.0 11.0 11.0])
