(ns dev.kvstore.impl.net-options
  "Options of stores on servers, and of servers.

    store    the NetStoreOptions of a map
    server   the ServerOptions of a map"
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.options :as options]
            [dev.kvstore.impl.paths :as paths])
  (:import (dev.kvstore NetStoreOptions ServerOptions)
           (java.time Duration)))

(set! *warn-on-reflection* true)

(defn- seconds
  "Returns the number of seconds `x` as a Duration."
  ^Duration [x what]
  (errors/check #(and (number? %) (<= 1e-9 (double %) 1e9)) x what
                "a number of seconds, from 1e-9 to 1e9")
  (Duration/ofNanos (long (* 1e9 (double x)))))

(defn- at-least
  [x least what]
  (errors/check #(and (int? %) (<= least (long %))) x what
                (str "an integer of at least " least)))

(defn- addresses
  ^"[Ljava.lang.String;" [x]
  (let [listed (if (string? x) [x] x)]
    (errors/check #(and (sequential? %) (seq %) (every? string? %)) listed "servers"
                  "a list of addresses, each \"HOST:PORT\"")
    (into-array String listed)))

(defn- set-option
  "Returns `options` with the option `k` set to `v`, for stores."
  ^NetStoreOptions [^NetStoreOptions options k v]
  (case k
    :servers options
    :name (do (errors/check string? v "name" "a string")
              (.name options v))
    :timeout (.timeout options (seconds v "timeout"))
    :staleness (do (at-least v 0 "staleness")
                   (.staleness options (long v)))
    :reader (do (errors/check boolean? v "reader" "a boolean")
                (.reader options (boolean v)))
    :connections (do (at-least v 1 "connections")
                     (errors/check errors/int32? v "connections" "an integer of 32 bits")
                     (.connections options (int v)))
    :divide-above (do (at-least v 0 "divide-above")
                      (.divideAbove options (long v)))))

(defn store
  "Returns the options of a store on servers in the map `opts`, or the defaults for nil."
  ^NetStoreOptions [opts]
  (options/check opts [:servers :name :timeout :staleness :reader :connections :divide-above])
  (reduce-kv set-option
             (if-some [servers (:servers opts)]
               (NetStoreOptions/ofServers (addresses servers))
               (NetStoreOptions/ofEnvironment))
             (or opts {})))

(defn server
  "Returns the options of a server in the map `opts`, or the defaults for nil."
  ^ServerOptions [{:keys [address store checkpoints lease]}]
  (when (some? address)
    (errors/check string? address "address" "a string, \"HOST:PORT\""))
  (when (some? store)
    (errors/check #(or (string? %) (keyword? %)) store "store" "a string or keyword"))
  (cond-> (if (some? address)
            (ServerOptions/of address)
            (ServerOptions/defaults))
    (some? store) (.store (name store))
    (some? checkpoints) (.checkpoints (paths/->path checkpoints))
    (some? lease) (.lease (seconds lease "lease"))))
