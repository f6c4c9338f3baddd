(ns org.apache.clojure-mxnet.context-test
  (:require [clojure.test :refer [deftest is]]
            [dev.kvstore.failures :refer [code failure]]
            [org.apache.clojure-mxnet.context :as context]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray]))

(set! *warn-on-reflection* true)

(deftest contexts-are-values
  (is (= (context/cpu) (context/cpu 0) (context/cpu-context) (context/default-context)))
  (is (= (context/gpu) (context/gpu 0)))
  (is (not= (context/cpu 1) (context/cpu 0)))
  (is (not= (context/cpu 1) (context/gpu 1)))
  (is (= 1 (count (set [(context/cpu 2) (context/cpu 2)])))))

(deftest contexts-have-a-type-and-a-number
  (is (= ["cpu" 3] ((juxt context/device-type context/device-id) (context/cpu 3))))
  (is (= ["gpu" 1] ((juxt context/device-type context/device-id) (context/gpu 1))))
  (is (= ["cpu(0)" "gpu(2)"] (map str [(context/cpu) (context/gpu 2)]))))

(deftest invalid-device-numbers
  (doseq [id [-1 1.5 "0" nil 2147483648]]
    (is (= ["Invalid device id" id] ((juxt :start :kvstore/value) (failure (context/cpu id)))))
    (is (= :invalid-argument (code (context/gpu id))))))

(deftest ^:host a-device-that-does-not-exist
  (let [ctx (context/gpu 99)]
    (is (= :device-unavailable (code (ndarray/ones [2] {:ctx ctx}))))
    (is (= :device-unavailable (code (ndarray/as-in-context (ndarray/ones [2]) ctx))))
    (is (= :device-unavailable (code (context/gpu-memory-info 99))))
    (is (= "Invalid device id" (:start (failure (context/gpu-memory-info -1)))))))

(deftest gpus-are-counted
  (is (nat-int? (context/num-gpus)))
  (is (= (context/num-gpus) (dec (count (:devices (kvstore/stats)))))))
