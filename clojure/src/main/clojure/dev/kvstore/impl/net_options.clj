(ns dev.kvstore.impl.net-options
  "Options of stores on servers, and of servers.

    store         the NetStoreOptions of a map
    server        the ServerOptions of a map
    server-names  the names of the options of servers
    weight        the weight of a worker as a double"
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.options :as options]
            [dev.kvstore.impl.paths :as paths])
  (:import (dev.kvstore LatePush NetStoreOptions ServerOptions)
           (java.time Duration)))

(set! *warn-on-reflection* true)

(defn- seconds
  "Returns the number of seconds `x` as a Duration. `least` is the smallest number as text."
  (^Duration [x what] (seconds x what "1e-9"))
  (^Duration [x what least]
   (errors/check #(and (number? %) (<= (Double/parseDouble least) (double %) 1e9)) x what
                 (str "a number of seconds, from " least " to 1e9"))
   (Duration/ofNanos (long (* 1e9 (double x))))))

(defn- at-least
  ^long [x least what]
  (errors/check #(and (int? %) (<= (long least) (long %))) x what
                (str "an integer of at least " least))
  (long x))

(defn- int32
  "Returns the Java int `x`, which is at least `least`."
  [x least what]
  (at-least x least what)
  (errors/check errors/int32? x what "an integer of 32 bits")
  (int x))

(defn- positive-int
  "Returns the Java int `x`."
  [x what]
  (int32 x 1 what))

(defn- flag
  [x what]
  (errors/check boolean? x what "a boolean")
  (boolean x))

(defn- addresses
  ^"[Ljava.lang.String;" [x what]
  (let [listed (if (string? x) [x] x)]
    (errors/check #(and (sequential? %) (seq %) (every? string? %)) listed what
                  "a list of addresses, each \"HOST:PORT\"")
    (into-array String listed)))

(defn- url
  ^String [x]
  (errors/check string? x "coordinator" "a string, \"etcd://HOST:PORT/GROUP\"")
  x)

(defn weight
  "Returns the number `x`, the weight of a worker, as a double. Throws \"Invalid weight\" unless it
  is finite and above 0."
  ^double [x]
  (errors/check #(and (number? %) (< 0.0 (double %) Double/POSITIVE_INFINITY)) x "weight"
                "a finite number above 0")
  (double x))

(defn- late
  ^LatePush [x]
  (case x
    :reject LatePush/REJECT
    :next LatePush/NEXT
    (errors/reject "late" ":reject or :next" x)))

(defn- set-option
  "Returns `options` with the option `k` set to `v`, for stores."
  ^NetStoreOptions [^NetStoreOptions options k v]
  (case k
    (:servers :coordinator) options
    :coordinator-certificates (.coordinatorCertificates options (paths/->path v))
    :name (do (errors/check string? v "name" "a string")
              (.name options v))
    :timeout (.timeout options (seconds v "timeout"))
    :staleness (.staleness options (at-least v 0 "staleness"))
    :reader (.reader options (flag v "reader"))
    :connections (.connections options (positive-int v "connections"))
    :divide-above (.divideAbove options (at-least v 0 "divide-above"))
    :certificates (.certificates options (paths/->path v))
    :insecure (.insecure options (flag v "insecure"))
    :quorum (.quorum options (positive-int v "quorum"))
    :grace (.grace options (seconds v "grace" "0"))
    :late (.late options (late v))
    :weight (.weight options (weight v))))

(defn store
  "Returns the options of a store on servers in the map `opts`, or the defaults for nil."
  ^NetStoreOptions [opts]
  (options/check opts [:servers :name :timeout :staleness :reader :connections :divide-above
                       :certificates :insecure :quorum :grace :late :weight :coordinator
                       :coordinator-certificates])
  (let [{:keys [servers coordinator]} opts]
    (when (some? coordinator)
      (errors/check nil? servers "servers" "no addresses beside a coordinator"))
    (reduce-kv set-option
               (cond
                 (some? servers) (NetStoreOptions/ofServers (addresses servers "servers"))
                 (some? coordinator) (NetStoreOptions/ofCoordinator (url coordinator))
                 :else (NetStoreOptions/ofEnvironment))
               (or opts {}))))

(def server-names
  "The names of the options of servers, except the address."
  [:config :store :checkpoints :recovery :save-every :journal :journal-mode :journal-required
   :lease :certificates :insecure :peer-connections :peer-bytes :keys :metrics :status-page
   :followers :coordinator :coordinator-certificates :server-index :num-servers :advertise])

(defn- set-server-option
  "Returns `options` with the option `k` set to `v`, for servers."
  ^ServerOptions [^ServerOptions options k v]
  (case k
    :config (.config options (paths/->path v))
    :store (do (errors/check #(or (string? %) (keyword? %)) v "store" "a string or keyword")
               (.store options (name v)))
    :checkpoints (.checkpoints options (paths/->path v))
    :recovery (.recovery options (paths/->path v))
    :save-every (.saveEvery options (seconds v "save-every"))
    :journal (.journal options (paths/->path v))
    :journal-mode (do (errors/check #(or (string? %) (keyword? %)) v "journal-mode"
                                    "a string or keyword")
                      (.journalMode options (name v)))
    :journal-required (.journalRequired options (flag v "journal-required"))
    :lease (.lease options (seconds v "lease"))
    :certificates (.certificates options (paths/->path v))
    :insecure (.insecure options (flag v "insecure"))
    :peer-connections (.peerConnections options (positive-int v "peer-connections"))
    :peer-bytes (.peerBytes options (at-least v 1 "peer-bytes"))
    :keys (.keys options (at-least v 1 "keys"))
    :metrics (do (errors/check string? v "metrics" "a string, \"HOST:PORT\"")
                 (.metrics options v))
    :status-page (.statusPage options (flag v "status-page"))
    :followers (.followers options (addresses v "followers"))
    :coordinator (.coordinator options (url v))
    :server-index (.serverIndex options (int32 v 0 "server-index"))
    :num-servers (.numServers options (positive-int v "num-servers"))
    :coordinator-certificates (.coordinatorCertificates options (paths/->path v))
    :advertise (do (errors/check string? v "advertise" "a string, \"HOST:PORT\"")
                   (.advertise options v))))

(defn server
  "Returns the options of a server in the map `opts`, or the defaults for nil. An option that is nil
  has its default. Ignores the functions in `opts`."
  ^ServerOptions [{:keys [address] :as opts}]
  (when (some? address)
    (errors/check string? address "address" "a string, \"HOST:PORT\""))
  (reduce (fn [options k]
            (if-some [v (get opts k)]
              (set-server-option options k v)
              options))
          (if (some? address)
            (ServerOptions/of address)
            (ServerOptions/defaults))
          server-names))
