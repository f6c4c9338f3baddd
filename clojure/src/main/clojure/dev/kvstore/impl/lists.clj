(ns dev.kvstore.impl.lists
  "List arguments.

    as-list   the elements in order, or nil if the argument is not a list"
  (:import (java.nio.file Path)
           (java.util Map Set)))

(set! *warn-on-reflection* true)

(def ^:private ^Class object-array-class
  (class (object-array 0)))

(defn as-list
  "Returns the elements of `x` as a counted sequential collection, or nil if `x` is not a list.

  Lists are sequentials (including lazy sequences and eductions), ordered Java collections, and
  object arrays. Maps and sets are not lists, because they have no order."
  [x]
  (cond
    (sequential? x) (if (counted? x) x (into [] x))
    (or (instance? Map x) (instance? Set x) (instance? Path x)) nil
    (or (instance? Iterable x) (.isInstance object-array-class x)) (into [] x)))
