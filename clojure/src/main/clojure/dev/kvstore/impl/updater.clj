(ns dev.kvstore.impl.updater
  "Clojure functions as updaters.

    java   returns an Updater that calls a function"
  (:import (dev.kvstore Updater)))

(set! *warn-on-reflection* true)

(defn java
  "Returns an Updater that calls `f` with the key, the pushed sum and the stored value.

  Exceptions of `f` reach the caller of push unchanged."
  ^dev.kvstore.Updater [f]
  (reify Updater
    (update [_ key pushed stored]
      (f key pushed stored))))
