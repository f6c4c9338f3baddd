(ns dev.kvstore.impl.kvstore.snapshots
  "All that a store holds at one moment; offered by org.apache.clojure-mxnet.kvstore.

    snapshot rollback                            a store at one moment, and back to it
    snapshot-keys snapshot-value snapshot-state  what is in one; also `stats` and `hyper-parameters`
    snapshot-diff snapshot=                      two of them beside each other"
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.pairs :as pairs])
  (:import (dev.kvstore KVStore OptimizerState Snapshot)))

(set! *warn-on-reflection* true)

(defn snapshot
  "Returns all that `kvstore` holds at this moment: values, the optimizer with its states and counts, the
  compression. Nothing is copied for it.

  A call of another thread that changes several keys is in it whole or not at all. A key that changes afterwards
  needs memory of its own, as long as the snapshot is open: close it with `with-open` or `dispose`. Throws
  code `:poisoned` for a key that a panic has spoilt, code `:invalid-argument` from inside an updater of
  `kvstore`, and code `:closed` when `kvstore` was disposed.

      (snapshot-keys (snapshot (init (create) \"w\" (ndarray/ones [2])))) ;=> [\"w\"]"
  ^dev.kvstore.Snapshot [^KVStore kvstore]
  (errors/guard (.snapshot kvstore)))

(defn rollback
  "Makes `kvstore` hold what `snapshot` does and nothing else, and returns `kvstore`. Nothing is copied.

  The next steps give the bits that they would have given then; keys that were made since are gone. The
  snapshot may be another store's, or one from a file, which holds no updater: then `kvstore` keeps its own, and
  having none is code `:invalid-argument`, as it is from inside an updater of `kvstore`. Throws \"Invalid
  snapshot\" for anything else.

      (let [kv (init (create) \"w\" (ndarray/zeros [2]))]
        (with-open [before (snapshot kv)]
          (push kv \"w\" (ndarray/ones [2]))
          (rollback kv before)
          (ndarray/->vec (pull kv \"w\")))) ;=> [0.0 0.0]"
  ^dev.kvstore.KVStore [^KVStore kvstore ^Snapshot snapshot]
  (errors/check #(instance? Snapshot %) snapshot "snapshot" "a Snapshot")
  (errors/guard (.rollback kvstore snapshot)))

(defn snapshot-keys
  "Returns the keys of `snapshot` as a vector, in the order of their init. Throws code `:closed` when it was closed.

      (snapshot-keys (snapshot (create))) ;=> []"
  [^Snapshot snapshot]
  (errors/guard (vec (.keys snapshot))))

(defn snapshot-value
  "Returns the value of `key` in `snapshot` as a new array. Throws code `:key-not-found` when it has none.

      (ndarray/->vec (snapshot-value (snapshot (init (create) \"w\" (ndarray/ones [2]))) \"w\")) ;=> [1.0 1.0]"
  ^dev.kvstore.NDArray [^Snapshot snapshot key]
  (let [key (pairs/key-name key)]
    (errors/guard (.get snapshot key))))

(defn snapshot-state
  "Returns what the optimizer kept for `key` in `snapshot`, as a map: `:num-updates`, and `:arrays`, new ones, in the
  order of the optimizer's formula; nil without an optimizer, and when it had not updated `key` yet. For a weight of
  half precision its float32 copy comes first. Throws code `:key-not-found` when it has no such key.

      (with-open [before (snapshot (-> (create)
                                       (init \"w\" (ndarray/ones [2]))
                                       (set-optimizer (optimizer/sgd {:momentum 0.5 :learning-rate 1 :wd 0}))
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
  "Returns the keys whose value, optimizer state or residuals differ between `snapshot` and `other`, or that only
  one of them has, as a vector. What the two share is not read. Throws code `:closed` when one was closed.

      (let [kv (init (create) [\"a\" \"b\"] [(ndarray/ones [2]) (ndarray/ones [2])])]
        (with-open [before (snapshot kv)
                    after (snapshot (push kv \"b\" (ndarray/zeros [2])))]
          (snapshot-diff before after))) ;=> [\"b\"]"
  [^Snapshot snapshot ^Snapshot other]
  (errors/guard (vec (.changedKeys snapshot other))))

(defn snapshot=
  "Do `snapshot` and `other` hold the same bits: keys in their order, values, states, optimizer, compression?

  A store that is rolled back to the one then goes on as it would with the other. Updaters are the same when
  they are one object. Throws code `:closed` when one was closed.

      (let [kv (create)] (snapshot= (snapshot kv) (snapshot kv))) ;=> true"
  [^Snapshot snapshot ^Snapshot other]
  (errors/guard (.isIdentical snapshot other)))
