(ns dev.kvstore.impl.kvstore.rows
  "Reading rows of stored values. org.apache.clojure-mxnet.kvstore exports this function.

    row-sparse-pull   returns rows of a value"
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.lists :as lists]
            [dev.kvstore.impl.ndarray.sparse :as sparse]
            [dev.kvstore.impl.pairs :as pairs])
  (:import (dev.kvstore KVStore)
           (java.util List)))

(set! *warn-on-reflection* true)

(defn- ->ids
  "Returns the row indices `xs` of the key `k` as a long[]. Throws \"Invalid row-ids\" for anything
  else."
  ^longs [k xs]
  (sparse/->ids xs "row-ids" {:place (str "for key `" k "`")}))

(defn row-sparse-pull
  "Returns rows of the newest value of the key `ks` in `kvstore`: those with the indices `row-ids`,
  a list of integers or a long[], in any order and possibly with duplicates.

  The result contains each requested row once, in ascending order, including rows of zeros. The
  cost depends on the number of requested rows. For a list of keys, with as many `row-ids`, the
  result is a vector. Throws \"Invalid keys\", \"Invalid row-ids\", code `:key-not-found`, code
  `:length-mismatch`, and code `:invalid-argument` if a row index is negative or too large.

      (ndarray/row-indices (row-sparse-pull kv \"a\" [1 0 0])) ;=> [0 1]
      (row-sparse-pull kv [\"a\" \"b\"] [[1] [2 0]])"
  [^KVStore kvstore ks row-ids]
  (if (pairs/single-key? ks)
    (let [k (pairs/key-name ks)
          ids (->ids k row-ids)]
      (errors/guard (.rowSparsePull kvstore ^String k ^longs ids)))
    (let [names (vec (pairs/key-names ks))
          listed (or (lists/as-list row-ids)
                     (errors/reject "row-ids" "a list with row indices for each key" row-ids))
          ids (vec (map-indexed (fn [i xs] (->ids (get names i "?") xs)) listed))]
      (errors/guard (vec (.rowSparsePull kvstore ^List names ^List ids))))))
