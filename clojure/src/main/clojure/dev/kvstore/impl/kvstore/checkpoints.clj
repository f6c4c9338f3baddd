(ns dev.kvstore.impl.kvstore.checkpoints
  "Files of stores; offered by org.apache.clojure-mxnet.kvstore.

    checkpoint progress restore read-snapshot    all that a store holds
    save-optimizer-states load-optimizer-states  the states of its optimizer alone"
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.paths :as paths])
  (:import (clojure.lang IBlockingDeref IDeref IPending)
           (dev.kvstore Checkpoint KVStore Snapshot)
           (java.io Writer)
           (java.util.concurrent ExecutionException TimeUnit TimeoutException)))

(set! *warn-on-reflection* true)

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
  `progress` do not wait. If the program does not deref, closing `kvstore` waits and throws the
  failure, and the end of the program waits and prints it. Throws \"Invalid filename\", and what
  `snapshot`
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
  (errors/check #(instance? Writing %) checkpoint "checkpoint" "what `checkpoint` returned")
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
