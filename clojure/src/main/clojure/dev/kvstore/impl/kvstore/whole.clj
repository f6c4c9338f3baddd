(ns dev.kvstore.impl.kvstore.whole
  "All that a store holds: snapshots, and files of them; offered by org.apache.clojure-mxnet.kvstore.

    snapshot rollback                                     a store at one moment, and back to it
    snapshot-keys snapshot-value snapshot-diff snapshot=  what is in one
    checkpoint progress restore read-snapshot             a snapshot in a file
    save-optimizer-states load-optimizer-states           a file of the states alone"
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.pairs :as pairs]
            [dev.kvstore.impl.paths :as paths])
  (:import (clojure.lang IBlockingDeref IDeref IPending)
           (dev.kvstore Checkpoint KVStore Snapshot)
           (java.io Writer)
           (java.util.concurrent ExecutionException TimeUnit TimeoutException)))

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
  (errors/check #(instance? Snapshot %) snapshot "snapshot")
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

(defmacro ^:private unwrapped
  "Evaluates `body`, and throws what made a future fail in place of that it has failed."
  [& body]
  `(errors/guard
     (try
       ~@body
       (catch ExecutionException e#
         (throw (.getCause e#))))))

(deftype Writing [^Checkpoint checkpoint]
  IDeref
  (deref [_]
    (unwrapped (.get checkpoint))
    (str (.file checkpoint)))
  IBlockingDeref
  (deref [_ timeout-ms timeout-val]
    (try
      (unwrapped (.get checkpoint timeout-ms TimeUnit/MILLISECONDS))
      (str (.file checkpoint))
      (catch TimeoutException _
        timeout-val)))
  IPending
  (isRealized [_]
    (.isDone checkpoint)))

(defn checkpoint
  "Begins to write all that `kvstore`, or a snapshot, holds into the file `fname`, and returns at once something to
  `deref`: it waits until the file is in its place and has reached the disk, and gives the name of the file.

  What is pushed meanwhile is not in the file. At every moment, after a crash too, the old file or the new one
  is there and whole. What goes wrong with the file, code `:io`, is thrown by the deref. `realized?` and
  `progress` ask without waiting. Throws \"Invalid filename\", and what `snapshot`
  throws.

      (let [f (java.io.File/createTempFile \"model\" \".checkpoint\")]
        @(checkpoint kv f)
        (snapshot-keys (read-snapshot f))) ;=> [\"a\" \"b\"]"
  [kvstore fname]
  (let [path (paths/->path fname)]
    (errors/guard
      (Writing. (if (instance? Snapshot kvstore)
                  (.checkpoint ^Snapshot kvstore path)
                  (.checkpoint ^KVStore kvstore path))))))

(defn progress
  "Returns how far the writing of a `checkpoint` has come, as a map: `:bytes-written` of `:bytes`, and whether it
  is `:done?`. When all bytes are written, the disk may still have to be waited for. Throws \"Invalid checkpoint\"
  for anything else.

      (let [writing (checkpoint kv (java.io.File/createTempFile \"model\" \".checkpoint\"))]
        @writing
        (:done? (progress writing))) ;=> true"
  [checkpoint]
  (errors/check #(instance? Writing %) checkpoint "checkpoint")
  (let [^Checkpoint writing (.checkpoint ^Writing checkpoint)
        done? (.isDone writing)]
    {:bytes-written (.numBytesWritten writing)
     :bytes (.numBytes writing)
     :done? done?}))

(defn restore
  "Makes `kvstore` hold what the store did whose `checkpoint` the file `fname` is, and returns `kvstore`.

  The next steps give the bits that they would have given then. A file holds no updater: where there was one,
  `kvstore` needs its own before, or it is code `:invalid-argument`. Throws \"Invalid filename\", code `:io`, and code `:corrupt` with the file and the cause; `kvstore` is then as it was.

      (let [f (java.io.File/createTempFile \"model\" \".checkpoint\")]
        @(checkpoint kv f)
        (keys (restore (create) f))) ;=> (\"a\" \"b\")"
  ^dev.kvstore.KVStore [^KVStore kvstore fname]
  (let [path (paths/->path fname)]
    (errors/guard (.restore kvstore path))))

(defn read-snapshot
  "Returns the snapshot in the file `fname`, a `checkpoint`, without changing a store.

  Throws \"Invalid filename\", code `:io`, and code `:corrupt` with the file and the
  cause.

      (let [f (java.io.File/createTempFile \"model\" \".checkpoint\")]
        @(checkpoint kv f)
        (ndarray/->vec (snapshot-value (read-snapshot f) \"a\"))) ;=> [1.0 1.0]"
  ^dev.kvstore.Snapshot [fname]
  (let [path (paths/->path fname)]
    (errors/guard (Snapshot/read path))))

(defn save-optimizer-states
  "Writes the states of the optimizer into the file `fname`, and returns `kvstore`. With a true `dump-optimizer`
  the optimizer with its hyper-parameters is written, too.

  Throws \"Invalid filename\", code `:invalid-argument` when there is no optimizer, and
  code `:io`.

      (save-optimizer-states kv (java.io.File/createTempFile \"sgd\" \".states\"))"
  (^dev.kvstore.KVStore [kvstore fname] (save-optimizer-states kvstore fname false))
  (^dev.kvstore.KVStore [^KVStore kvstore fname dump-optimizer]
   (let [path (paths/->path fname)]
     (errors/guard (.saveOptimizerStates kvstore (str path) (boolean dump-optimizer))))))

(defn load-optimizer-states
  "Gives the keys in the file `fname` the states in it, and returns `kvstore`. States of other keys start anew; an
  optimizer in the file becomes the one of `kvstore`.

  The next update of a key gives the bits that it would have given then. Throws \"Invalid filename\", code `:invalid-argument` when there is no optimizer or the states are another one's,
  code `:key-not-found`, `:spec-mismatch`, `:io` or `:corrupt`; nothing has changed then.

      (let [f (java.io.File/createTempFile \"sgd\" \".states\")]
        (save-optimizer-states kv f)
        (load-optimizer-states kv f))"
  ^dev.kvstore.KVStore [^KVStore kvstore fname]
  (let [path (paths/->path fname)]
    (errors/guard (.loadOptimizerStates kvstore (str path)))))

(defmethod print-method Writing [^Writing writing ^Writer w]
  (.write w (str "#kv/" (.checkpoint writing))))

(defmethod print-dup Writing [writing w]
  (print-method writing w))
