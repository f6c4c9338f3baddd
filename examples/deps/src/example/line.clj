(ns example.line
  "Fits y = w x on two devices to points of y = 3 x. Each device has its own points."
  (:require [org.apache.clojure-mxnet.context :as context]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray]
            [org.apache.clojure-mxnet.optimizer :as optimizer]
            [org.apache.clojure-mxnet.resource-scope :as resource-scope]))

(set! *warn-on-reflection* true)

(defn- points
  [device xs]
  {:x (ndarray/array xs [2] {:ctx (context/cpu device)})
   :y (ndarray/array (mapv #(* 3 %) xs) [2] {:ctx (context/cpu device)})})

(defn- gradient
  "Returns the derivative of half the squared error at the weight `w`."
  [w {:keys [x y]}]
  (ndarray/sum (ndarray/* (ndarray/- (ndarray/* x (ndarray/to-scalar w)) y) x)))

(defn -main
  []
  (let [store (kvstore/create "device")
        devices [(points 0 [1.0 2.0]) (points 1 [0.5 -1.0])]]
    (kvstore/init store "w" (ndarray/zeros [1]))
    (kvstore/set-optimizer store (optimizer/sgd {:learning-rate 0.1 :wd 0.0}))
    (dotimes [_ 30]
      (resource-scope/using
       (let [w (kvstore/pull store "w")]
         (kvstore/push store (repeat 2 "w") (mapv #(gradient w %) devices)))))
    (println (format "w = %.3f" (ndarray/to-scalar (kvstore/pull store "w"))))
    (shutdown-agents)))
