(ns dev.kvstore.impl.kvstore.checkpoints
  "Checkpoints and optimizer state files. org.apache.clojure-mxnet.kvstore exports these functions.

    checkpoint progress restore read-snapshot    the complete contents of a store
    snapshot-files                               the files of a snapshot
    save-optimizer-states load-optimizer-states  only the optimizer states"
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.options :as options]
            [dev.kvstore.impl.paths :as paths])
  (:import (clojure.lang IBlockingDeref IDeref IPending)
           (dev.kvstore Checkpoint KVStore Snapshot)
           (java.io Writer)
           (java.util.concurrent ExecutionException TimeUnit TimeoutException)))

(set! *warn-on-reflection* true)

(defmacro ^:private unwrapped
  "Evaluates `body`. If a future in it has failed, throws the cause of the failure, not an
  ExecutionException."
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

(defn- begin
  "Starts writing a store or a snapshot to a file. If `since` is not nil, writes a delta."
  ^Checkpoint [kvstore fname ^Snapshot since]
  (let [path (paths/->path fname)]
    (errors/guard
      (if (instance? Snapshot kvstore)
        (if since
          (.checkpoint ^Snapshot kvstore path since)
          (.checkpoint ^Snapshot kvstore path))
        (if since
          (.checkpoint ^KVStore kvstore path since)
          (.checkpoint ^KVStore kvstore path))))))

(defn checkpoint
  "Starts writing the complete contents of `kvstore`, or of a snapshot, to the file `fname`, and
  returns without waiting. `deref` of the result waits until the file is in place and has reached
  the disk, and returns the name of the file.

  Later pushes are not in the file. At every moment, even after a crash, either the old file or
  the new file is in place and complete. If the file cannot be written, the deref throws code
  `:io`. `realized?` and `progress` do not wait. If the program does not deref, closing `kvstore`
  waits and throws the failure, and the end of the program waits and prints it. Throws \"Invalid
  filename\", and what `snapshot` throws.

      (let [f (java.io.File/createTempFile \"model\" \".checkpoint\")]
        @(checkpoint kv f)
        (snapshot-keys (read-snapshot f))) ;=> [\"a\" \"b\"]

  `options` is a map or nil. The option `:since` is a snapshot. Then the file is a delta: it has
  only the changes since this snapshot, which was written to or read from a file in the same folder.
  `restore` reads the delta and this file, which can be a delta too. If the snapshot is still being
  written, the call waits. Throws code `:invalid-argument` if the snapshot is in no file of this
  folder or `fname` is a file that the delta needs, code `:io` if its file does not exist any more,
  and code `:corrupt` if another file has replaced it.

      (with-open [before (snapshot kv)]
        @(checkpoint before (java.io.File/createTempFile \"model\" \".checkpoint\"))
        @(checkpoint kv (java.io.File/createTempFile \"model\" \".delta\") {:since before}))"
  ([kvstore fname]
   (Writing. (begin kvstore fname nil)))
  ([kvstore fname options]
   (options/check options [:since])
   (let [since (:since options)]
     (when (some? since)
       (errors/check #(instance? Snapshot %) since "since" "a Snapshot"))
     (Writing. (begin kvstore fname since)))))

(defn snapshot-files
  "Returns the names of the files that `restore` needs for `snapshot`, the newest first: the file
  that it was last written to or read from, and if this is a delta, the files that it needs. Returns
  an empty vector before the file is complete. Throws \"Invalid snapshot\" for anything else.

      (with-open [now (snapshot kv)]
        @(checkpoint now (java.io.File/createTempFile \"model\" \".checkpoint\"))
        (count (snapshot-files now))) ;=> 1"
  [^Snapshot snapshot]
  (errors/check #(instance? Snapshot %) snapshot "snapshot" "a Snapshot")
  (errors/guard (mapv str (.files snapshot))))

(defn progress
  "Returns the progress of a `checkpoint` as a map: `:bytes-written`, the total `:bytes`, and
  whether it is `:done?`. For a delta, `:bytes` is 0 until its changes are known. Even when all
  bytes are written, it may not be done, because the data may not have reached the disk. Throws
  \"Invalid checkpoint\" for anything else.

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
  "Replaces the contents of `kvstore` with the `checkpoint` in the file `fname`, and returns
  `kvstore`.

  The next steps give the same bits that they would have given when the checkpoint was started. A
  file contains no updater: if the store of the checkpoint had one, set an updater on `kvstore`
  first. Throws

  - \"Invalid filename\";
  - code `:io` if the file cannot be read, or `:corrupt` if it is damaged; the message names the
    file and the cause;
  - code `:invalid-argument` if the checkpoint needs an updater and `kvstore` has none.

  If it throws, `kvstore` is unchanged.

      (let [f (java.io.File/createTempFile \"model\" \".checkpoint\")]
        @(checkpoint kv f)
        (keys (restore (create) f))) ;=> (\"a\" \"b\")"
  ^dev.kvstore.KVStore [^KVStore kvstore fname]
  (let [path (paths/->path fname)]
    (errors/guard (.restore kvstore path))))

(defn read-snapshot
  "Returns the snapshot in the file `fname`, which `checkpoint` has written. This changes no store.

  Throws \"Invalid filename\", code `:io` if the file cannot be read, and code `:corrupt` if it is
  damaged. The message names the file and the cause.

      (let [f (java.io.File/createTempFile \"model\" \".checkpoint\")]
        @(checkpoint kv f)
        (ndarray/->vec (snapshot-value (read-snapshot f) \"a\"))) ;=> [1.0 1.0]"
  ^dev.kvstore.Snapshot [fname]
  (let [path (paths/->path fname)]
    (errors/guard (Snapshot/read path))))

(defn save-optimizer-states
  "Writes the optimizer states of `kvstore` to the file `fname`, and returns `kvstore`. If
  `dump-optimizer` is true, also writes the optimizer with its hyper-parameters.

  Throws \"Invalid filename\", code `:invalid-argument` if the store has no optimizer, and code
  `:io` if the file cannot be written.

      (save-optimizer-states kv (java.io.File/createTempFile \"sgd\" \".states\"))"
  (^dev.kvstore.KVStore [kvstore fname] (save-optimizer-states kvstore fname false))
  (^dev.kvstore.KVStore [^KVStore kvstore fname dump-optimizer]
   (let [path (paths/->path fname)]
     (errors/guard (.saveOptimizerStates kvstore (str path) (boolean dump-optimizer))))))

(defn load-optimizer-states
  "Sets the optimizer states of the keys in the file `fname`, and returns `kvstore`. The states of
  other keys start anew. An optimizer in the file becomes the optimizer of `kvstore`.

  The next update of a key gives the same bits that it would have given when the file was written.
  Throws

  - \"Invalid filename\";
  - code `:invalid-argument` if neither the store nor the file has an optimizer, or the states
    belong to another optimizer;
  - code `:key-not-found` if a key in the file is not initialized;
  - code `:spec-mismatch` if a state does not match the shape or dtype of its weight;
  - code `:io` or `:corrupt` if the file cannot be read or is damaged.

  If it throws, `kvstore` is unchanged.

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
