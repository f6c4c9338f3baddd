(ns org.apache.clojure-mxnet.random-test
  (:require [clojure.test :refer [deftest is]]
            [dev.kvstore.failures :refer [code failure]]
            [org.apache.clojure-mxnet.context :as context]
            [org.apache.clojure-mxnet.dtype :as dtype]
            [org.apache.clojure-mxnet.ndarray :as ndarray]
            [org.apache.clojure-mxnet.random :as random]))

(set! *warn-on-reflection* true)

(deftest the-same-seed-gives-the-same-numbers
  (doseq [make [#(random/uniform -1 1 [7]) #(random/normal 0 2 [7])]
          :let [_ (random/seed 42)
                [a b] [(ndarray/->vec (make)) (ndarray/->vec (make))]
                _ (random/seed 42)
                again (ndarray/->vec (make))
                _ (random/seed 43)
                other (ndarray/->vec (make))]]
    (is (= a again))
    (is (not= a b))
    (is (not= a other))))

(deftest numbers-are-distributed
  (random/seed 1)
  (let [numbers (ndarray/->vec (random/uniform 2 4 [100 100]))]
    (is (every? #(<= 2 % 4) numbers))
    (is (< 2.97 (/ (reduce + numbers) 10000) 3.03)))
  (let [numbers (ndarray/->vec (random/normal 5 2 [100 100]))]
    (is (< 4.9 (/ (reduce + numbers) 10000) 5.1))
    (is (< 3.8 (/ (reduce + (map #(* (- % 5) (- % 5)) numbers)) 10000) 4.2))))

(deftest context-dtype-and-out
  (let [a (random/uniform 0 1 [2] {:ctx (context/cpu 1) :dtype dtype/FLOAT64})
        out (ndarray/zeros [3] {:dtype dtype/FLOAT16})]
    (is (= [(context/cpu 1) dtype/FLOAT64] [(ndarray/context a) (ndarray/dtype a)]))
    (is (= (context/cpu 2) (ndarray/context (random/uniform 0 1 [2] {:context (context/cpu 2)}))))
    (is (= (context/cpu 3) (ndarray/context (random/normal 0 1 [2] {:context (context/cpu 3)}))))
    (is (identical? out (random/normal 0 1 [3] {:out out})))
    (is (not= [0.0 0.0 0.0] (ndarray/->vec out)))
    (is (= :spec-mismatch (code (random/normal 0 1 [4] {:out out}))))))

(deftest invalid-arguments
  (doseq [f [#(random/uniform :a 1 [2]) #(random/uniform 2 1 [2]) #(random/uniform 0 1 [0])
             #(random/uniform 0 1 2) #(random/uniform 0 1 [1.5])]]
    (is (= "Incorrect random uniform parameters" (:start (failure (f))))))
  (doseq [f [#(random/normal 0 0 [2]) #(random/normal 0 "1" [2]) #(random/normal nil 1 [2])]]
    (is (= "Incorrect random normal parameters" (:start (failure (f))))))
  (doseq [n ["x" nil 1.5 1e30 ##NaN 1/2]]
    (is (= "Incorrect seed parameters" (:start (failure (random/seed n))))))
  (is (nil? (random/seed 7.0)))
  (is (= :invalid-argument (code (random/uniform 0 1 [2] {:dtype dtype/INT32}))))
  (doseq [bad [1 false]]
    (is (= "Invalid context" (:start (failure (random/uniform 0 1 [2] {:context bad})))))
    (is (= "Invalid context" (:start (failure (random/uniform 0 1 [2] {:ctx bad}))))))
  (is (= :invalid-argument
         (code (random/uniform 0 1 [2] {:ctx (context/cpu) :context (context/cpu)}))))
  (is (= :invalid-argument (code (random/normal 0 1 [2] {:contxt (context/cpu)}))))
  (is (= "Invalid out" (:start (failure (random/uniform 0 1 [2] {:out [1 2]}))))))
