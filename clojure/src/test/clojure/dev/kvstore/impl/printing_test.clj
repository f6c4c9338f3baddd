(ns dev.kvstore.impl.printing-test
  (:require [clojure.test :refer [deftest is]]
            [org.apache.clojure-mxnet.context :as context]
            [org.apache.clojure-mxnet.dtype :as dtype]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray]
            [org.apache.clojure-mxnet.shape :as shape]))

(set! *warn-on-reflection* true)

(deftest arrays
  (is (= "#kv/NDArray [f32 [2 3] cpu(0)] (1.0 1.0 1.0 1.0 1.0 1.0)"
         (pr-str (ndarray/ones [2 3]))))
  (is (= "#kv/NDArray [i32 [2] cpu(1)] (3.0 3.0)"
         (pr-str (ndarray/full [2] 3 {:dtype dtype/INT32 :ctx (context/cpu 1)}))))
  (binding [*print-length* 2]
    (is (= "#kv/NDArray [f32 [3] cpu(0)] (0.0 1.0 ...)" (pr-str (ndarray/arange 0 3)))))
  (is (= "#kv/NDArray [f32 [5000] cpu(0)]" (pr-str (ndarray/zeros [5000]))))
  (is (= "#kv/NDArray [closed]" (pr-str (doto (ndarray/ones [2]) ndarray/dispose)))))

(deftest stores
  (let [kv (kvstore/init (kvstore/create) ["b" "a"] [(ndarray/ones [1]) (ndarray/ones [1])])]
    (is (= "#kv/KVStore [local, keys [\"b\" \"a\"]]" (pr-str kv)))
    (kvstore/dispose kv)
    (is (= "#kv/KVStore [closed]" (pr-str kv)))))

(deftest parts
  (is (= "[#kv/Context [cpu(1)] #kv/DType [float32] #kv/Shape [2 3]]"
         (pr-str [(context/cpu 1) dtype/FLOAT32 (shape/->shape [2 3])]))))
