(ns org.apache.clojure-mxnet.ndarray-files-test
  "Tests of array files."
  (:require [clojure.string :as string]
            [clojure.test :refer [deftest is testing]]
            [dev.kvstore.failures :refer [code failure]]
            [org.apache.clojure-mxnet.dtype :as dtype]
            [org.apache.clojure-mxnet.ndarray :as ndarray])
  (:import (java.io File)))

(set! *warn-on-reflection* true)

(defn- temporary-file
  ^File []
  (doto (File/createTempFile "arrays" ".params")
    .deleteOnExit))

(deftest a-map-of-arrays-is-saved-and-loaded
  (let [file (temporary-file)
        w (ndarray/array [1 2 3 4 5 6] [2 3])
        b (ndarray/array [1 -2] [2] {:dtype dtype/INT8})]
    (doseq [fname [file (str file) (.toPath file)]]
      (is (nil? (ndarray/save fname {"w" w :b b 'ü (ndarray/zeros [0])})))
      (let [loaded (ndarray/load fname)]
        (is (= #{"w" "b" "ü"} (set (keys loaded))))
        (is (ndarray/= w (get loaded "w")))
        (is (= [dtype/INT8 [1 -2]] ((juxt ndarray/dtype ndarray/->int-vec) (get loaded "b"))))
        (is (= [0] (ndarray/shape-vec (get loaded "ü"))))
        (is (= (keys loaded) (keys (ndarray/load2-map fname))))))
    (testing "later changes do not affect the file"
      (ndarray/set w 0)
      (is (= [1.0 2.0 3.0 4.0 5.0 6.0] (ndarray/->vec (get (ndarray/load file) "w")))))))

(deftest one-array-is-saved-and-loaded
  (let [file (temporary-file)]
    (is (nil? (ndarray/save-to-file file (ndarray/full [2] 2.5))))
    (is (= [2.5 2.5] (ndarray/->vec (ndarray/load-from-file file))))
    (is (= ["default"] (keys (ndarray/load file))))
    (ndarray/save file {})
    (is (= {} (ndarray/load file)))
    (is (= :invalid-argument (code (ndarray/load-from-file file))))))

(deftest arrays-are-serialized-and-deserialized
  (doseq [dtype [dtype/UINT8 dtype/INT8 dtype/INT32 dtype/INT64
                 dtype/FLOAT16 dtype/FLOAT32 dtype/FLOAT64]
          :let [a (ndarray/array [1 2 3] [3 1] {:dtype dtype})
                copy (ndarray/deserialize (ndarray/serialize a))]]
    (is (= dtype (ndarray/dtype copy)))
    (is (ndarray/= a copy)))
  (is (= :corrupt (code (ndarray/deserialize (byte-array 7 (repeat (byte 1)))))))
  (is (= "Invalid bytes" (:start (failure (ndarray/deserialize "abc"))))))

(deftest invalid-arguments
  (let [a (ndarray/ones [2])
        file (temporary-file)]
    (doseq [f [#(ndarray/save 5 {"a" a}) #(ndarray/load nil) #(ndarray/save-to-file :x a)]]
      (is (= "Invalid filename" (:start (failure (f))))))
    (is (= "Invalid keys" (:start (failure (ndarray/save file {5 a})))))
    (is (= "Invalid values" (:start (failure (ndarray/save file {"a" 5})))))
    (is (= "Invalid values" (:start (failure (ndarray/save file [a])))))
    (testing "two keys with the same name"
      (let [failed (failure (ndarray/save file (array-map :a/b a :c/d a :c/b a)))]
        (is (= ["Invalid keys: two with the name `b`" :invalid-argument [:a/b :c/b]]
               ((juxt :message :kvstore/code :kvstore/value) failed)))
        (is (zero? (.length file)) "nothing was written")))
    (testing "an invalid file name"
      (doseq [f [#(ndarray/save "a\u0000b" {"a" a})
                 #(ndarray/load "a\u0000b")
                 #(ndarray/load2-array (File. "a\u0000b"))]
              :let [failed (failure (f))]]
        (is (= :invalid-argument (:kvstore/code failed)))
        (is (string/starts-with? (:message failed) "Invalid filename: "))))
    (is (= :io (code (ndarray/load "/nowhere/at all"))))
    (is (= :io (code (ndarray/save "/nowhere/at all" {"a" a}))))
    (testing "a closed array"
      (ndarray/save-to-file file a)
      (ndarray/dispose a)
      (is (= :closed (code (ndarray/save-to-file file a))))
      (is (= :closed (code (ndarray/serialize a))))
      (is (= [1.0 1.0] (ndarray/->vec (ndarray/load-from-file file))) "the file is as it was"))))
