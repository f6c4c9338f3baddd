(ns kvstore.demo-net.server
  "A server of the demo.

    serve   runs a server until the coordinator stops it"
  (:require [kvstore.demo-net.processes :as processes]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.kvstore-server :as kvstore-server]
            [org.apache.clojure-mxnet.ndarray :as ndarray]
            [org.apache.clojure-mxnet.optimizer :as optimizer])
  (:import (java.util.concurrent ConcurrentHashMap)))

(set! *warn-on-reflection* true)

(defn- updater
  "Returns an updater that counts the pushes of each worker, and updates the weights.

  Workers push a 1 in their row of \"pushes\" and \"staleness\". For \"staleness\", the updater
  multiplies this by the staleness of the push.

  SGD with momentum updates all other keys. It gets the gradient divided by 1 + staleness, because
  the worker has computed a stale gradient with older weights."
  []
  (let [sgd (optimizer/sgd {:learning-rate 0.1 :momentum 0.9})
        states (ConcurrentHashMap.)]
    (fn [k pushed stored]
      (let [staleness (kvstore/push-staleness k)]
        (case k
          "pushes" (ndarray/+= stored pushed)
          "staleness" (ndarray/+= stored (ndarray/*= pushed staleness))
          (do
            (.putIfAbsent states k (delay (optimizer/create-state sgd k stored)))
            (optimizer/update sgd k stored (ndarray/div= pushed (inc (long staleness)))
                              @(.get states k))))))))

(defn serve
  "Starts a server on a free port of this machine, reports its :address, and serves until the
  coordinator stops this process."
  []
  (let [stop (processes/stop-requested)]
    (with-open [server (kvstore-server/start {:address "127.0.0.1:0" :updater (updater)})]
      (processes/report {:address (kvstore-server/address server)})
      @stop)))
