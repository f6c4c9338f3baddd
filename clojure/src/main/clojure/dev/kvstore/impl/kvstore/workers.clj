(ns dev.kvstore.impl.kvstore.workers
  "The worker processes that share a store. org.apache.clojure-mxnet.kvstore exports these
  functions.

    rank num-workers                 the rank of this process; the number of workers
    barrier set-barrier-before-exit  waiting for the other workers
    num-dead-node send-command-to-servers"
  (:require [dev.kvstore.impl.errors :as errors])
  (:import (dev.kvstore KVStore)))

(set! *warn-on-reflection* true)

(defn rank
  "Returns the rank of this process among the workers that share `kvstore`. Ranks start at 0; a
  store of one process has rank 0.

  Throws code `:closed` if `kvstore` is closed.

      (rank (create)) ;=> 0"
  [^KVStore kvstore]
  (errors/guard (.rank kvstore)))

(defn num-workers
  "Returns the number of workers that share `kvstore`; 1 for a store of one process.

  Throws code `:closed` if `kvstore` is closed.

      (num-workers (create)) ;=> 1"
  [^KVStore kvstore]
  (errors/guard (.numWorkers kvstore)))

(defn barrier
  "Waits until every worker has called `barrier`, and returns `kvstore`. Returns immediately for a
  store of one process.

  Throws code `:closed` if `kvstore` is closed.

      (barrier kv)"
  ^dev.kvstore.KVStore [^KVStore kvstore]
  (errors/guard (.barrier kvstore)))

(defn set-barrier-before-exit
  "Sets whether closing `kvstore` waits for the other workers: `barrier-before-exit` is true or
  false. Returns `kvstore`.

  Throws \"Invalid barrier-before-exit\" if it is not a boolean.

      (set-barrier-before-exit kv false)"
  ^dev.kvstore.KVStore [^KVStore kvstore barrier-before-exit]
  (errors/check boolean? barrier-before-exit "barrier-before-exit" "a boolean")
  (errors/guard (.setBarrierBeforeExit kvstore (boolean barrier-before-exit))))

(defn num-dead-node
  "Returns the number of dead processes of `kvstore` in the group `node-id`: 1 selects the
  scheduler, 2 the servers, 4 the workers, and a sum of these selects several groups.

  It is 0 for a store of one process. Throws \"Invalid node-id\" if `node-id` is not an integer.

      (num-dead-node (create) 4) ;=> 0"
  [^KVStore kvstore node-id]
  (errors/check errors/int32? node-id "node-id" "an integer of 32 bits")
  (errors/guard (.numDeadNode kvstore (int node-id))))

(defn send-command-to-servers
  "Sends the command `head`, an integer, with the string `body` to every server, and returns
  `kvstore`.

  Does nothing if there are no servers. Throws \"Invalid head\" and \"Invalid body\".

      (send-command-to-servers kv 7 \"hello\")"
  ^dev.kvstore.KVStore [^KVStore kvstore head body]
  (errors/check errors/int32? head "head" "an integer of 32 bits")
  (errors/check string? body "body" "a string")
  (errors/guard (.sendCommandToServers kvstore (int head) ^String body)))
