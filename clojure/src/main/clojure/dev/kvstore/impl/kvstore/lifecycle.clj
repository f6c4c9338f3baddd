(ns dev.kvstore.impl.kvstore.lifecycle
  "Creating and closing stores. org.apache.clojure-mxnet.kvstore exports these functions.

    create dispose type  creating and closing a store; its type"
  (:refer-clojure :exclude [type])
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.launch :as launch]
            [dev.kvstore.impl.net-options :as net-options])
  (:import (dev.kvstore KVStore)
           (java.lang AutoCloseable)))

(set! *warn-on-reflection* true)

(defn create
  "Returns a new store of the type `name`, \"local\" by default.

  \"local\" sums values on the host, \"device\" on the device of the values. The result is the
  same. \"dist_sync\" and \"dist_device_sync\" do so in each process of an MPI job, and then sum
  over all processes. \"dist_async\" connects to the servers in KVSTORE_SERVERS or in `opts`, or
  to those of a job that MXNet's launchers have started. It has the values of the servers.
  \"dist_quorum\" does so with rounds: a push waits for those of other workers, and their sum is one
  push.

  Only stores on servers have options:

    :servers       a list of addresses, each \"HOST:PORT\"; the same list for all members
    :name          the name of this member; by default, a new one
    :timeout       how many seconds a call waits; KVSTORE_DIST_TIMEOUT or 300 by default
    :staleness     a pull waits while a live worker is more than this number of pushes behind
    :reader        whether this member never pushes
    :connections   the number of connections to each server, 1 by default
    :divide-above  the size in bytes above which rows are divided among the servers; 4 MiB by
                   default
    :certificates  a folder with ca.pem, cert.pem and key.pem, for servers with certificates; the
                   role in cert.pem limits what this member may do, as in kvstore-server/start;
                   KVSTORE_CERTIFICATES by default
    :insecure      whether it may connect to other machines without certificates; false by default,
                   or the value of KVSTORE_INSECURE
    :quorum        the least number of workers in a round, which \"dist_quorum\" needs; a round
                   closes when all live workers have pushed, or this number have and :grace is over
    :grace         how many seconds a round with this number waits for the others, 1 by default
    :late          :reject if a push that is late for its round throws code `:late-push`, which is
                   the default, or :next if it belongs to the next round
    :weight        the weight of this worker, if rounds compute the weighted mean of the pushes
                   instead of their sum; `set-weight` changes it
    :coordinator   \"etcd://HOST:PORT,../GROUP\", where the servers of the group are listed, instead
                   of :servers; a server that is started again elsewhere is found there;
                   KVSTORE_COORDINATOR by default
    :coordinator-certificates
                   a folder with the certificates for the coordinator;
                   KVSTORE_COORDINATOR_CERTIFICATES by default

  If :certificates or :insecure is in the map, neither is read from the environment.

  Throws code `:invalid-argument` if the type is unknown; the message lists the known types. Throws
  code `:unsupported` if this version does not support the type, or a server rejects the certificate
  or its role, and code `:timeout` if a server does not answer.

      (with-open [kv (create \"device\")] (type kv)) ;=> \"device\""
  (^dev.kvstore.KVStore [] (create "local"))
  (^dev.kvstore.KVStore [name] (create name nil))
  (^dev.kvstore.KVStore [name opts]
   (errors/check #(or (string? %) (keyword? %)) name "name" "a string or keyword")
   (let [options (net-options/store opts)
         store-type (clojure.core/name name)
         environment @launch/environment]
     (errors/guard
       (if (and environment
                (nil? (:servers opts))
                (re-find #"(?i)async|quorum" store-type))
         (KVStore/create store-type options environment)
         (KVStore/create store-type options))))))

(defn dispose
  "Closes `kvstore`, or a snapshot, and returns nil. Closing it again does nothing; any other use
  then throws code `:closed`. `with-open` closes it, too.

  Waits for the checkpoints of a store. Throws the failure of a checkpoint if no call has reported
  it yet. Never throws for a snapshot.

      (dispose (create)) ;=> nil"
  [^AutoCloseable kvstore]
  (errors/guard (.close kvstore)))

(defn type
  "Returns the type of `kvstore` in lower case. Never throws for a store, open or closed.

      (type (create \"LOCAL\")) ;=> \"local\""
  [^KVStore kvstore]
  (errors/guard (.type kvstore)))
