(ns org.apache.clojure-mxnet.base
  "What the other namespaces agree on.

    MX_REAL_TYPE   the dtype of arrays that are made without one"
  (:require [org.apache.clojure-mxnet.dtype :as dtype]))

(set! *warn-on-reflection* true)

(def MX_REAL_TYPE
  "The dtype of arrays that are made without one: float32.

      (= MX_REAL_TYPE (ndarray/dtype (ndarray/ones [2]))) ;=> true"
  dtype/FLOAT32)
