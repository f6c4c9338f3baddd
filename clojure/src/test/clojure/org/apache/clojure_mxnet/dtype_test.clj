(ns org.apache.clojure-mxnet.dtype-test
  (:require [clojure.test :refer [deftest is]]
            [dev.kvstore.failures :refer [code failure]]
            [org.apache.clojure-mxnet.base :as base]
            [org.apache.clojure-mxnet.dtype :as dtype]
            [org.apache.clojure-mxnet.ndarray :as ndarray])
  (:import (dev.kvstore DType)))

(set! *warn-on-reflection* true)

(deftest every-dtype-has-a-var
  (is (= (set (DType/values))
         (set (map deref (vals (ns-publics 'org.apache.clojure-mxnet.dtype))))))
  (doseq [[sym v] (ns-publics 'org.apache.clojure-mxnet.dtype)]
    (is (= (name sym) (.name ^DType @v)))))

(deftest float32-is-the-default
  (is (= dtype/FLOAT32 base/MX_REAL_TYPE (ndarray/dtype (ndarray/ones [1])))))

(deftest arrays-of-every-dtype-can-be-created
  (doseq [^DType dtype (DType/values)
          :let [a (ndarray/* (ndarray/ones [2] {:dtype dtype}) 2)]]
    (is (= dtype (ndarray/dtype a)))
    (is (= (* 2 (.numBytes dtype)) (count (ndarray/->raw a))))
    (is (= [2.0 2.0] (ndarray/->vec a)))
    (is (= [2 2] (ndarray/->int-vec a)))))

(deftest a-dtype-can-be-given-by-name
  (is (= dtype/FLOAT64 (ndarray/dtype (ndarray/ones [1] {:dtype :float64}))))
  (is (= dtype/BFLOAT16 (ndarray/dtype (ndarray/as-type (ndarray/ones [1]) "bfloat16"))))
  (is (= :invalid-argument (code (ndarray/ones [1] {:dtype "float31"}))))
  (is (= "Invalid dtype" (:start (failure (ndarray/ones [1] {:dtype 32}))))))
