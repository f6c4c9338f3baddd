(ns org.apache.clojure-mxnet.ndarray-buffers-test
  "Tests of elements in primitive arrays and buffers, of one element per row, and of dependencies."
  (:require [clojure.test :refer [deftest is]]
            [dev.kvstore.failures :refer [code]]
            [org.apache.clojure-mxnet.ndarray :as ndarray])
  (:import (dev.kvstore DType)
           (java.nio ByteBuffer ByteOrder FloatBuffer)))

(set! *warn-on-reflection* true)

(defn- direct
  ^ByteBuffer [num-bytes]
  (.order (ByteBuffer/allocateDirect num-bytes) (ByteOrder/nativeOrder)))

(deftest primitive-arrays-of-every-type-are-read-and-filled
  (doseq [make [float-array double-array int-array long-array byte-array]
          dtype (DType/values)
          :let [source (make [1 2])
                nd (ndarray/array source [2] {:dtype dtype})]]
    (is (= [1.0 2.0] (ndarray/->vec nd)))
    (is (= [1.0 2.0] (ndarray/->vec (ndarray/set (ndarray/zeros [2] {:dtype dtype}) source))))
    (ndarray/*= nd 3)
    (is (identical? source (ndarray/read-into nd source)))
    (is (= [3 6] (mapv long source)))))

(deftest buffers-are-read-and-filled
  (let [nd (ndarray/array [1 2 3] [3])
        floats (.asFloatBuffer (direct 8))
        bytes (direct 12)]
    (ndarray/read-into nd floats 1)
    (is (= [2.0 3.0] [(.get floats 0) (.get floats 1)]))
    (is (= [2.0 3.0] (ndarray/->vec (ndarray/array floats [2]))))
    (is (= [2.0 3.0] (ndarray/->vec (ndarray/set (ndarray/zeros [2] {:dtype :int64}) floats))))
    (ndarray/read-into nd bytes)
    (is (= [1.0 2.0 3.0] (ndarray/->vec (ndarray/array bytes [3]))))
    (is (= [1.0 2.0 3.0] (ndarray/->vec (ndarray/array (ndarray/as-buffer nd) [3]))))
    (is (= :length-mismatch (code (ndarray/array floats [3]))))
    (is (= :invalid-argument (code (ndarray/set nd (ByteBuffer/allocate 12)))))
    (is (= :invalid-argument (code (ndarray/read-into nd (FloatBuffer/allocate 4)))))
    (is (= :invalid-argument (code (ndarray/read-into nd [1.0]))))))

(deftest one-element-of-each-row
  (let [matrix (ndarray/array (range 6) [3 2] {:dtype :int64})
        columns (ndarray/array [1 0 1] [3])]
    (is (= [1 2 5] (ndarray/->long-vec (ndarray/choose-element-0index matrix columns))))
    (is (= (ndarray/dtype matrix) (ndarray/dtype (ndarray/choose-element-0index matrix columns))))
    (is (= [[0.0 1.0] [1.0 0.0] [0.0 1.0]]
           (ndarray/->nd-vec (ndarray/onehot-encode columns matrix))))
    (is (= :invalid-argument
           (code (ndarray/choose-element-0index matrix (ndarray/array [0 2 0] [3])))))
    (is (= :invalid-argument (code (ndarray/onehot-encode (ndarray/array [0 -1 0] [3]) matrix))))
    (is (= :invalid-argument (code (ndarray/onehot-encode columns (ndarray/zeros [3])))))
    (is (= :length-mismatch (code (ndarray/onehot-encode (ndarray/array [0] [1]) matrix))))))

(deftest dependencies-are-found-and-disposed
  (let [[a b c] (repeatedly 3 #(ndarray/ones [2]))
        ab (ndarray/+ a b)
        d (ndarray/+ c ab)
        found (ndarray/dependencies d)]
    (is (= 4 (count found) (ndarray/size found)))
    (is (= (set (map ndarray/handle [a b c ab])) (set (keys found))))
    (is (every? (fn [[handle array]] (= handle (ndarray/handle array))) found))
    (is (= #{c ab} (set (take 2 (vals found)))) "the nearest first")
    (is (identical? d (ndarray/dispose-deps d)))
    (is (= {} (ndarray/dependencies d)))
    (is (= 0 (ndarray/size (ndarray/dependencies d))))
    (is (every? ndarray/is-disposed [a b c]))
    (is (= [3.0 3.0] (ndarray/->vec d)))))

(deftest many-dependencies-keep-their-order
  (let [arrays (vec (reductions (fn [a _] (ndarray/+ a 1)) (ndarray/ones [1]) (range 12)))]
    (is (= (map ndarray/handle (rest (rseq arrays)))
           (keys (ndarray/dependencies (peek arrays)))))))

(deftest dependencies-can-be-kept
  (let [[a b c] (repeatedly 3 #(ndarray/ones [2]))
        kept (ndarray/+ a b)
        d (ndarray/+ c kept)]
    (ndarray/dispose-deps-except d kept)
    (is (= [false false true false] (map ndarray/is-disposed [a b c kept])))
    (ndarray/dispose-deps-except (ndarray/* kept kept) [a kept])
    (is (= [false false false] (map ndarray/is-disposed [a b kept])))
    (is (= :invalid-argument (code (ndarray/dispose-deps-except d [1]))))))
