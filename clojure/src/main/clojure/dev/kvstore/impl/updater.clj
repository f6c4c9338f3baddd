(ns dev.kvstore.impl.updater
  "A Clojure function as the Java interface that a store calls.

    java   makes one from a function"
  (:require [dev.kvstore.impl.errors :as errors])
  (:import (dev.kvstore KVStoreException Updater)))

(set! *warn-on-reflection* true)

(defn java
  "Returns an Updater that calls `f` with the key and the two arrays.

  What `f` throws leaves it as it is, so that the caller of push gets the same object."
  ^dev.kvstore.Updater [f]
  (reify Updater
    (update [_ key pushed stored]
      (try
        (f key pushed stored)
        (catch KVStoreException e
          (throw (errors/own! e)))))))
