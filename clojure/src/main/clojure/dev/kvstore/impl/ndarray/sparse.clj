(ns dev.kvstore.impl.ndarray.sparse
  "Values of which only some rows are there; offered by org.apache.clojure-mxnet.ndarray.

    row-sparse-array row-sparse-from-ids   from rows and their numbers
    row-indices row-data to-dense          what they are made of
    ->ids                                  row numbers as a long[]"
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.lists :as lists]
            [org.apache.clojure-mxnet.shape :as shape])
  (:import (dev.kvstore NDArray RowSparse)))

(set! *warn-on-reflection* true)

(def ^:private ^Class longs-class
  (class (long-array 0)))

(defn ->ids
  "Returns the integers of `xs`, a list or a long[], as a long[]. Throws \"Invalid \" and `what` for anything
  else."
  ^longs [xs what]
  (if (instance? longs-class xs)
    xs
    (let [ids (lists/as-list xs)]
      (if (and ids (every? int? ids))
        (long-array ids)
        (errors/reject what "a list of integers or a long[]" xs)))))

(defn row-sparse-array
  "Returns the value of the shape `shape-vec` of which only some rows are there: `rows`, an array with one below the
  other, whose numbers are `indices`, ascending. The other rows are 0.

  It is what `kvstore/init` and `kvstore/push` take in place of a large array of which few rows matter. `indices`
  are a list of integers or a long[]. A later change of `rows` does not reach it. Throws \"Invalid indices\",
  \"Invalid shape\", code `:invalid-argument` for numbers that do not ascend or are not rows of the shape, and code
  `:spec-mismatch` when there are not as many rows, or they have another shape.

      (->nd-vec (to-dense (row-sparse-array (array [5 6] [1 2]) [1] [3 2]))) ;=> [[0.0 0.0] [5.0 6.0] [0.0 0.0]]"
  ^dev.kvstore.RowSparse [^NDArray rows indices shape-vec]
  (let [indices (->ids indices "indices")
        shape (shape/->shape shape-vec)]
    (errors/guard (RowSparse/of rows indices shape))))

(defn row-sparse-from-ids
  "Returns a `row-sparse-array` from `rows` whose numbers, `ids`, may come in any order. Rows of the same number are
  summed in the order in which they stand: that is what a batch of words gives.

  Throws \"Invalid ids\", and otherwise what `row-sparse-array` throws, for the shape `shape-vec` too.

      (row-indices (row-sparse-from-ids (ones [3 2]) [7 2 7] [10 2])) ;=> [2 7]"
  ^dev.kvstore.RowSparse [^NDArray rows ids shape-vec]
  (let [ids (->ids ids "ids")
        shape (shape/->shape shape-vec)]
    (errors/guard (RowSparse/fromIds rows ids shape))))

(defn row-indices
  "Returns the numbers of the rows that are there in `row-sparse`, a vector in ascending order.

  Throws code `:closed` when it was disposed.

      (row-indices (row-sparse-array (ones [2 1]) [1 4] [9 1])) ;=> [1 4]"
  [^RowSparse row-sparse]
  (errors/guard (vec (.indices row-sparse))))

(defn row-data
  "Returns a new array of the rows that are there in `row-sparse`, one below the other.

  Throws code `:closed` when it was disposed.

      (->vec (row-data (row-sparse-array (ones [2 1]) [1 4] [9 1]))) ;=> [1.0 1.0]"
  ^dev.kvstore.NDArray [^RowSparse row-sparse]
  (errors/guard (.rows row-sparse)))

(defn to-dense
  "Returns a new array with all rows of `row-sparse`, those that are not there as 0.

  Throws code `:closed` when it was disposed, and code `:out-of-memory`.

      (->vec (to-dense (row-sparse-array (ones [1 1]) [1] [3 1]))) ;=> [0.0 1.0 0.0]"
  ^dev.kvstore.NDArray [^RowSparse row-sparse]
  (errors/guard (.toDense row-sparse)))
