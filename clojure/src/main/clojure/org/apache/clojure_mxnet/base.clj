(ns org.apache.clojure-mxnet.base
  "Constants for all namespaces.

    MX_REAL_TYPE   the default dtype of new arrays"
  (:require [org.apache.clojure-mxnet.dtype :as dtype]))

(set! *warn-on-reflection* true)

(def MX_REAL_TYPE
  "The default dtype of new arrays: float32.

      (= MX_REAL_TYPE (ndarray/dtype (ndarray/ones [2]))) ;=> true"
  dtype/FLOAT32)
