(ns dev.kvstore.impl.ndarray.rows
  "One element of each row; offered by org.apache.clojure-mxnet.ndarray.

    choose-element-0index   picks it
    onehot-encode           marks it"
  (:require [dev.kvstore.impl.errors :as errors])
  (:import (dev.kvstore NDArray Shape)))

(set! *warn-on-reflection* true)

(defn- checked-columns
  "The numbers in `indices`, one for each row of `matrix`, as a long[]. They must be columns of it."
  ^longs [^NDArray matrix ^NDArray indices]
  (let [[num-rows num-columns :as dims] (vec (.toArray (.shape matrix)))]
    (when-not (= 2 (count dims))
      (errors/invalid "Invalid matrix" dims))
    (when-not (= num-rows (.size indices))
      (errors/length-mismatch "len(rows) != len(indices)" num-rows (.size indices)))
    (let [columns (.toLongs indices)]
      (when-let [column (first (remove #(< -1 (long %) (long num-columns)) columns))]
        (errors/invalid (str "index " column " is out of range, expected 0 to " (dec (long num-columns)))
                        column))
      columns)))

(defn choose-element-0index
  "Returns a new array of one element of each row of the matrix `ndarray`: that in the column which
  `indices`, a vector as long as the matrix has rows, names for it.

  Throws \"Invalid matrix\", code `:length-mismatch`, and code `:invalid-argument` for an index that is no
  column.

      (->vec (choose-element-0index (->ndarray [[1 2] [3 4]]) (array [1 0] [2]))) ;=> [2.0 3.0]"
  ^dev.kvstore.NDArray [^NDArray ndarray ^NDArray indices]
  (errors/guard
    (let [columns (checked-columns ndarray indices)
          num-rows (alength columns)
          width (quot (.size ndarray) (max 1 num-rows))
          dtype (.dtype ndarray)
          num-bytes (.numBytes dtype)
          bytes (.toBytes ndarray)
          chosen (byte-array (* num-rows num-bytes))]
      (dotimes [row num-rows]
        (System/arraycopy bytes (* num-bytes (+ (* row width) (aget columns row)))
                          chosen (* num-bytes row) num-bytes))
      (NDArray/fromBytes chosen (Shape/of (long-array [num-rows])) dtype (.context ndarray)))))

(defn onehot-encode
  "Fills the matrix `out` with zeros and, in each row, a one in the column that `indices` names for it, and
  returns `out`.

  Errors are those of `choose-element-0index`.

      (->nd-vec (onehot-encode (array [1 0] [2]) (zeros [2 3]))) ;=> [[0.0 1.0 0.0] [1.0 0.0 0.0]]"
  ^dev.kvstore.NDArray [^NDArray indices ^NDArray out]
  (errors/guard
    (let [columns (checked-columns out indices)
          num-rows (alength columns)
          width (quot (.size out) (max 1 num-rows))
          ones (byte-array (.size out))]
      (dotimes [row num-rows]
        (aset ones (+ (* row width) (aget columns row)) (byte 1)))
      (.set out ones))))
