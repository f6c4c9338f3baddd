(ns org.apache.clojure-mxnet.ndarray-recorded-test
  "Tests of operations and files against results recorded from MXNet."
  (:require [clojure.java.io :as io]
            [clojure.test :refer [deftest is]]
            [dev.kvstore.failures :refer [code]]
            [dev.kvstore.recorded :refer [->number close? recorded]]
            [org.apache.clojure-mxnet.ndarray :as ndarray])
  (:import (java.io File)
           (java.util Base64)))

(set! *warn-on-reflection* true)

(defn- ->array
  [{:strs [shape dtype data]}]
  (ndarray/array (mapv ->number data) shape {:dtype dtype}))

(defn- facts
  "Returns the dtype, shape and numbers of an array."
  [a]
  [(str (ndarray/dtype a)) (ndarray/shape-vec a) (ndarray/->double-vec a)])

(def ^:private inexact
  "Operations whose last bit may differ from MXNet's."
  #{"exp" "log" "sin" "cos" "rsqrt" "**" "sum" "mean" "norm" "dot"})

(defn- result
  [{:strs [clj a b scalar dtype args]}]
  (let [f (deref (ns-resolve 'org.apache.clojure-mxnet.ndarray (symbol clj)))
        operands (cond
                   b [(->array b)]
                   scalar [scalar]
                   dtype [dtype]
                   :else args)]
    (apply f (->array a) operands)))

(deftest operations-have-their-recorded-results
  (let [cases (get @recorded "ndarray_ops")]
    (is (<= 376 (count cases)))
    (doseq [{:strs [clj a expect] :as recorded-case} cases
            :let [{:strs [shape dtype data]} expect
                  [found-dtype found-shape numbers] (facts (result recorded-case))
                  tolerance (cond
                              (not (inexact clj)) 0.0
                              (= "float16" (get a "dtype")) 1e-3
                              :else 1e-6)]]
      (is (and (= [dtype shape] [found-dtype found-shape])
               (every? true? (map (partial close? tolerance) data numbers)))
          (str clj " of " (get a "dtype") ": expected " data ", found " numbers)))))

(defn- temporary-file
  ^File []
  (doto (File/createTempFile "recorded" ".params")
    .deleteOnExit))

(defn- decoded
  ^bytes [recorded-file]
  (.decode (Base64/getDecoder) ^String (get recorded-file "base64")))

(defn- expected-facts
  [[dtype shape _ nested]]
  [dtype shape (mapv double (flatten nested))])

(deftest files-have-their-recorded-arrays
  (let [files (get @recorded "ndarray_files")]
    (is (<= 8 (count files)))
    (doseq [{:strs [name expect] :as recorded-file} files
            :let [file (temporary-file)]]
      (io/copy (decoded recorded-file) file)
      (if (map? expect)
        (let [loaded (ndarray/load file)]
          (is (= (set (keys expect)) (set (keys loaded))) name)
          (doseq [[k array] loaded]
            (is (= (expected-facts (get expect k)) (facts array)) (str name " " k))))
        (is (= (map expected-facts expect) (map facts (ndarray/load2-array file))) name)))))

(deftest a-file-without-names-cannot-be-loaded-as-a-map
  (let [file (temporary-file)
        unnamed (first (filter #(= "unnamed_all_dtypes" (get % "name"))
                               (get @recorded "ndarray_files")))]
    (io/copy (decoded unnamed) file)
    (is (= :invalid-argument (code (ndarray/load file))))
    (is (= [1.0 2.0 3.0] (ndarray/->vec (ndarray/load-from-file file))))))

(deftest a-damaged-file-is-rejected
  (let [file (temporary-file)]
    (doseq [recorded-file (get @recorded "ndarray_files")
            :let [bytes (decoded recorded-file)]
            length (range 0 (alength bytes) 3)]
      (io/copy (java.util.Arrays/copyOf bytes (int length)) file)
      (is (= :corrupt (code (ndarray/load2-array file)))))))
