(ns kvstore.demo.digits
  "1797 handwritten digits of 8 x 8 pixels (UCI Machine Learning Repository; see NOTICE).

    split       digits for training and digits for testing
    batches     arrays of digits, one part of each batch on each device
    pixels, labels, ones-column   the input arrays of a network"
  (:require [clojure.java.io :as io]
            [clojure.string :as string]
            [org.apache.clojure-mxnet.ndarray :as ndarray])
  (:import (java.util ArrayList Collections List Random)
           (java.util.zip GZIPInputStream)))

(set! *warn-on-reflection* true)

(defn- parse
  "Returns the digit in one line of the file: 64 pixels from 0 to 16, then the label."
  [line]
  (let [numbers (mapv parse-long (string/split line #","))]
    {:pixels (pop numbers)
     :label (peek numbers)}))

(defn- all-digits
  []
  (with-open [lines (io/reader (GZIPInputStream. (io/input-stream (io/resource "digits.csv.gz"))))]
    (mapv parse (line-seq lines))))

(defn- shuffled
  "Returns `xs` in a random order that depends only on `seed`."
  [^long seed xs]
  (let [^List order (ArrayList. ^java.util.Collection xs)]
    (Collections/shuffle order (Random. seed))
    (vec order)))

(defn split
  "Returns [training test], four fifths and one fifth of the digits, in a random order that depends
  only on `seed`."
  [seed]
  (let [digits (shuffled seed (all-digits))]
    (split-at (quot (* 4 (count digits)) 5) digits)))

(defn- one-hot
  [label]
  (assoc (vec (repeat 10 0)) label 1))

(defn pixels
  "Returns an array [digits 64] of the pixels of `digits`, from 0 to 1."
  ^dev.kvstore.NDArray [digits ctx]
  (ndarray/->ndarray (for [digit digits] (map #(/ % 16.0) (:pixels digit))) {:ctx ctx}))

(defn labels
  "Returns an array [digits 10] with a 1 at the label of each digit."
  ^dev.kvstore.NDArray [digits ctx]
  (ndarray/->ndarray (map (comp one-hot :label) digits) {:ctx ctx}))

(defn ones-column
  "Returns an array [digits 1] of ones. A matrix product with it repeats a row for each digit."
  ^dev.kvstore.NDArray [digits ctx]
  (ndarray/ones [(count digits) 1] {:ctx ctx}))

(defn batches
  "Returns the `digits` in batches of `batch-size`, each with one part per context of `devices`.

  If there are several workers, each has its own parts: a batch consists of the parts of rank 0,
  then those of rank 1, and so on."
  [digits batch-size devices {:keys [rank num-workers]}]
  (let [num-own (count devices)
        part-size (quot batch-size (* num-own num-workers))]
    (for [batch (partition batch-size digits)]
      (mapv (fn [part ctx]
              {:x (pixels part ctx)
               :y (labels part ctx)
               :ones (ones-column part ctx)})
            (drop (* rank num-own) (partition part-size batch))
            devices))))
