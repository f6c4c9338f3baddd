(ns dev.kvstore.impl.datafy
  "Stores and arrays as plain data, for `clojure.datafy` and the tools that use it.

    array-data   what an array is, and the elements of a small one
    rows-data    what a value of rows is, with the numbers of its rows
    store-data   what each key of a store holds, snapshot-data of a snapshot
    keys-data    the same as a mere map
    key-data     what one key holds

  Loading this namespace extends the protocol. What was closed is {:closed true}."
  (:require [clojure.core.protocols :as protocols]
            [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.maps :as maps]
            [dev.kvstore.impl.ndarray.reading :as reading])
  (:import (dev.kvstore DType KVStore KeyStats NDArray RowSparse Shape Snapshot)))

(set! *warn-on-reflection* true)

;; More elements than that are read when somebody navigates to them.
(def ^:private max-size 1024)

(defn- spec-data
  [^Shape shape ^DType dtype context]
  {:shape (vec (.toArray shape))
   :dtype (keyword (str dtype))
   :context (str context)})

(defn- unless-closed
  "What `data` returns; {:closed true} when `closed?` holds, be it meanwhile by another thread."
  [closed? data]
  (if (closed?)
    {:closed true}
    (try
      (data)
      (catch RuntimeException e
        (if (closed?) {:closed true} (throw e))))))

(defn array-data
  "Returns a map of `nd`'s properties; `:elements` are nested vectors in the array's type, or `...`.

  Navigating to `:elements` gives them all."
  [^NDArray nd]
  (unless-closed #(.isClosed nd)
    (fn []
      (with-meta
        (assoc (spec-data (.shape nd) (.dtype nd) (.context nd))
               :bytes (* (.size nd) (.numBytes (.dtype nd)))
               :elements (if (<= (.size nd) max-size) (reading/nd-elements nd) '...))
        {`protocols/nav (fn [_ k v] (if (= :elements k) (reading/nd-elements nd) v))}))))

(defn rows-data
  "Returns a map of what `rows` is, with the numbers of the rows that are there, or `...` when they are many."
  [^RowSparse rows]
  (unless-closed #(.isClosed rows)
    #(assoc (spec-data (.shape rows) (.dtype rows) (.context rows))
            :num-rows (.numRows rows)
            :indices (if (<= (.numRows rows) max-size) (vec (.indices rows)) '...))))

(defn key-data
  "Returns a map of what one key of a store holds: shape, dtype, context, sizes in bytes, pushes."
  [^KeyStats stats]
  (assoc (spec-data (.shape stats) (.dtype stats) (.context stats))
         :bytes (.numBytes stats)
         :state-bytes (.stateBytes stats)
         :pushes (.numPushes stats)))

(defn keys-data
  "Returns a map of each key of `kvstore`, a store or a snapshot, to what it holds, in the order of their init."
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
  "Returns `keys-data` of `kvstore`, to navigate in.

  Navigating to a key gives a new array with its present value."
  [^KVStore kvstore]
  (navigable kvstore #(.isClosed kvstore) #(.pull kvstore ^String %)))

(defn snapshot-data
  "Returns `keys-data` of `snapshot`, to navigate in.

  Navigating to a key gives a new array with its value."
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
