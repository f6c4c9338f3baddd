(ns example.digits
  "Handwritten digits, and a model that learns to read them: softmax regression with one weight
  matrix."
  (:require [clojure.java.io :as io]
            [clojure.string :as string]
            [org.apache.clojure-mxnet.ndarray :as ndarray])
  (:import (java.util.zip GZIPInputStream)))

(set! *warn-on-reflection* true)

(def batch-size 32)

(defn- parse
  "Returns the digit in one line of the file: 64 pixels from 0 to 16, then the label."
  [line]
  (let [numbers (mapv parse-long (string/split line #","))]
    {:pixels (mapv #(/ % 16.0) (pop numbers))
     :label (peek numbers)}))

(defn- batch
  [digits]
  {:x (ndarray/->ndarray (map :pixels digits))
   :y (ndarray/->ndarray (for [{:keys [label]} digits]
                           (assoc (vec (repeat 10 0)) label 1)))})

(defn batches
  "Returns the batches of the file as maps: the pixels :x [32 64], and the labels :y [32 10] with a
  1 in each row."
  []
  (with-open [lines (io/reader (GZIPInputStream. (io/input-stream (io/resource "digits.csv.gz"))))]
    (mapv batch (partition batch-size (map parse (line-seq lines))))))

(defn learn
  "Returns the mean :loss of the weights `w` [64 10] on a batch, and the :gradient of the loss."
  [w {:keys [x y]}]
  (let [powers (ndarray/exp (ndarray/dot x w))
        p (ndarray/div powers (ndarray/dot powers (ndarray/ones [10 10])))]
    {:loss (/ (- (ndarray/to-scalar (ndarray/sum (ndarray/* y (ndarray/log p))))) batch-size)
     :gradient (ndarray/div (ndarray/dot (ndarray/t x) (ndarray/- p y)) batch-size)}))
