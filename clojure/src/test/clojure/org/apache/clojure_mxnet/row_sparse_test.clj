(ns org.apache.clojure-mxnet.row-sparse-test
  "Tests of row-sparse values: creating, pushing, pulling and printing them."
  (:require [clojure.datafy :refer [datafy]]
            [clojure.test :refer [deftest is testing]]
            [dev.kvstore.failures :refer [code failure]]
            [dev.kvstore.recorded :refer [recorded]]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray]
            [org.apache.clojure-mxnet.optimizer :as optimizer]))

(set! *warn-on-reflection* true)

(defn- rows
  [x & indices]
  (ndarray/row-sparse-array (ndarray/full [(count indices) 2] x) indices [4 2]))

(defn- values
  [kv k]
  (ndarray/->nd-vec (kvstore/pull kv k)))

(deftest a-value-consists-of-its-rows
  (let [value (ndarray/row-sparse-array (ndarray/array [1 2 3 4] [2 2]) (long-array [1 3]) [4 2])]
    (is (= [1 3] (ndarray/row-indices value)))
    (is (= [[1.0 2.0] [3.0 4.0]] (ndarray/->nd-vec (ndarray/row-data value))))
    (is (= [[0.0 0.0] [1.0 2.0] [0.0 0.0] [3.0 4.0]] (ndarray/->nd-vec (ndarray/to-dense value))))
    (is (= "#kv/RowSparse [2 rows of f32 [4 2] cpu(0)]" (pr-str value)))
    (is (= {:shape [4 2] :dtype :float32 :context "cpu(0)" :num-rows 2 :indices [1 3]}
           (datafy value)))
    (.close value)
    (is (= "#kv/RowSparse [closed]" (pr-str value)))
    (is (= {:closed true} (datafy value)))
    (is (= :closed (code (ndarray/row-indices value))))))

(deftest ids-in-any-order
  (let [value (ndarray/row-sparse-from-ids (ndarray/array [1 2 4] [3 1]) [7 2 7] [9 1])]
    (is (= [2 7] (ndarray/row-indices value)))
    (is (= [2.0 5.0] (ndarray/->vec (ndarray/row-data value))))))

(deftest pushes-and-pulls
  (let [kv (kvstore/init (kvstore/create) {"a" (ndarray/ones [4 2]) "b" (rows 1 0)})]
    (is (= [[1.0 1.0] [0.0 0.0] [0.0 0.0] [0.0 0.0]] (values kv "b")))
    (kvstore/push kv ["a" "b"] [[(rows 1 0 2) (rows 2 2)] (ndarray/ones [4 2])])
    (is (= [[1.0 1.0] [0.0 0.0] [3.0 3.0] [0.0 0.0]] (values kv "a")))
    (is (= (repeat 4 [1.0 1.0]) (values kv "b")))
    (let [pulled (kvstore/row-sparse-pull kv :a [2 1 2])]
      (is (= [1 2] (ndarray/row-indices pulled)))
      (is (= [[0.0 0.0] [3.0 3.0]] (ndarray/->nd-vec (ndarray/row-data pulled)))))
    (is (= [[0] [1 3]]
           (map ndarray/row-indices
                (kvstore/row-sparse-pull kv ["b" "a"] [[0] (long-array [3 1])]))))
    (is (= [] (ndarray/row-indices (kvstore/row-sparse-pull kv "a" []))))
    (kvstore/pushpull kv "a" (rows 5 1) (ndarray/zeros [4 2]))
    (is (= [0.0 0.0 5.0 5.0 0.0 0.0 0.0 0.0] (ndarray/->vec (kvstore/pull kv "a"))))))

(deftest lazy-updates
  (doseq [[lazy other] {1 1.0 0 0.75}]
    (let [kv (doto (kvstore/init (kvstore/create) "w" (ndarray/ones [4 2]))
               (kvstore/set-optimizer (optimizer/sgd {:learning-rate 0.5 :wd 0.5
                                                      :lazy-update lazy}))
               (kvstore/push "w" (rows 1 1)))]
      (is (= [[other other] [0.25 0.25] [other other] [other other]] (values kv "w")))
      (is (= (double lazy) (:lazy-update (kvstore/hyper-parameters kv)))))))

(deftest recorded-pulls
  (doseq [{:strs [stored row_ids indices dense]} (get @recorded "row_sparse_pull")]
    (testing row_ids
      (let [kv (kvstore/init (kvstore/create) "w" (ndarray/->ndarray stored))
            pulled (kvstore/row-sparse-pull kv "w" row_ids)]
        (is (= indices (ndarray/row-indices pulled)))
        (is (= dense (ndarray/->nd-vec (ndarray/to-dense pulled))))))))

(deftest invalid-arguments
  (let [kv (kvstore/init (kvstore/create) "w" (ndarray/ones [4 2]))
        one (ndarray/ones [1 2])]
    (is (= "Invalid indices" (:start (failure (ndarray/row-sparse-array one [1.5] [4 2])))))
    (is (= "Invalid ids" (:start (failure (ndarray/row-sparse-from-ids one nil [4 2])))))
    (is (= :invalid-argument (code (ndarray/row-sparse-array one [4] [4 2]))))
    (is (= :spec-mismatch (code (ndarray/row-sparse-array one [1 2] [4 2]))))
    (is (= "Invalid row-ids" (:start (failure (kvstore/row-sparse-pull kv "w" 1)))))
    (is (= "Invalid row-ids" (:start (failure (kvstore/row-sparse-pull kv ["w"] 1)))))
    (is (= "Invalid keys" (:start (failure (kvstore/row-sparse-pull kv 1 [1])))))
    (is (= :invalid-argument (code (kvstore/row-sparse-pull kv "w" [4]))))
    (is (= :key-not-found (code (kvstore/row-sparse-pull kv "v" [0]))))
    (is (= :length-mismatch (code (kvstore/row-sparse-pull kv ["w"] [[0] [1]]))))
    (is (= "Invalid outs" (:start (failure (kvstore/pull kv "w" (rows 1 1))))))
    (is (= "Invalid outs" (:start (failure (kvstore/pushpull kv {"w" (rows 1 1)})))))))
