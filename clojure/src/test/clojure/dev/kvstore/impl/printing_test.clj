(ns dev.kvstore.impl.printing-test
  (:require [clojure.string :as string]
            [clojure.test :refer [deftest is]]
            [org.apache.clojure-mxnet.context :as context]
            [org.apache.clojure-mxnet.dtype :as dtype]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.lr-scheduler :as lr-scheduler]
            [org.apache.clojure-mxnet.ndarray :as ndarray]
            [org.apache.clojure-mxnet.optimizer :as optimizer]
            [org.apache.clojure-mxnet.shape :as shape]))

(set! *warn-on-reflection* true)

(deftest arrays
  (is (= "#kv/NDArray [f32 [2 3] cpu(0)] (1.0 1.0 1.0 1.0 1.0 1.0)"
         (pr-str (ndarray/ones [2 3]))))
  (is (= "#kv/NDArray [i32 [2] cpu(1)] (3 3)"
         (pr-str (ndarray/full [2] 3 {:dtype dtype/INT32 :ctx (context/cpu 1)}))))
  (doseq [[dtype x text] [[:int32 16777217 "i32 [1] cpu(0)] (16777217)"]
                          [:int64 9007199254740993 "i64 [1] cpu(0)] (9007199254740993)"]
                          [:uint8 255 "u8 [1] cpu(0)] (255)"]
                          [:int8 -1 "i8 [1] cpu(0)] (-1)"]
                          [:float64 0.1 "f64 [1] cpu(0)] (0.1)"]
                          [:float32 0.1 "f32 [1] cpu(0)] (0.1)"]
                          [:float16 0.5 "f16 [1] cpu(0)] (0.5)"]
                          [:bfloat16 0.5 "bf16 [1] cpu(0)] (0.5)"]]]
    (is (= (str "#kv/NDArray [" text) (pr-str (ndarray/full [1] x {:dtype dtype})))))
  (binding [*print-length* 2]
    (is (= "#kv/NDArray [f32 [3] cpu(0)] (0.0 1.0 ...)" (pr-str (ndarray/arange 0 3)))))
  (is (= "#kv/NDArray [f32 [5000] cpu(0)]" (pr-str (ndarray/zeros [5000]))))
  (is (= "#kv/NDArray [closed]" (pr-str (doto (ndarray/ones [2]) ndarray/dispose)))))

(deftest stores
  (let [kv (kvstore/init (kvstore/create) ["b" "a"] [(ndarray/ones [1]) (ndarray/ones [1])])]
    (is (= "#kv/KVStore [local, keys [\"b\" \"a\"]]" (pr-str kv)))
    (kvstore/dispose kv)
    (is (= "#kv/KVStore [closed]" (pr-str kv)))))

(deftest contexts-dtypes-and-shapes
  (is (= "[#kv/Context [cpu(1)] #kv/DType [float32] #kv/Shape [2 3]]"
         (pr-str [(context/cpu 1) dtype/FLOAT32 (shape/->shape [2 3])]))))

(deftest optimizers
  (is (= (str "#kv/Optimizer [dcasgd {:learning-rate 0.01, :wd 0.0, :rescale-grad 1.0, "
              ":clip-gradient 0.0, :begin-num-update 0.0, :staleness-power 0.0, :momentum 0.0, "
              ":lambda 0.5}]")
         (pr-str (optimizer/dcasgd {:lambda 0.5}))))
  (is (string/includes? (pr-str (optimizer/sgd
                                  {:lr-scheduler (lr-scheduler/factor-scheduler 2 0.5)}))
                        ", :lr-scheduler #kv/LrScheduler [factor[2, 0.5, 1.0E-8]]}]")))

(deftest printing-works-with-any-bindings
  (let [a (ndarray/ones [2])
        opt (optimizer/adam)
        things [a (doto (ndarray/ones [2]) ndarray/dispose)
                (kvstore/init (kvstore/create) ["b" "a"] [a a])
                (doto (kvstore/create) kvstore/dispose)
                opt (optimizer/create-state opt 0 a) (doto (optimizer/create-state opt 0 a) .close)
                (lr-scheduler/factor-scheduler 2 0.5)
                (context/cpu 1) dtype/FLOAT32 (shape/->shape [2 3])]]
    (doseq [thing things
            :let [text (pr-str thing)]]
      (is (string/starts-with? text "#kv/"))
      (is (= text
             (print-str thing)
             (binding [*print-dup* true] (pr-str thing))
             (binding [*print-level* 0] (pr-str thing))
             (binding [*print-length* 100] (pr-str thing))))
      (is (= (str "[" text "]") (binding [*print-dup* true] (pr-str [thing]))))
      (doseq [n [-1 0]]
        (is (string? (binding [*print-length* n] (pr-str thing))))))))
