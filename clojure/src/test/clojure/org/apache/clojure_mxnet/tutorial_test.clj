(ns org.apache.clojure-mxnet.tutorial-test
  "Tests of the values on the pages of MXNet's documentation."
  (:require [clojure.test :refer [deftest is testing]]
            [org.apache.clojure-mxnet.context :as context]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray]))

(set! *warn-on-reflection* true)

(def ^:private shape [2 3])
(def ^:private ks ["5" "7" "9"])

(defn- ones [] (ndarray/ones shape))
(defn- all [value] (vec (repeat 6 value)))

(deftest follows-the-clojure-page
  (let [kv (kvstore/create "local")
        a (ndarray/zeros shape)]
    (testing "initialization"
      (kvstore/init kv ["3"] [(ndarray/* (ones) 2)])
      (kvstore/pull kv ["3"] [a])
      (is (= (all 2.0) (ndarray/->vec a))))
    (testing "push"
      (kvstore/push kv ["3"] [(ndarray/* (ones) 8)])
      (kvstore/pull kv ["3"] [a])
      (is (= (all 8.0) (ndarray/->vec a))))
    (testing "aggregation over devices"
      (kvstore/push kv ["3" "3" "3"] (mapv #(ndarray/ones shape {:ctx (context/cpu %)}) (range 3)))
      (kvstore/pull kv "3" a)
      (is (= (all 3.0) (ndarray/->vec a))))
    (testing "pull into several devices"
      (let [b (mapv #(ndarray/ones shape {:ctx (context/cpu %)}) (range 2))]
        (kvstore/pull kv ["3" "3"] b)
        (is (= [(all 3.0) (all 3.0)] (map ndarray/->vec b)))))
    (testing "lists of pairs"
      (let [b (vec (repeatedly 3 #(ndarray/zeros shape)))]
        (kvstore/init kv ks [(ones) (ones) (ones)])
        (kvstore/push kv ks [(ones) (ones) (ones)])
        (kvstore/pull kv ks b)
        (is (= (repeat 3 (all 1.0)) (map ndarray/->vec b)))))))

(deftest follows-the-updater-of-the-python-page
  (let [kv (kvstore/create "local")
        updated (atom [])
        outs (vec (repeatedly 3 #(ndarray/zeros shape)))]
    (kvstore/init kv ks (repeatedly 3 ones))
    (kvstore/set-updater kv (fn [k input stored]
                              (swap! updated conj k)
                              (ndarray/+= stored (ndarray/* input 2))))
    (kvstore/push kv ks (repeatedly 3 ones))
    (kvstore/pull kv ks outs)
    (is (= (repeat 3 (all 3.0)) (map ndarray/->vec outs)))
    (is (= ks @updated))
    (let [four (mapv (fn [i] (ndarray/ones shape {:ctx (context/cpu i)})) (range 4))
          per-key (vec (repeat 3 four))]
      (kvstore/push kv ks per-key)
      (kvstore/pull kv ks per-key)
      (is (= (repeat 4 (all 11.0)) (map ndarray/->vec four)))
      (is (= (into ks ks) @updated)))))
