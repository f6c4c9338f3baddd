(ns dev.kvstore.impl.lists
  "What counts as a list in an argument.

    as-list   the elements in order, or nil for what is no list"
  (:import (java.nio.file Path)
           (java.util Map Set)))

(set! *warn-on-reflection* true)

(def ^:private ^Class object-array-class
  (class (object-array 0)))

(defn as-list
  "Returns the elements of `x` as a counted sequential; nil if `x` is not a list.

  Lists are sequentials (vectors, lists, lazy sequences, eductions), other collections of Java that have an
  order, and arrays of objects. Maps and sets are not, because they have no order."
  [x]
  (cond
    (sequential? x) (if (counted? x) x (into [] x))
    (or (instance? Map x) (instance? Set x) (instance? Path x)) nil
    (or (instance? Iterable x) (.isInstance object-array-class x)) (into [] x)))
