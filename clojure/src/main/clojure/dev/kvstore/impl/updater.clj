(ns dev.kvstore.impl.updater
  "A Clojure function as the Java interface that a store calls.

    java   makes one from a function"
  (:import (dev.kvstore Updater)))

(set! *warn-on-reflection* true)

(defn java
  "Returns an Updater that calls `f` with the key and the two arrays.

  Exceptions of `f` reach the caller of push unchanged."
  ^dev.kvstore.Updater [f]
  (reify Updater
    (update [_ key pushed stored]
      (f key pushed stored))))
