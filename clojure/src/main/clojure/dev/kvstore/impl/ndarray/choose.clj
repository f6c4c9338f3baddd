(ns dev.kvstore.impl.ndarray.choose
  "One element of each row. org.apache.clojure-mxnet.ndarray exports these functions.

    choose-element-0index   returns it
    onehot-encode           sets it to one, and the others to zero"
  (:require [dev.kvstore.impl.errors :as errors])
  (:import (dev.kvstore NDArray)))

(set! *warn-on-reflection* true)

(defn choose-element-0index
  "Returns a new array with one element of each row of the matrix `ndarray`. `indices` is a vector
  with the column index for each row.

  Throws code `:invalid-argument` if `ndarray` is not a matrix or has no such column, and code
  `:length-mismatch` if the number of indices is not the number of rows of `ndarray`.

      (->vec (choose-element-0index (->ndarray [[1 2] [3 4]]) (array [1 0] [2]))) ;=> [2.0 3.0]"
  ^dev.kvstore.NDArray [^NDArray ndarray ^NDArray indices]
  (errors/guard (.chooseElements ndarray indices)))

(defn onehot-encode
  "Sets one element of each row of the matrix `out` to one and all others to zero, and returns
  `out`. `indices` is a vector with the column index of that element for each row.

  Errors are those of `choose-element-0index`.

      (->nd-vec (onehot-encode (array [1 0] [2]) (zeros [2 3]))) ;=> [[0.0 1.0 0.0] [1.0 0.0 0.0]]"
  ^dev.kvstore.NDArray [^NDArray indices ^NDArray out]
  (errors/guard (.setOneHot out indices)))
