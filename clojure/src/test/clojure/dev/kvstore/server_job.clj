(ns dev.kvstore.server-job
  "A process of a job that a launcher has started, as dev.kvstore.ServerJob in Java.

    add    the updater of the servers, which fails for negative numbers
    -main  serves the job or trains, by the role in the environment variables"
  (:require [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.kvstore-server :as kvstore-server]
            [org.apache.clojure-mxnet.ndarray :as ndarray])
  (:import (clojure.lang ExceptionInfo)))

(set! *warn-on-reflection* true)

(defn add
  "Adds `pushed` to `stored`."
  [_ pushed stored]
  (when (neg? (double (ndarray/to-scalar pushed)))
    (throw (IllegalStateException. "below 0")))
  (ndarray/+= stored pushed))

(defn- train
  []
  (with-open [kv (kvstore/create "dist_async")]
    (kvstore/init kv "w" (ndarray/full [1] 2))
    (kvstore/barrier kv)
    (when (zero? (long (kvstore/rank kv)))
      (try
        (kvstore/push kv "w" (ndarray/full [1] -2))
        (catch ExceptionInfo e
          (println (:kvstore/code (ex-data e)) (ex-message e)))))
    (kvstore/barrier kv)
    (kvstore/push kv "w" (ndarray/full [1] 2))
    (kvstore/barrier kv)
    (println "sum" (ndarray/to-scalar (kvstore/pull kv "w")))))

(defn -main
  "Runs the role of this process. Without a role, it is a worker of the servers in KVSTORE_SERVERS."
  []
  (if (contains? #{"server" "scheduler"} (System/getenv "DMLC_ROLE"))
    (do (kvstore-server/start 0 {:updater add})
        (println "the job has ended"))
    (train)))
