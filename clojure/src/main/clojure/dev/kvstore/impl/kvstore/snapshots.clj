(ns dev.kvstore.impl.kvstore.snapshots
  "Snapshots of stores. org.apache.clojure-mxnet.kvstore exports these functions.

    snapshot rollback                            taking a snapshot, and rolling back to it
    snapshot-load                                with all values in the memory of this process
    snapshot-keys snapshot-value snapshot-state  its contents; also `stats`, `hyper-parameters`
    snapshot-diff snapshot=                      comparing two snapshots"
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.pairs :as pairs])
  (:import (dev.kvstore KVStore OptimizerState Snapshot)))

(set! *warn-on-reflection* true)

(defn snapshot
  "Returns a snapshot of `kvstore`: its values, the optimizer with its states and update counts,
  and the compression at this moment. Copies no values.

  A concurrent call that changes several keys is contained completely or not at all, unless
  `kvstore` has several servers. The values of a store on servers stay there, and each call that
  reads or compares them transfers them.

  While the snapshot is open, each key that changes needs memory for its new value, so close it
  with `with-open` or `dispose`. Throws code `:poisoned` if an earlier update of a key was
  interrupted by a panic, code `:invalid-argument` if an updater of `kvstore` makes the call, and
  code `:closed` if `kvstore` is closed.

      (snapshot-keys (snapshot (init (create) \"w\" (ndarray/ones [2])))) ;=> [\"w\"]"
  ^dev.kvstore.Snapshot [^KVStore kvstore]
  (errors/guard (.snapshot kvstore)))

(defn rollback
  "Replaces the contents of `kvstore` with `snapshot`, and returns `kvstore`. Copies no values.

  The next steps give the same bits that they would have given when the snapshot was taken. Keys
  that were initialized since then are removed. The snapshot may come from another store or from a
  file. A file contains no updater: `kvstore` keeps its own. Throws code `:invalid-argument` if
  the snapshot needs an updater and `kvstore` has none, or if an updater of `kvstore` makes the
  call. Throws \"Invalid snapshot\" for anything else.

      (let [kv (init (create) \"w\" (ndarray/zeros [2]))]
        (with-open [before (snapshot kv)]
          (push kv \"w\" (ndarray/ones [2]))
          (rollback kv before)
          (ndarray/->vec (pull kv \"w\")))) ;=> [0.0 0.0]"
  ^dev.kvstore.KVStore [^KVStore kvstore ^Snapshot snapshot]
  (errors/check #(instance? Snapshot %) snapshot "snapshot" "a Snapshot")
  (errors/guard (.rollback kvstore snapshot)))

(defn snapshot-load
  "Returns a snapshot with the contents of `snapshot` and all values in the memory of this process,
  so that it outlives the servers of its store.

  Throws code `:backend` if a server does not keep `snapshot` any more.

      (snapshot-load (snapshot kv))"
  ^dev.kvstore.Snapshot [^Snapshot snapshot]
  (errors/check #(instance? Snapshot %) snapshot "snapshot" "a Snapshot")
  (errors/guard (.load snapshot)))

(defn snapshot-keys
  "Returns the keys of `snapshot` as a vector, in the order of initialization. Throws code
  `:closed` if it is closed.

      (snapshot-keys (snapshot (create))) ;=> []"
  [^Snapshot snapshot]
  (errors/guard (vec (.keys snapshot))))

(defn snapshot-value
  "Returns the value of `key` in `snapshot` as a new array. Throws code `:key-not-found` if
  `snapshot` has no such key.

      (ndarray/->vec
        (snapshot-value (snapshot (init (create) \"w\" (ndarray/ones [2]))) \"w\")) ;=> [1.0 1.0]"
  ^dev.kvstore.NDArray [^Snapshot snapshot key]
  (let [key (pairs/key-name key)]
    (errors/guard (.get snapshot key))))

(defn snapshot-state
  "Returns the optimizer state of `key` in `snapshot` as a map: `:num-updates`, and `:arrays`, new
  arrays in the order in which they appear in the optimizer's formula. For a half-precision
  weight, the first array is its float32 copy. Returns nil if there is no optimizer or it had not
  updated `key` yet. Throws code `:key-not-found` if `snapshot` has no such key.

      (with-open [before (snapshot (-> (create)
                                       (init \"w\" (ndarray/ones [2]))
                                       (set-optimizer (optimizer/sgd {:momentum 0.5
                                                                      :learning-rate 1
                                                                      :wd 0}))
                                       (push \"w\" (ndarray/ones [2]))))]
        (mapv ndarray/->vec (:arrays (snapshot-state before \"w\")))) ;=> [[-1.0 -1.0]]"
  [^Snapshot snapshot key]
  (let [key (pairs/key-name key)]
    (errors/guard
      (when-let [^OptimizerState found (.orElse (.optimizerState snapshot key) nil)]
        (with-open [state found]
          {:num-updates (.numUpdates state)
           :arrays (vec (.arrays state))})))))

(defn snapshot-diff
  "Returns the keys that differ between `snapshot` and `other` as a vector: their value, optimizer
  state or residual has different bits, or only one snapshot has the key. Data that both snapshots
  share is not read. Throws code `:closed` if one of them is closed.

      (let [kv (init (create) [\"a\" \"b\"] [(ndarray/ones [2]) (ndarray/ones [2])])]
        (with-open [before (snapshot kv)
                    after (snapshot (push kv \"b\" (ndarray/zeros [2])))]
          (snapshot-diff before after))) ;=> [\"b\"]"
  [^Snapshot snapshot ^Snapshot other]
  (errors/guard (vec (.changedKeys snapshot other))))

(defn snapshot=
  "Returns whether `snapshot` and `other` are equal bit for bit: keys and their order, values,
  states, optimizer, compression.

  A store that is rolled back to either of them behaves the same. Updaters are equal if they are
  the same object. Throws code `:closed` if one of them is closed.

      (let [kv (create)] (snapshot= (snapshot kv) (snapshot kv))) ;=> true"
  [^Snapshot snapshot ^Snapshot other]
  (errors/guard (.isIdentical snapshot other)))
