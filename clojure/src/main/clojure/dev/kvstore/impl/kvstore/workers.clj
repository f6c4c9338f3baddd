(ns dev.kvstore.impl.kvstore.workers
  "A store among others that share its values; offered by org.apache.clojure-mxnet.kvstore.

    rank num-workers                 which of how many
    barrier set-barrier-before-exit  waiting for the others
    num-dead-node send-command-to-servers"
  (:require [dev.kvstore.impl.errors :as errors])
  (:import (dev.kvstore KVStore)))

(set! *warn-on-reflection* true)

(defn rank
  "Returns the number of this worker among all that share `kvstore`, from 0; 0 on one machine.

  Throws code `:closed` when `kvstore` was disposed.

      (rank (create)) ;=> 0"
  [^KVStore kvstore]
  (errors/guard (.rank kvstore)))

(defn num-workers
  "Returns how many workers share `kvstore`; 1 on one machine.

  Throws code `:closed` when `kvstore` was disposed.

      (num-workers (create)) ;=> 1"
  [^KVStore kvstore]
  (errors/guard (.numWorkers kvstore)))

(defn barrier
  "Waits until every worker has come here, and returns `kvstore`. On one machine it returns at once.

  Throws code `:closed` when `kvstore` was disposed.

      (barrier kv)"
  ^dev.kvstore.KVStore [^KVStore kvstore]
  (errors/guard (.barrier kvstore)))

(defn set-barrier-before-exit
  "Says by `barrier-before-exit` whether a worker that leaves waits for the others, and returns `kvstore`.

  Throws \"Invalid barrier-before-exit\" when it is no boolean.

      (set-barrier-before-exit kv false)"
  ^dev.kvstore.KVStore [^KVStore kvstore barrier-before-exit]
  (errors/check boolean? barrier-before-exit "barrier-before-exit" "a boolean")
  (errors/guard (.setBarrierBeforeExit kvstore (boolean barrier-before-exit))))

(defn num-dead-node
  "Returns how many nodes of the group `node-id` of `kvstore` are dead (1 scheduler, 2 servers, 4 workers, or
  a sum of these).

  On one machine it is 0. Throws \"Invalid node-id\" when it is no integer.

      (num-dead-node (create) 4) ;=> 0"
  [^KVStore kvstore node-id]
  (errors/check errors/int32? node-id "node-id" "an integer of 32 bits")
  (errors/guard (.numDeadNode kvstore (int node-id))))

(defn send-command-to-servers
  "Sends the command `head`, an integer, with the string `body` to every server; returns `kvstore`.

  On one machine there are none. Throws \"Invalid head\" and \"Invalid body\".

      (send-command-to-servers kv 7 \"hello\")"
  ^dev.kvstore.KVStore [^KVStore kvstore head body]
  (errors/check errors/int32? head "head" "an integer of 32 bits")
  (errors/check string? body "body" "a string")
  (errors/guard (.sendCommandToServers kvstore (int head) ^String body)))
