(ns org.apache.clojure-mxnet.shape-test
  (:require [clojure.test :refer [deftest is]]
            [dev.kvstore.failures :refer [code failure]]
            [org.apache.clojure-mxnet.shape :as shape]))

(set! *warn-on-reflection* true)

(deftest shapes-are-values
  (let [s (shape/->shape [1 2 3])]
    (is (= s (shape/->shape '(1 2 3)) (shape/->shape s)))
    (is (not= s (shape/->shape [3 2 1])))
    (is (= (hash s) (hash (shape/->shape [1 2 3]))))
    (is (= "(1,2,3)" (str s)))))

(deftest shapes-have-dimensions
  (let [s (shape/->shape [4 5])]
    (is (= [4 5] (shape/->vec s)))
    (is (= 2 (shape/length s)))
    (is (= 20 (shape/product s)))
    (is (= 0 (shape/length (shape/->shape []))))
    (is (= 1 (shape/product (shape/->shape []))))))

(deftest invalid-shapes
  (doseq [x [nil 3 "ab" [1.5] [nil]]]
    (is (= ["Invalid shape" x] ((juxt :start :kvstore/value) (failure (shape/->shape x))))))
  (is (= :invalid-argument (code (shape/->shape [2 -1])))))
