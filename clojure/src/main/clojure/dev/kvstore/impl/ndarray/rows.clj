(ns dev.kvstore.impl.ndarray.rows
  "One element of each row; offered by org.apache.clojure-mxnet.ndarray.

    choose-element-0index   picks it
    onehot-encode           marks it"
  (:require [dev.kvstore.impl.errors :as errors])
  (:import (dev.kvstore NDArray)))

(set! *warn-on-reflection* true)

(defn choose-element-0index
  "Returns a new array of one element of each row of the matrix `ndarray`: that in the column which
  `indices`, a vector as long as the matrix has rows, names for it.

  Throws code `:invalid-argument` when `ndarray` is no matrix or there is no such column, and code
  `:length-mismatch`.

      (->vec (choose-element-0index (->ndarray [[1 2] [3 4]]) (array [1 0] [2]))) ;=> [2.0 3.0]"
  ^dev.kvstore.NDArray [^NDArray ndarray ^NDArray indices]
  (errors/guard (.chooseElements ndarray indices)))

(defn onehot-encode
  "Fills the matrix `out` with zeros and, in each row, a one in the column that `indices` names for it, and
  returns `out`.

  Errors are those of `choose-element-0index`.

      (->nd-vec (onehot-encode (array [1 0] [2]) (zeros [2 3]))) ;=> [[0.0 1.0 0.0] [1.0 0.0 0.0]]"
  ^dev.kvstore.NDArray [^NDArray indices ^NDArray out]
  (errors/guard (.setOneHot out indices)))
