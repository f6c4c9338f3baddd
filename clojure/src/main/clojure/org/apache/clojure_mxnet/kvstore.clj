(ns org.apache.clojure-mxnet.kvstore
  "A store of named arrays that many devices share.

  A store's life
    create dispose type
  What there is
    doctor                     this machine and this library
    stats                      keys with what they hold; native memory
    soft-cap set-soft-cap trim register-mxbean  limits of native memory, and who sees it
  Values
    init                       puts a value under a key
    push pull                  sums values into a key; reads it
    pushpull broadcast         push then pull; init then pull
    keys contains? remove      what is in the store
  What a push does
    set-updater set-optimizer  a function of yours, or an update rule
    hyper-parameters set-hyper-parameters  of the rule, while it runs
    save-optimizer-states load-optimizer-states
    set-gradient-compression
  Workers
    rank num-workers barrier set-barrier-before-exit num-dead-node send-command-to-servers

  Keys are strings; a keyword or a symbol is a key by its name, without its namespace. Where keys and
  values are taken, four forms will do: a key and an array; a key and a sequential of arrays; keys and as
  many arrays; keys and as many sequentials of arrays. A key that stands several times in a call, as in
  [\"3\" \"3\" \"3\"], has several values: pushed they are summed, pulled each gets the value. A map from
  keys to any of these is both arguments in one. A call is checked whole before it changes anything.

  Failures are `ex-info` with `:kvstore/code`, and `:kvstore/key`, `:kvstore/expected` and `:kvstore/found`
  where they apply. Whatever an updater of yours throws comes out of push as the same object.

      (def kv (create \"local\"))
      (init kv \"w\" (ndarray/zeros [2 3]))
      (push kv \"w\" [(ndarray/ones [2 3]) (ndarray/ones [2 3])])
      (ndarray/->vec (pull kv \"w\")) ;=> [2.0 2.0 2.0 2.0 2.0 2.0]"
  (:refer-clojure :exclude [contains? keys remove type])
  (:require [clojure.string :as string]
            [dev.kvstore.impl.datafy :as datafy]
            [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.hyper-parameters :as hyper-parameters]
            [dev.kvstore.impl.options :as options]
            [dev.kvstore.impl.pairs :as pairs]
            [dev.kvstore.impl.printing]
            [dev.kvstore.impl.updater :as updater])
  (:import (dev.kvstore Doctor Existing KVStore NativeMemory Optimizer)))

(set! *warn-on-reflection* true)

(defn create
  "Returns a new store of the kind `name`, \"local\" by default.

  \"local\" sums on the host, \"device\" where the values of a key are; the result is the same. Throws code
  `:invalid-argument`, listing the kinds that there are, for a name that is none of them, and code
  `:unsupported` for a kind that is not built in yet.

      (with-open [kv (create \"device\")] (type kv)) ;=> \"device\""
  (^dev.kvstore.KVStore [] (create "local"))
  (^dev.kvstore.KVStore [name]
   (errors/check #(or (string? %) (keyword? %)) name "name")
   (errors/guard (KVStore/create (clojure.core/name name)))))

(defn dispose
  "Frees `kvstore` and all it holds, and returns nil. Doing so twice is fine; any other use of it is code
  `:closed`. `with-open` disposes.

      (dispose (create)) ;=> nil"
  [^KVStore kvstore]
  (errors/guard (.close kvstore)))

(defn type
  "Returns the kind of `kvstore` in lower case.

      (type (create \"LOCAL\")) ;=> \"local\""
  [^KVStore kvstore]
  (errors/guard (.type kvstore)))

(def ^:private told-twice
  "Facts of the report that it has once more, with units."
  #{:live-bytes :pooled-bytes})

(defn doctor
  "Returns a map of what this library found on this machine, in words, and why something is missing.

  The files tried for the native library, its version, devices, memory in use. It never throws.

      (string? (:platform (doctor))) ;=> true"
  []
  (apply array-map
         (mapcat (fn [[fact text]]
                   (let [k (keyword (string/replace (string/lower-case fact) " " "-"))]
                     (when-not (told-twice k) [k text])))
                 (Doctor/report))))

(defn- memory-data
  []
  {:live-bytes (NativeMemory/liveBytes)
   :pooled-bytes (NativeMemory/pooledBytes)
   :soft-cap (NativeMemory/softCap)
   :open (NativeMemory/open)
   :collected-unclosed (NativeMemory/collectedUnclosed)})

(defn stats
  "Returns numbers about `kvstore`, or about all native memory, as a map.

  Of a store: its `:type`, `:bytes` of all values, `:state-bytes` of what an optimizer keeps, and `:keys`,
  a map of key to `:shape`, `:dtype`, `:context`, `:bytes`, `:state-bytes` and `:pushes`, the number of
  pushes that have changed it. Without a store: `:live-bytes` in use, `:pooled-bytes` kept for reuse, the
  `:soft-cap`, how many arrays and stores are `:open`, and how many were `:collected-unclosed`, by the
  garbage collector. An updater may call it.

      (:bytes (stats (init (create) \"w\" (ndarray/ones [2 3])))) ;=> 24"
  ([] (errors/guard (memory-data)))
  ([^KVStore kvstore]
   (errors/guard
     (let [keys (datafy/keys-data kvstore)]
       {:type (.type kvstore)
        :bytes (reduce + (map :bytes (vals keys)))
        :state-bytes (reduce + (map :state-bytes (vals keys)))
        :keys keys}))))

(defn soft-cap
  "Returns how many bytes of native memory arrays and stores may use together.

  What would exceed it first asks for a garbage collection; then it is code `:out-of-memory`. It is 80
  percent of the memory of the machine unless the system property dev.kvstore.softCap says otherwise.

      (pos? (soft-cap)) ;=> true"
  []
  (errors/guard (NativeMemory/softCap)))

(defn set-soft-cap
  "Sets the `soft-cap` to `num-bytes`, and returns nil. Arrays that exist are not touched.

  Throws \"Invalid soft cap\" when it is no integer above 0.

      (set-soft-cap (soft-cap)) ;=> nil"
  [num-bytes]
  (errors/check #(and (int? %) (pos? (long %))) num-bytes "soft cap")
  (errors/guard (NativeMemory/setSoftCap (long num-bytes))))

(defn trim
  "Gives the native memory that is kept for reuse back to the operating system, and returns nil.

      (trim) ;=> nil"
  []
  (errors/guard (NativeMemory/trim)))

(defn register-mxbean
  "Shows `stats` and the `soft-cap` to monitoring tools as the MXBean dev.kvstore:type=NativeMemory.

  Returns nil; harmless when repeated.

      (register-mxbean) ;=> nil"
  []
  (errors/guard (NativeMemory/registerMXBean)))

(defn- ->existing
  ^Existing [opts]
  (options/check opts [:existing])
  (case (:existing opts :error)
    :error Existing/ERROR
    :keep Existing/KEEP
    :replace Existing/REPLACE
    (errors/invalid "Invalid existing" (:existing opts))))

(defn- init-pairs
  [^KVStore kvstore values opts]
  (let [existing (->existing opts)]
    (errors/guard (.init kvstore (pairs/names values) (pairs/arrays values) existing))))

(defn init
  "Stores a copy of the value of each key, and returns `kvstore`.

  `ks` and `vs` have one of the four forms, or `key->value` is a map. Throws \"Invalid keys\", \"Invalid
  values\", code `:length-mismatch`, and code `:key-exists` when a key is in the store already or stands
  twice in the call, as one with a list of values does.

  The option `:existing` says what becomes of keys that are in the store: `:error`, the default; `:keep`, which
  leaves them as they are; `:replace`, which removes them first.

      (init kv [\"c\" \"d\"] [(ndarray/ones [2]) (ndarray/zeros [3])])
      (init kv {:c (ndarray/zeros [2])} {:existing :keep})"
  (^dev.kvstore.KVStore [kvstore key->value]
   (init-pairs kvstore (pairs/map-pairs key->value "values") nil))
  (^dev.kvstore.KVStore [kvstore ks-or-key->value vs-or-opts]
   (if (map? ks-or-key->value)
     (init-pairs kvstore (pairs/map-pairs ks-or-key->value "values") vs-or-opts)
     (init-pairs kvstore (pairs/pairs ks-or-key->value vs-or-opts "values") nil)))
  (^dev.kvstore.KVStore [kvstore ks vs opts]
   (init-pairs kvstore (pairs/pairs ks vs "values") opts)))

(defn- push-pairs
  [^KVStore kvstore values priority]
  (errors/check errors/int32? priority "priority")
  (errors/guard (.push kvstore (pairs/names values) (pairs/arrays values) (int priority))))

(defn push
  "Sums the values of each key, gives the sum to the optimizer or updater, and returns `kvstore`.

  With neither of them the sum becomes the value. `ks` and `vs` have one of the four forms, or a map
  stands for both. `priority`, 0 by default, is a hint for the order of network transfers. Throws
  \"Invalid keys\", \"Invalid values\", \"Invalid priority\", code `:length-mismatch`, code `:key-not-found`,
  code `:spec-mismatch` when a shape or dtype is not that of the key, and what an updater throws.

      (push kv \"a\" (ndarray/ones [2]))
      (push kv [\"a\" \"b\"] [[x0 x1] [y0 y1]] 1)"
  (^dev.kvstore.KVStore [kvstore key->value] (push-pairs kvstore (pairs/map-pairs key->value "values") 0))
  (^dev.kvstore.KVStore [kvstore ks-or-key->value vs-or-priority]
   (if (map? ks-or-key->value)
     (push-pairs kvstore (pairs/map-pairs ks-or-key->value "values") vs-or-priority)
     (push kvstore ks-or-key->value vs-or-priority 0)))
  (^dev.kvstore.KVStore [kvstore ks vs priority]
   (push-pairs kvstore (pairs/pairs ks vs "values") priority)))

(defn- pull-pairs
  [^KVStore kvstore outs priority]
  (errors/check errors/int32? priority "priority")
  (errors/guard (.pull kvstore (pairs/names outs) (pairs/arrays outs) (int priority))))

(defn- pull-new
  [^KVStore kvstore ks]
  (let [names (pairs/key-names ks)
        arrays (errors/guard (vec (.pull kvstore names)))]
    (if (sequential? ks) arrays (first arrays))))

(defn pull
  "Writes the newest value of each key into each of its `outs`, and returns `kvstore`.

  `ks` and `outs` have one of the four forms, or `key->out` is a map; an out receives the value in its own
  dtype and context. With keys alone it returns new arrays instead: one for a key, a vector for a
  sequential of keys. `priority`, 0 by default, is a hint for the order of network transfers. Throws
  \"Invalid keys\", \"Invalid outs\", \"Invalid priority\", code `:length-mismatch`, code `:key-not-found`, and
  code `:spec-mismatch` when a shape is not that of the key.

      (pull kv \"a\" out)
      (pull kv [\"a\" \"b\"] [[a0 a1] [b0 b1]])
      (ndarray/->vec (pull kv \"a\"))"
  ([kvstore ks-or-key->out]
   (if (map? ks-or-key->out)
     (pull-pairs kvstore (pairs/map-pairs ks-or-key->out "outs") 0)
     (pull-new kvstore ks-or-key->out)))
  (^dev.kvstore.KVStore [kvstore ks-or-key->out outs-or-priority]
   (if (map? ks-or-key->out)
     (pull-pairs kvstore (pairs/map-pairs ks-or-key->out "outs") outs-or-priority)
     (pull kvstore ks-or-key->out outs-or-priority 0)))
  (^dev.kvstore.KVStore [kvstore ks outs priority]
   (pull-pairs kvstore (pairs/pairs ks outs "outs") priority)))

(defn- pushpull-pairs
  [^KVStore kvstore values outs priority]
  (errors/check errors/int32? priority "priority")
  (errors/guard
    (.pushpull kvstore (pairs/names values) (pairs/arrays values)
               (pairs/names outs) (pairs/arrays outs) (int priority))))

(defn pushpull
  "Pushes `vs`, pulls into `outs`, and returns `kvstore`. Without `outs` the values receive the result.

  Arguments and errors are those of `push` and `pull`; both are checked before the push. Two maps are what to
  push and where to pull.

      (pushpull kv \"a\" [g0 g1] [w0 w1])"
  (^dev.kvstore.KVStore [kvstore key->value]
   (let [values (pairs/map-pairs key->value "values")]
     (pushpull-pairs kvstore values values 0)))
  (^dev.kvstore.KVStore [kvstore ks x]
   (cond
     (not (map? ks)) (pushpull kvstore ks x x 0)
     (map? x) (pushpull kvstore ks x 0)
     :else (let [values (pairs/map-pairs ks "values")]
             (pushpull-pairs kvstore values values x))))
  (^dev.kvstore.KVStore [kvstore ks x y]
   (if (map? ks)
     (pushpull-pairs kvstore (pairs/map-pairs ks "values") (pairs/map-pairs x "outs") y)
     (pushpull kvstore ks x y 0)))
  (^dev.kvstore.KVStore [kvstore ks vs outs priority]
   (pushpull-pairs kvstore (pairs/pairs ks vs "values") (pairs/pairs ks outs "outs") priority)))

(defn- broadcast-pairs
  [^KVStore kvstore values outs]
  (errors/guard
    (.broadcast kvstore (pairs/names values) (pairs/arrays values)
                (pairs/names outs) (pairs/arrays outs) (int 0))))

(defn broadcast
  "Puts a value under each key, as `init` does, pulls it into `outs`, and returns `kvstore`.

  Arguments and errors are those of `init` and `pull`; two maps are what to put and where to pull.

      (broadcast kv \"w\" weights [w0 w1])
      (broadcast kv {:v weights} {:v [w0 w1]})"
  (^dev.kvstore.KVStore [kvstore key->value key->out]
   (broadcast-pairs kvstore (pairs/map-pairs key->value "values") (pairs/map-pairs key->out "outs")))
  (^dev.kvstore.KVStore [kvstore ks vs outs]
   (broadcast-pairs kvstore (pairs/pairs ks vs "values") (pairs/pairs ks outs "outs"))))

(defn keys
  "Returns the keys in `kvstore` as a vector of strings, in the order of their init.

      (keys (init (create) [\"b\" \"a\"] (repeat 2 (ndarray/ones [2])))) ;=> [\"b\" \"a\"]"
  [^KVStore kvstore]
  (errors/guard (vec (.keys kvstore))))

(defn contains?
  "Is the key `k` in `kvstore`? Throws \"Invalid keys\" when `k` is no key.

      (contains? (create) :a) ;=> false"
  [^KVStore kvstore k]
  (let [key-name (pairs/key-name k)]
    (errors/guard (.contains kvstore key-name))))

(defn remove
  "Takes `ks`, one key or a sequential, with all that belongs to them out of `kvstore`, and returns it.

  Throws \"Invalid keys\" and code `:key-not-found`.

      (remove kv [\"a\" \"b\"])"
  ^dev.kvstore.KVStore [^KVStore kvstore ks]
  (let [names (pairs/key-names ks)]
    (errors/guard (.remove kvstore names))))

(defn set-updater
  "Makes `f` what happens to a pushed sum, and returns `kvstore`. With nil the sum replaces the value again.

  `f` is called as (f key pushed stored), once per key and push, in the thread that pushes; it changes the
  array `stored` in place and its result is ignored. Both arrays end with the call. When it throws, the
  key keeps its value and the caller of push gets that very object. Inside it, pull gives the last
  committed value of any key; push, init, remove and the setters of the same store are code
  `:invalid-argument`. Throws \"Invalid updater\" when `f` is neither nil nor a function.

      (set-updater kv (fn [_ pushed stored] (ndarray/+= stored pushed)))"
  ^dev.kvstore.KVStore [^KVStore kvstore f]
  (errors/check #(or (nil? %) (ifn? %)) f "updater")
  (errors/guard (.setUpdater kvstore (some-> f updater/java))))

(defn set-optimizer
  "Makes `optimizer` what happens to a pushed sum, with a new state for every key; returns `kvstore`.

  Throws \"Invalid optimizer\" for what the optimizer namespace did not make.

      (set-optimizer kv (optimizer/sgd {:learning-rate 0.1}))"
  ^dev.kvstore.KVStore [^KVStore kvstore ^Optimizer optimizer]
  (errors/check #(instance? Optimizer %) optimizer "optimizer")
  (errors/guard (.setOptimizer kvstore optimizer)))

(defn hyper-parameters
  "Returns the hyper-parameters of the optimizer that runs on `kvstore`, as a map of keyword to number.

  Throws code `:invalid-argument` when it has none.

      (:momentum (hyper-parameters (set-optimizer (create) (optimizer/sgd {:momentum 0.5})))) ;=> 0.5"
  [^KVStore kvstore]
  (hyper-parameters/options (errors/guard (.hyperParameters kvstore))))

(defn set-hyper-parameters
  "Changes hyper-parameters of the optimizer that runs on `kvstore`, all or none, and returns `kvstore`.

  States and counts stay. Throws \"Invalid hyper-parameters\" for what is no map of keyword to number, and
  code `:invalid-argument` when there is no optimizer, when it has no such hyper-parameter, and for a number
  that it cannot have.

      (set-hyper-parameters kv {:learning-rate 0.001})"
  ^dev.kvstore.KVStore [^KVStore kvstore changed]
  (errors/check #(and (map? %) (every? keyword? (clojure.core/keys %)) (every? number? (vals %)))
                changed "hyper-parameters")
  (errors/guard (.setHyperParameters kvstore (hyper-parameters/native-values changed))))

(defn set-gradient-compression
  "Lets pushed values travel as few bits each, and returns `kvstore`. Code `:unsupported` so far.

  `params` is a map of `:type`, :2bit or :1bit, and `:threshold`, a number above 0, 0.5 by default. Throws
  \"Invalid gradient compression\" for anything else.

      (set-gradient-compression kv {:type :2bit :threshold 0.5})"
  ^dev.kvstore.KVStore [^KVStore kvstore params]
  (let [{:keys [type threshold] :or {threshold 0.5}} params]
    (errors/check #(and (map? %) (every? #{:type :threshold} (clojure.core/keys %))
                        (or (string? type) (keyword? type)) (number? threshold))
                  params "gradient compression")
    (errors/guard (.setGradientCompression kvstore (name type) (double threshold)))))

(defn save-optimizer-states
  "Writes the optimizer's state to the file `fname`, and returns `kvstore`. Code `:unsupported` so far.

  Throws \"Invalid filename\" when `fname` is no string.

      (save-optimizer-states kv \"sgd.states\")"
  ^dev.kvstore.KVStore [^KVStore kvstore ^String fname]
  (errors/check string? fname "filename")
  (errors/guard (.saveOptimizerStates kvstore fname)))

(defn load-optimizer-states
  "Reads the optimizer's state from the file `fname`, and returns `kvstore`. Code `:unsupported` so far.

  Throws \"Invalid filename\" when `fname` is no string.

      (load-optimizer-states kv \"sgd.states\")"
  ^dev.kvstore.KVStore [^KVStore kvstore ^String fname]
  (errors/check string? fname "filename")
  (errors/guard (.loadOptimizerStates kvstore fname)))

(defn rank
  "Returns the number of this worker among all, from 0; 0 on one machine.

      (rank (create)) ;=> 0"
  [^KVStore kvstore]
  (errors/guard (.rank kvstore)))

(defn num-workers
  "Returns how many workers share `kvstore`; 1 on one machine.

      (num-workers (create)) ;=> 1"
  [^KVStore kvstore]
  (errors/guard (.numWorkers kvstore)))

(defn barrier
  "Waits until every worker has come here, and returns `kvstore`. On one machine it returns at once.

      (barrier kv)"
  ^dev.kvstore.KVStore [^KVStore kvstore]
  (errors/guard (.barrier kvstore)))

(defn set-barrier-before-exit
  "Says whether a worker that leaves waits for the others, as a boolean; returns `kvstore`.

  Throws \"Invalid barrier-before-exit\".

      (set-barrier-before-exit kv false)"
  ^dev.kvstore.KVStore [^KVStore kvstore barrier-before-exit]
  (errors/check boolean? barrier-before-exit "barrier-before-exit")
  (errors/guard (.setBarrierBeforeExit kvstore (boolean barrier-before-exit))))

(defn num-dead-node
  "Returns how many nodes of the group `node-id` are dead (1 scheduler, 2 servers, 4 workers, or a sum).

  On one machine it is 0. Throws \"Invalid node-id\" when it is no integer.

      (num-dead-node (create) 4) ;=> 0"
  [^KVStore kvstore node-id]
  (errors/check errors/int32? node-id "node-id")
  (errors/guard (.numDeadNode kvstore (int node-id))))

(defn send-command-to-servers
  "Sends the command `head`, an integer, with the string `body` to every server; returns `kvstore`.

  On one machine there are none. Throws \"Invalid head\" and \"Invalid body\".

      (send-command-to-servers kv 7 \"hello\")"
  ^dev.kvstore.KVStore [^KVStore kvstore head body]
  (errors/check errors/int32? head "head")
  (errors/check string? body "body")
  (errors/guard (.sendCommandToServers kvstore (int head) ^String body)))
