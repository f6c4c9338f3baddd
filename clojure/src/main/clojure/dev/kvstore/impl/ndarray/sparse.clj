(ns dev.kvstore.impl.ndarray.sparse
  "Row-sparse values. org.apache.clojure-mxnet.ndarray exports these functions.

    row-sparse-array row-sparse-from-ids   create one from rows and row indices
    row-indices row-data to-dense          return its indices, its rows, its dense form
    ->ids                                  row indices as a long[]"
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.lists :as lists]
            [org.apache.clojure-mxnet.shape :as shape])
  (:import (dev.kvstore NDArray RowSparse)))

(set! *warn-on-reflection* true)

(def ^:private ^Class longs-class
  (class (long-array 0)))

(defn ->ids
  "Returns the integers of `xs`, a list or a long[], as a long[]. Throws \"Invalid `what`\" for
  anything else. The map `facts` is that of `errors/reject`."
  (^longs [xs what] (->ids xs what nil))
  (^longs [xs what facts]
   (if (instance? longs-class xs)
     xs
     (let [ids (lists/as-list xs)]
       (if (and ids (every? int? ids))
         (long-array ids)
         (errors/reject what "a list of integers or a long[]" xs (assoc facts :found xs)))))))

(defn row-sparse-array
  "Returns a row-sparse value: an array of the shape `shape-vec` with the given `rows`, in which
  all other rows are 0. `rows` is an array of the rows, and `indices` are their row indices in
  ascending order.

  `kvstore/init` and `kvstore/push` take such a value instead of a large array with few non-zero
  rows. `indices` are a list of integers or a long[]. Changing `rows` later does not change the
  value. Throws \"Invalid indices\", \"Invalid shape\", code `:invalid-argument` if the indices
  are not in ascending order or out of range, and code `:spec-mismatch` if the number or the shape
  of the rows does not match.

      (->nd-vec (to-dense (row-sparse-array (array [5 6] [1 2])
                                            [1] [3 2]))) ;=> [[0.0 0.0] [5.0 6.0] [0.0 0.0]]"
  ^dev.kvstore.RowSparse [^NDArray rows indices shape-vec]
  (let [indices (->ids indices "indices")
        shape (shape/->shape shape-vec)]
    (errors/guard (RowSparse/of rows indices shape))))

(defn row-sparse-from-ids
  "Returns a `row-sparse-array` with the given `rows`, whose indices `ids` may have any order. Rows
  with the same index are summed in the order in which they appear, as for the gradient of a batch
  of words.

  Throws \"Invalid ids\", and what `row-sparse-array` throws, also for `shape-vec`.

      (row-indices (row-sparse-from-ids (ones [3 2]) [7 2 7] [10 2])) ;=> [2 7]"
  ^dev.kvstore.RowSparse [^NDArray rows ids shape-vec]
  (let [ids (->ids ids "ids")
        shape (shape/->shape shape-vec)]
    (errors/guard (RowSparse/fromIds rows ids shape))))

(defn row-indices
  "Returns the indices of the stored rows of `row-sparse` as a vector in ascending order.

  Throws code `:closed` if it is closed.

      (row-indices (row-sparse-array (ones [2 1]) [1 4] [9 1])) ;=> [1 4]"
  [^RowSparse row-sparse]
  (errors/guard (vec (.indices row-sparse))))

(defn row-data
  "Returns a new array of the stored rows of `row-sparse`.

  Throws code `:closed` if it is closed.

      (->vec (row-data (row-sparse-array (ones [2 1]) [1 4] [9 1]))) ;=> [1.0 1.0]"
  ^dev.kvstore.NDArray [^RowSparse row-sparse]
  (errors/guard (.rows row-sparse)))

(defn to-dense
  "Returns the dense form of `row-sparse` as a new array.

  Throws code `:closed` if it is closed, and code `:out-of-memory`.

      (->vec (to-dense (row-sparse-array (ones [1 1]) [1] [3 1]))) ;=> [0.0 1.0 0.0]"
  ^dev.kvstore.NDArray [^RowSparse row-sparse]
  (errors/guard (.toDense row-sparse)))
