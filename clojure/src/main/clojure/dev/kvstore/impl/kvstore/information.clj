(ns dev.kvstore.impl.kvstore.information
  "Information about stores and this process. org.apache.clojure-mxnet.kvstore exports these
  functions.

    doctor stats                                this machine; statistics of stores and native memory
    soft-cap set-soft-cap trim register-mxbean  limits and monitoring of native memory"
  (:require [clojure.string :as string]
            [dev.kvstore.impl.datafy :as datafy]
            [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.memory :as memory])
  (:import (dev.kvstore Doctor KVStore NativeMemory Snapshot)
           (java.util Locale)))

(set! *warn-on-reflection* true)

(defn doctor
  "Returns a map of what this library found on this machine, as strings, and why a part is not
  available.

  It contains the files that were tried for the native library, its version, the devices and the
  memory in use. It never throws.

      (string? (:platform (doctor))) ;=> true"
  []
  (apply array-map
         (mapcat (fn [[fact text]]
                   [(keyword (string/replace (.toLowerCase ^String fact Locale/ROOT) " " "-"))
                    text])
                 (Doctor/report))))

(defn stats
  "Returns the statistics of `kvstore`, a store or a snapshot, as a map. Without `kvstore`, returns
  the usage of native memory.

  The statistics of a store are

  - `:type`;
  - `:bytes`, the size of all values, and `:state-bytes`, the size of all optimizer states;
  - `:keys`, a map from each key to its `:shape`, `:dtype`, `:context`, `:bytes`, `:state-bytes`
    and `:pushes` (the number of pushes that have changed it), in the order of initialization.

  The usage of native memory is

  - `:live-bytes`, which are in use, and `:pooled-bytes`, which are kept for reuse;
  - `:soft-cap`, the limit of host memory;
  - `:open`, the number of open arrays and stores, and `:collected-unclosed`, the number that was
    garbage-collected without having been closed;
  - `:devices`, a map from \"cpu(0)\" and the name of each GPU to its `:live-bytes`,
    `:pooled-bytes` and, for a GPU, `:total-bytes`.

  An updater may call this. Throws code `:closed` if `kvstore` is closed.

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
  "Returns the limit of the host memory of all arrays and stores, in bytes. The limit of a GPU is
  its own memory.

  The cap includes free memory that is kept for reuse; the library releases that memory first. An
  allocation beyond the cap runs a garbage collection, then throws code `:out-of-memory`. The cap
  is the system property dev.kvstore.softCap, or 80 percent of the memory of the machine or
  container. Throws code `:invalid-argument` if the property is not a size.

      (pos? (soft-cap)) ;=> true"
  []
  (errors/guard (NativeMemory/softCap)))

(defn set-soft-cap
  "Sets the `soft-cap` to `num-bytes`, and returns nil. Existing arrays are not affected.

  Throws \"Invalid soft cap\" if `num-bytes` is not an integer above 0.

      (set-soft-cap (soft-cap)) ;=> nil"
  [num-bytes]
  (errors/check #(and (int? %) (pos? (long %))) num-bytes "soft cap" "an integer above 0")
  (errors/guard (NativeMemory/setSoftCap (long num-bytes))))

(defn trim
  "Returns the free native memory that is kept for reuse to the operating system. The result is
  nil.

  Throws code `:backend` if the native library cannot be loaded.

      (trim) ;=> nil"
  []
  (errors/guard (NativeMemory/trim)))

(defn register-mxbean
  "Registers the MXBean dev.kvstore:type=NativeMemory, which shows `stats` and the `soft-cap` to
  monitoring tools.

  Returns nil. Calling this again has no effect. Throws code `:internal` if the platform rejects
  the bean.

      (register-mxbean) ;=> nil"
  []
  (errors/guard (NativeMemory/registerMXBean)))
