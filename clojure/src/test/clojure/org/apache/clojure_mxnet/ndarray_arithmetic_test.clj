(ns org.apache.clojure-mxnet.ndarray-arithmetic-test
  "Tests of arithmetic, comparisons, functions, reductions and products."
  (:require [clojure.test :refer [are deftest is testing]]
            [dev.kvstore.failures :refer [code failure]]
            [org.apache.clojure-mxnet.dtype :as dtype]
            [org.apache.clojure-mxnet.ndarray :as ndarray]))

(set! *warn-on-reflection* true)

(defn- f32 [& numbers] (ndarray/array numbers [(count numbers)]))
(defn- i32 [& numbers] (ndarray/array numbers [(count numbers)] {:dtype dtype/INT32}))

(deftest two-arrays
  (let [a (f32 7 -7 2)
        b (f32 2 3 2)]
    (are [expected f] (= expected (ndarray/->vec (f a b)))
      [9.0 -4.0 4.0] ndarray/+
      [5.0 -10.0 0.0] ndarray/-
      [14.0 -21.0 4.0] ndarray/*
      [3.5 (float -7/3) 1.0] ndarray/div
      [3.5 (float -7/3) 1.0] ndarray//
      [1.0 2.0 0.0] ndarray/%
      [49.0 -343.0 4.0] ndarray/**
      [49.0 -343.0 4.0] ndarray/power
      [7.0 3.0 2.0] ndarray/maximum
      [2.0 -7.0 2.0] ndarray/minimum
      [1.0 0.0 0.0] ndarray/>
      [1.0 0.0 1.0] ndarray/>=
      [0.0 1.0 0.0] ndarray/<
      [0.0 1.0 1.0] ndarray/<=
      [0.0 0.0 1.0] ndarray/equal
      [1.0 1.0 0.0] ndarray/not-equal)
    (is (= [7.0 -7.0 2.0] (ndarray/->vec a)) "the operands stay")))

(deftest an-array-and-a-number
  (let [a (f32 3 5)]
    (are [expected result] (= expected (ndarray/->vec result))
      [4.0 6.0] (ndarray/+ a 1)
      [2.5 4.5] (ndarray/- a 1/2)
      [-2.0 -4.0] (ndarray/- 1 a)
      [6.0 10.0] (ndarray/* 2.0 a)
      [1.5 2.5] (ndarray// a 2)
      [5.0 3.0] (ndarray/div 15 a)
      [8.0 32.0] (ndarray/power 2 a)
      [9.0 25.0] (ndarray/power a 2)
      [27.0 3125.0] (ndarray/** a a)
      [4.0 5.0] (ndarray/maximum 4 a)
      [3.0 4.0] (ndarray/minimum a 4)
      [0.0 1.0] (ndarray/> a 3)
      [1.0 0.0] (ndarray/> 4 a))
    (is (= [(float 0.1)] (ndarray/->vec (ndarray/* (f32 1) 0.1))))))

(deftest in-place
  (are [expected f] (let [a (f32 7 -7)]
                      (and (identical? a (f a 2))
                           (= expected (ndarray/->vec a))))
    [9.0 -5.0] ndarray/+=
    [5.0 -9.0] ndarray/-=
    [14.0 -14.0] ndarray/*=
    [3.5 -3.5] ndarray/div=
    [1.0 1.0] ndarray/%=
    [49.0 49.0] ndarray/**=)
  (let [a (f32 1 2)]
    (is (= [2.0 4.0] (ndarray/->vec (ndarray/+= a a))))
    (is (= [2.5 5.5] (ndarray/->vec (ndarray/+= a (f32 0.5 1.5)))))))

(deftest integers-stay-integers
  (are [expected result] (= [dtype/INT32 expected]
                            [(ndarray/dtype result) (ndarray/->int-vec result)])
    [3 5] (ndarray/+ (i32 1 3) 2.5)
    [2 3] (ndarray/div (i32 5 7) 2.5)
    [1 -5] (ndarray/% (i32 -5 7) (i32 3 -6))
    [1 0] (ndarray/> (i32 3 1) 2))
  (is (= [9007199254740993]
         (ndarray/->long-vec
           (ndarray/+ (ndarray/full [1] 9007199254740992 {:dtype dtype/INT64}) 1))))
  (is (= [44] (ndarray/->int-vec (ndarray/* (ndarray/full [1] 100 {:dtype dtype/UINT8}) 3))))
  (testing "division by zero"
    (is (= :invalid-argument (code (ndarray/div (i32 1) 0))))
    (is (= :invalid-argument (code (ndarray/div (i32 1) (i32 0)))))
    (is (= :invalid-argument (code (ndarray/div= (i32 1) 0))))
    (is (= [0] (ndarray/->int-vec (ndarray/% (i32 5) 0))))
    (is (= [##Inf ##-Inf] (ndarray/->vec (ndarray/div (f32 1 -1) 0))))))

(deftest mismatching-operands
  (let [a (ndarray/ones [2 3])]
    (is (= :spec-mismatch (code (ndarray/+ a (ndarray/ones [1 3])))))
    (is (= :spec-mismatch (code (ndarray/+= a (ndarray/ones [3 2])))))
    (is (= :spec-mismatch (code (ndarray/+ a (ndarray/ones [2 3] {:dtype dtype/FLOAT64})))))
    (is (= ["Invalid operand" "x"] ((juxt :start :kvstore/value) (failure (ndarray/+ a "x")))))
    (is (= "Invalid operand" (:start (failure (ndarray/+ nil a)))))
    (is (= "Invalid operand" (:start (failure (ndarray/+ 1 2)))))
    (is (= "Invalid operand" (:start (failure (ndarray/+= a nil)))))
    (testing "comparisons broadcast dimensions of size 1"
      (is (= [[1.0 0.0 0.0] [1.0 0.0 0.0]]
             (ndarray/->nd-vec (ndarray/> a (ndarray/array [0 1 2] [1 3]))))))))

(deftest functions-of-one-array
  (are [expected f numbers] (= expected (ndarray/->vec (f (apply f32 numbers))))
    [1.0 2.0] ndarray/abs [-1 2]
    [1.0 -2.0] ndarray/negative [-1 2]
    [-1.0 0.0 1.0] ndarray/sign [-3 0 2]
    [9.0 4.0] ndarray/square [-3 2]
    [3.0 2.0] ndarray/sqrt [9 4]
    [0.5 1.0] ndarray/rsqrt [4 1]
    [1.0] ndarray/exp [0]
    [0.0] ndarray/log [1]
    [0.0] ndarray/sin [0]
    [1.0] ndarray/cos [0]
    [0.0] ndarray/tanh [0]
    [0.5] ndarray/sigmoid [0]
    [0.0 2.0] ndarray/relu [-1 2]
    [2.0 3.0 4.0 -1.0] ndarray/ceil [1.5 2.1 3.7 -1.5]
    [1.0 2.0 3.0 -2.0] ndarray/floor [1.5 2.1 3.7 -1.5]
    [2.0 2.0 4.0 -2.0] ndarray/round [1.5 2.1 3.7 -1.5]
    [0.0 1.0 2.0 -1.0 -2.0] ndarray/rint [0.5 1.5 2.5 -0.5 -1.5]
    [1.0 2.0 3.0 -1.0] ndarray/fix [1.5 2.1 3.7 -1.5])
  (is (Float/isNaN (first (ndarray/->vec (ndarray/sqrt (f32 -1))))))
  (is (= [0.0 0.5 1.0] (ndarray/->vec (ndarray/clip (f32 -1 0.5 2) 0 1))))
  (is (= "Invalid limits" (:start (failure (ndarray/clip (f32 1) 0 nil))))))

(deftest reduced-arrays
  (let [a (ndarray/->ndarray [[1 -2] [4 5]])]
    (are [expected f] (= [[1] [expected]] ((juxt ndarray/shape-vec ndarray/->vec) (f a)))
      8.0 ndarray/sum
      2.0 ndarray/mean
      5.0 ndarray/max
      -2.0 ndarray/min)
    (is (= 5.0 (ndarray/to-scalar (ndarray/norm (f32 3 4)))))
    (is (= [1.0 0.0] (ndarray/->vec (ndarray/argmax-channel (ndarray/->ndarray [[1 2] [4 3]])))))))

(deftest products
  (is (= [[19.0 22.0] [43.0 50.0]]
         (ndarray/->nd-vec (ndarray/dot (ndarray/->ndarray [[1 2] [3 4]])
                                        (ndarray/->ndarray [[5 6] [7 8]])))))
  (let [inner (ndarray/dot (f32 1 2) (f32 3 4))]
    (is (= [[1] [11.0]] [(ndarray/shape-vec inner) (ndarray/->vec inner)])))
  (is (= [[1.0 3.0 5.0] [2.0 4.0 6.0]]
         (ndarray/->nd-vec (ndarray/t (ndarray/->ndarray [[1 2] [3 4] [5 6]])))))
  (is (some? (code (ndarray/dot (ndarray/ones [2 3]) (ndarray/ones [2 3])))))
  (is (= :invalid-argument (code (ndarray/t (ndarray/ones [3]))))))
