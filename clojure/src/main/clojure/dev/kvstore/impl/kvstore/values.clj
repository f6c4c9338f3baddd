(ns dev.kvstore.impl.kvstore.values
  "Storing and reading values. org.apache.clojure-mxnet.kvstore exports these functions.

    init                   stores a value under a new key
    push pull              sums values into a key; reads it
    pushpull broadcast     push then pull; init then pull
    keys contains? remove  the keys of a store
    version                how many pushes have changed a key"
  (:refer-clojure :exclude [contains? keys remove])
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.options :as options]
            [dev.kvstore.impl.pairs :as pairs])
  (:import (dev.kvstore KVStore OnExisting)))

(set! *warn-on-reflection* true)

(defn- ->on-existing
  ^OnExisting [opts]
  (options/check opts [:on-existing])
  (case (:on-existing opts :reject)
    :reject OnExisting/REJECT
    :keep OnExisting/KEEP
    :replace OnExisting/REPLACE
    (errors/reject "on-existing" ":reject, :keep or :replace" (:on-existing opts))))

(defn- init-pairs
  [^KVStore kvstore values opts]
  (let [on-existing (->on-existing opts)]
    (errors/guard (.init kvstore (pairs/names values) (pairs/values values) on-existing))))

(defn init
  "Stores a copy of the value of each key, and returns `kvstore`.

  `ks` and `vs` have one of the four forms, or `key->value` is a map. Throws \"Invalid keys\",
  \"Invalid values\", code `:length-mismatch`, and code `:key-exists` if a key is already
  initialized or is twice in the call (a key with a list of several values is).

  `:on-existing` in the map `opts` decides what happens to keys that are already initialized:
  `:reject`, the default, fails; `:keep` keeps their values; `:replace` removes the keys first.

      (init kv [\"c\" \"d\"] [(ndarray/ones [2]) (ndarray/zeros [3])])
      (init kv {:c (ndarray/zeros [2])} {:on-existing :keep})"
  {:arglists '(^dev.kvstore.KVStore [kvstore key->value]
               ^dev.kvstore.KVStore [kvstore key->value opts]
               ^dev.kvstore.KVStore [kvstore ks vs]
               ^dev.kvstore.KVStore [kvstore ks vs opts])}
  ([kvstore key->value]
   (init-pairs kvstore (pairs/map-pairs key->value "values") nil))
  ([kvstore ks x]
   (if (map? ks)
     (init-pairs kvstore (pairs/map-pairs ks "values") x)
     (init-pairs kvstore (pairs/pairs ks x "values") nil)))
  ([kvstore ks vs opts]
   (init-pairs kvstore (pairs/pairs ks vs "values") opts)))

(defn- push-pairs
  [^KVStore kvstore values priority]
  (errors/check errors/int32? priority "priority" "an integer of 32 bits")
  (errors/guard (.push kvstore (pairs/names values) (pairs/values values) (int priority))))

(defn push
  "Sums the values of each key, passes the sum to the optimizer or updater, and returns `kvstore`.

  Without either, the sum replaces the stored value. Values may be row-sparse
  (`ndarray/row-sparse-array`). They have the effect of their dense form, except with an optimizer
  with `:lazy-update`, which changes only their rows. `ks` and `vs` have one of the four forms, or
  `key->value` is a map. `priority`, 0 by default, is a hint for the order of network transfers.
  Throws \"Invalid keys\", \"Invalid values\", \"Invalid priority\", code `:length-mismatch`, code
  `:key-not-found`, code `:spec-mismatch` if a shape or dtype differs from that of the stored
  value, and what an updater throws.

      (push kv \"a\" (ndarray/ones [2]))
      (push kv [\"a\" \"b\"] [[x0 x1] [y0 y1]] 1)"
  {:arglists '(^dev.kvstore.KVStore [kvstore key->value]
               ^dev.kvstore.KVStore [kvstore key->value priority]
               ^dev.kvstore.KVStore [kvstore ks vs]
               ^dev.kvstore.KVStore [kvstore ks vs priority])}
  ([kvstore key->value] (push-pairs kvstore (pairs/map-pairs key->value "values") 0))
  ([kvstore ks x]
   (if (map? ks)
     (push-pairs kvstore (pairs/map-pairs ks "values") x)
     (push kvstore ks x 0)))
  ([kvstore ks vs priority]
   (push-pairs kvstore (pairs/pairs ks vs "values") priority)))

(defn- pull-pairs
  [^KVStore kvstore outs priority]
  (errors/check errors/int32? priority "priority" "an integer of 32 bits")
  (errors/guard (.pull kvstore (pairs/names outs) (pairs/arrays outs) (int priority))))

(defn- pull-new
  [^KVStore kvstore ks]
  (let [names (pairs/key-names ks)
        arrays (errors/guard (vec (.pull kvstore names)))]
    (if (pairs/single-key? ks) (first arrays) arrays)))

(defn pull
  "Writes the newest value of each key into each of its `outs`, and returns `kvstore`.

  `ks` and `outs` have one of the four forms, or `key->out` is a map. The value is converted to
  the dtype and context of the out. With keys alone, returns new arrays instead: one for a key, a
  vector for a list of keys. `priority`, 0 by default, is a hint for the order of network
  transfers. Throws \"Invalid keys\", \"Invalid outs\", \"Invalid priority\", code
  `:length-mismatch`, code `:key-not-found`, and code `:spec-mismatch` if a shape differs from
  that of the stored value.

      (pull kv \"a\" out)
      (pull kv [\"a\" \"b\"] [[a0 a1] [b0 b1]])
      (ndarray/->vec (pull kv \"a\"))"
  {:arglists '([kvstore ks]
               [kvstore key->out]
               ^dev.kvstore.KVStore [kvstore key->out priority]
               ^dev.kvstore.KVStore [kvstore ks outs]
               ^dev.kvstore.KVStore [kvstore ks outs priority])}
  ([kvstore ks]
   (if (map? ks)
     (pull-pairs kvstore (pairs/map-pairs ks "outs") 0)
     (pull-new kvstore ks)))
  ([kvstore ks x]
   (if (map? ks)
     (pull-pairs kvstore (pairs/map-pairs ks "outs") x)
     (pull kvstore ks x 0)))
  ([kvstore ks outs priority]
   (pull-pairs kvstore (pairs/pairs ks outs "outs") priority)))

(defn- pushpull-pairs
  [^KVStore kvstore values outs priority]
  (errors/check errors/int32? priority "priority" "an integer of 32 bits")
  (errors/guard
    (.pushpull kvstore (pairs/names values) (pairs/values values)
               (pairs/names outs) (pairs/arrays outs) (int priority))))

(defn pushpull
  "Pushes `vs`, pulls into `outs`, and returns `kvstore`. Without `outs`, the result is written
  into the values.

  `ks` and `vs`, `ks` and `outs`, and `priority` are as for `push` and `pull`. The map
  `key->value` contains the values to push, and `key->out` the arrays to pull into. Errors are
  those of `push` and `pull`; both are checked before the push.

      (pushpull kv \"a\" [g0 g1] [w0 w1])
      (pushpull kv {\"a\" [g0 g1]} {\"a\" w0} 1)"
  {:arglists '(^dev.kvstore.KVStore [kvstore key->value]
               ^dev.kvstore.KVStore [kvstore key->value priority]
               ^dev.kvstore.KVStore [kvstore key->value key->out]
               ^dev.kvstore.KVStore [kvstore key->value key->out priority]
               ^dev.kvstore.KVStore [kvstore ks vs]
               ^dev.kvstore.KVStore [kvstore ks vs outs]
               ^dev.kvstore.KVStore [kvstore ks vs outs priority])}
  ([kvstore key->value]
   (pushpull kvstore key->value 0))
  ([kvstore ks x]
   (cond
     (not (map? ks)) (pushpull kvstore ks x x 0)
     (map? x) (pushpull kvstore ks x 0)
     :else (let [values (pairs/map-pairs ks "values")]
             (pushpull-pairs kvstore values values x))))
  ([kvstore ks x y]
   (if (map? ks)
     (pushpull-pairs kvstore (pairs/map-pairs ks "values") (pairs/map-pairs x "outs") y)
     (pushpull kvstore ks x y 0)))
  ([kvstore ks vs outs priority]
   (pushpull-pairs kvstore (pairs/pairs ks vs "values") (pairs/pairs ks outs "outs") priority)))

(defn- broadcast-pairs
  [^KVStore kvstore values outs]
  (errors/guard
    (.broadcast kvstore (pairs/names values) (pairs/values values)
                (pairs/names outs) (pairs/arrays outs) (int 0))))

(defn broadcast
  "Stores a value under each new key, like `init`, pulls it into `outs`, and returns `kvstore`.

  `ks` and `vs`, and `ks` and `outs`, have one of the four forms. The map `key->value` contains
  the values to store, and `key->out` the arrays to pull into. Errors are those of `init` and
  `pull`.

      (broadcast kv \"w\" weights [w0 w1])
      (broadcast kv {:v weights} {:v [w0 w1]})"
  (^dev.kvstore.KVStore [kvstore key->value key->out]
   (broadcast-pairs kvstore
                    (pairs/map-pairs key->value "values")
                    (pairs/map-pairs key->out "outs")))
  (^dev.kvstore.KVStore [kvstore ks vs outs]
   (broadcast-pairs kvstore (pairs/pairs ks vs "values") (pairs/pairs ks outs "outs"))))

(defn keys
  "Returns the keys of `kvstore` as a vector of strings, in the order of initialization.

  Throws code `:closed` if `kvstore` is closed.

      (keys (init (create) [\"b\" \"a\"] (repeat 2 (ndarray/ones [2])))) ;=> [\"b\" \"a\"]"
  [^KVStore kvstore]
  (errors/guard (vec (.keys kvstore))))

(defn version
  "Returns how many pushes of all workers have changed the key `k` of `kvstore` since it was
  initialized.

  Throws code `:key-not-found` if `k` is not initialized.

      (version (push (init kv \"w\" (ndarray/ones [2])) \"w\" (ndarray/ones [2])) \"w\") ;=> 1"
  [^KVStore kvstore k]
  (let [key-name (pairs/key-name k)]
    (errors/guard (.version kvstore key-name))))

(defn contains?
  "Returns whether the key `k` of `kvstore` is initialized. Throws \"Invalid keys\" if `k` is not a
  key.

      (contains? (create) :a) ;=> false"
  [^KVStore kvstore k]
  (let [key-name (pairs/key-name k)]
    (errors/guard (.contains kvstore key-name))))

(defn remove
  "Removes `ks`, one key or a list of keys, with their values and optimizer states, and returns
  `kvstore`.

  Throws \"Invalid keys\", and code `:key-not-found` if a key is not initialized.

      (remove kv [\"a\" \"b\"])"
  ^dev.kvstore.KVStore [^KVStore kvstore ks]
  (let [names (pairs/key-names ks)]
    (errors/guard (.remove kvstore names))))
