(ns dev.kvstore.impl.datafy
  "Stores and arrays as plain data, for `clojure.datafy` and the tools that use it.

    array-data   the properties of an array, and the elements of a small array
    rows-data    the properties of a row-sparse value, with its row indices
    store-data   the statistics of each key of a store; snapshot-data: of a snapshot
    keys-data    the same as a plain map
    key-data     the statistics of one key

  Loading this namespace extends the protocol. A closed object becomes {:closed true}."
  (:require [clojure.core.protocols :as protocols]
            [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.maps :as maps]
            [dev.kvstore.impl.ndarray.reading :as reading])
  (:import (dev.kvstore DType KVStore KeyStats NDArray RowSparse Shape Snapshot)))

(set! *warn-on-reflection* true)

;; Elements of larger arrays are read only when the user navigates to them.
(def ^:private max-size 1024)

(defn- spec-data
  [^Shape shape ^DType dtype context]
  {:shape (vec (.toArray shape))
   :dtype (keyword (str dtype))
   :context (str context)})

(defn- unless-closed
  "Returns what `data` returns, or {:closed true} if `closed?` returns true, even if another thread
  closes the object during the call."
  [closed? data]
  (if (closed?)
    {:closed true}
    (try
      (data)
      (catch RuntimeException e
        (if (closed?) {:closed true} (throw e))))))

(defn array-data
  "Returns a map of the properties of `nd`. `:elements` are nested vectors in the array's type, or
  `...` if there are many.

  Navigating to `:elements` returns all elements."
  [^NDArray nd]
  (unless-closed #(.isClosed nd)
    (fn []
      (with-meta
        (assoc (spec-data (.shape nd) (.dtype nd) (.context nd))
               :bytes (* (.size nd) (.numBytes (.dtype nd)))
               :elements (if (<= (.size nd) max-size) (reading/nd-elements nd) '...))
        {`protocols/nav (fn [_ k v] (if (= :elements k) (reading/nd-elements nd) v))}))))

(defn rows-data
  "Returns a map of the properties of `rows`. `:indices` are the row indices, or `...` if there are
  many."
  [^RowSparse rows]
  (unless-closed #(.isClosed rows)
    #(assoc (spec-data (.shape rows) (.dtype rows) (.context rows))
            :num-rows (.numRows rows)
            :indices (if (<= (.numRows rows) max-size) (vec (.indices rows)) '...))))

(defn key-data
  "Returns a map of the statistics of one key: shape, dtype, context, sizes in bytes, pushes."
  [^KeyStats stats]
  (assoc (spec-data (.shape stats) (.dtype stats) (.context stats))
         :bytes (.numBytes stats)
         :state-bytes (.stateBytes stats)
         :pushes (.numPushes stats)))

(defn keys-data
  "Returns a map from each key of `kvstore`, a store or a snapshot, to its statistics, in the order
  of initialization."
  [kvstore]
  (let [stats (if (instance? Snapshot kvstore)
                (.stats ^Snapshot kvstore)
                (.stats ^KVStore kvstore))]
    (maps/in-order (fn [^KeyStats stats] (.key stats)) key-data stats)))

(defn- navigable
  [kvstore closed? value-of]
  (unless-closed closed?
    (fn []
      (with-meta
        (keys-data kvstore)
        {`protocols/nav (fn [_ k _] (errors/guard (value-of k)))}))))

(defn store-data
  "Returns `keys-data` of `kvstore`.

  Navigating to a key returns a new array with its current value."
  [^KVStore kvstore]
  (navigable kvstore #(.isClosed kvstore) #(.pull kvstore ^String %)))

(defn snapshot-data
  "Returns `keys-data` of `snapshot`.

  Navigating to a key returns a new array with its value."
  [^Snapshot snapshot]
  (navigable snapshot #(.isClosed snapshot) #(.get snapshot %)))

(extend-protocol protocols/Datafiable
  NDArray
  (datafy [nd] (array-data nd))
  RowSparse
  (datafy [rows] (rows-data rows))
  KVStore
  (datafy [kvstore] (store-data kvstore))
  Snapshot
  (datafy [snapshot] (snapshot-data snapshot)))
