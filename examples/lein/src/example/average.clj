(ns example.average
  "Keeps the moving average of the pushed values of a key, with an updater in Clojure."
  (:require [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray]))

(set! *warn-on-reflection* true)

(defn- average
  "Moves `stored` a quarter of the way to `pushed`."
  [_key pushed stored]
  (ndarray/+= (ndarray/*= stored 0.75) (ndarray/* pushed 0.25)))

(defn -main
  []
  (let [store (kvstore/create "local")]
    (kvstore/init store :loss (ndarray/zeros [2]))
    (kvstore/set-updater store average)
    (doseq [losses [[4 8] [4 8] [8 0]]]
      (kvstore/push store :loss (ndarray/array losses [2])))
    (println "average:" (ndarray/->vec (kvstore/pull store :loss)))))
