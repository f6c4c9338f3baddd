(ns dev.kvstore.impl.kvstore.life
  "A store from its making to its end, and what there is to know; offered by org.apache.clojure-mxnet.kvstore.

    create dispose type                         a store's life
    doctor stats                                this machine; numbers of a store and of native memory
    soft-cap set-soft-cap trim register-mxbean  limits of native memory, and who sees it"
  (:refer-clojure :exclude [type])
  (:require [clojure.string :as string]
            [dev.kvstore.impl.datafy :as datafy]
            [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.memory :as memory])
  (:import (dev.kvstore Doctor KVStore NativeMemory Snapshot)
           (java.lang AutoCloseable)
           (java.util Locale)))

(set! *warn-on-reflection* true)

(defn create
  "Returns a new store of the kind `name`, \"local\" by default.

  \"local\" sums on the host, \"device\" where the values of a key are; the result is the same. Throws code
  `:invalid-argument`, listing the kinds that there are, for a name that is none of them, and code
  `:unsupported` for a kind that is not built in yet.

      (with-open [kv (create \"device\")] (type kv)) ;=> \"device\""
  (^dev.kvstore.KVStore [] (create "local"))
  (^dev.kvstore.KVStore [name]
   (errors/check #(or (string? %) (keyword? %)) name "name" "a string or keyword")
   (errors/guard (KVStore/create (clojure.core/name name)))))

(defn dispose
  "Frees `kvstore`, or a snapshot, and all it holds, and returns nil. Doing so twice is fine; any use of it is code
  `:closed` then. `with-open` disposes.

  Waits for the checkpoints of a store, and throws the failure of a checkpoint that no call has reported. Never
  throws for a snapshot.

      (dispose (create)) ;=> nil"
  [^AutoCloseable kvstore]
  (errors/guard (.close kvstore)))

(defn type
  "Returns the kind of `kvstore` in lower case. Never throws for a store, disposed or not.

      (type (create \"LOCAL\")) ;=> \"local\""
  [^KVStore kvstore]
  (errors/guard (.type kvstore)))

(defn doctor
  "Returns a map of what this library found on this machine, in words, and why something is missing.

  The files tried for the native library, its version, devices, memory in use. It never throws.

      (string? (:platform (doctor))) ;=> true"
  []
  (apply array-map
         (mapcat (fn [[fact text]]
                   [(keyword (string/replace (.toLowerCase ^String fact Locale/ROOT) " " "-")) text])
                 (Doctor/report))))

(defn stats
  "Returns numbers about `kvstore`, which may be a snapshot, or about all native memory, as a map.

  Of a store: its `:type`, `:bytes` of all values, `:state-bytes` of what an optimizer keeps, and `:keys`,
  a map of key to `:shape`, `:dtype`, `:context`, `:bytes`, `:state-bytes` and `:pushes`, the number of
  pushes that have changed it, in the order of their init. Without a store: `:live-bytes` in use,
  `:pooled-bytes` kept for reuse, the `:soft-cap`, how many arrays and stores are `:open`, how many were
  `:collected-unclosed`, by the garbage collector, and `:devices`, a map of \"cpu(0)\" and the name of every GPU
  to the `:live-bytes` and `:pooled-bytes` there, of a GPU also `:total-bytes`, all that it has. An updater may
  call it. Throws code `:closed` when `kvstore` was disposed.

      (:bytes (stats (init (create) \"w\" (ndarray/ones [2 3])))) ;=> 24"
  ([] (errors/guard (memory/of-process)))
  ([kvstore]
   (errors/guard
     (let [keys (datafy/keys-data kvstore)]
       {:type (if (instance? Snapshot kvstore)
                (.storeType ^Snapshot kvstore)
                (.type ^KVStore kvstore))
        :bytes (reduce + (map :bytes (vals keys)))
        :state-bytes (reduce + (map :state-bytes (vals keys)))
        :keys keys}))))

(defn soft-cap
  "Returns how many bytes of the host's memory arrays and stores may use together; GPUs have what they have.

  The cap includes memory kept for reuse, which is freed first. An allocation beyond the cap runs a
  garbage collection, then throws code `:out-of-memory`. The cap is the system property
  dev.kvstore.softCap, or 80 percent of the memory of the machine or container. Throws code
  `:invalid-argument` when the property is not a size.

      (pos? (soft-cap)) ;=> true"
  []
  (errors/guard (NativeMemory/softCap)))

(defn set-soft-cap
  "Sets the `soft-cap` to `num-bytes`, and returns nil. Arrays that exist are not touched.

  Throws \"Invalid soft cap\" when it is no integer above 0.

      (set-soft-cap (soft-cap)) ;=> nil"
  [num-bytes]
  (errors/check #(and (int? %) (pos? (long %))) num-bytes "soft cap" "an integer above 0")
  (errors/guard (NativeMemory/setSoftCap (long num-bytes))))

(defn trim
  "Gives the native memory that is kept for reuse back to the operating system, and returns nil.

  Throws code `:backend` when the native library cannot be loaded, as every first call does.

      (trim) ;=> nil"
  []
  (errors/guard (NativeMemory/trim)))

(defn register-mxbean
  "Shows `stats` and the `soft-cap` to monitoring tools as the MXBean dev.kvstore:type=NativeMemory.

  Returns nil; harmless when repeated. Throws code `:internal` when the platform refuses it.

      (register-mxbean) ;=> nil"
  []
  (errors/guard (NativeMemory/registerMXBean)))
