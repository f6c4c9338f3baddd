(ns org.apache.clojure-mxnet.dtype-test
  (:require [clojure.test :refer [deftest is]]
            [dev.kvstore.failures :refer [code failure]]
            [org.apache.clojure-mxnet.base :as base]
            [org.apache.clojure-mxnet.dtype :as dtype]
            [org.apache.clojure-mxnet.ndarray :as ndarray]))

(set! *warn-on-reflection* true)

(def ^:private sizes
  {dtype/UINT8 1 dtype/INT8 1 dtype/INT32 4 dtype/INT64 8
   dtype/FLOAT16 2 dtype/BFLOAT16 2 dtype/FLOAT32 4 dtype/FLOAT64 8})

(deftest float32-is-the-default
  (is (= dtype/FLOAT32 base/MX_REAL_TYPE (ndarray/dtype (ndarray/ones [1])))))

(deftest every-dtype-makes-arrays
  (doseq [[dtype size] sizes
          :let [a (ndarray/* (ndarray/ones [2] {:dtype dtype}) 2)]]
    (is (= dtype (ndarray/dtype a)))
    (is (= (* 2 size) (count (ndarray/->raw a))))
    (is (= [2.0 2.0] (ndarray/->vec a)))
    (is (= [2 2] (ndarray/->int-vec a)))))

(deftest a-dtype-can-be-named
  (is (= dtype/FLOAT64 (ndarray/dtype (ndarray/ones [1] {:dtype :float64}))))
  (is (= dtype/BFLOAT16 (ndarray/dtype (ndarray/as-type (ndarray/ones [1]) "bfloat16"))))
  (is (= :invalid-argument (code (ndarray/ones [1] {:dtype "float31"}))))
  (is (= "Invalid dtype" (:start (failure (ndarray/ones [1] {:dtype 32}))))))
