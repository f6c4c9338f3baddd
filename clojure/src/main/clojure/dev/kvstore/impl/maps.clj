(ns dev.kvstore.impl.maps
  "Maps in results.

    in-order   a map that keeps the order of its entries"
  (:import (clojure.lang PersistentArrayMap)))

(set! *warn-on-reflection* true)

(defn in-order
  "Returns a map of `key` to `value` of each item, in the order of `items`.

  The keys must be distinct. `array-map` would compare each key with all others."
  [key value items]
  (PersistentArrayMap. (to-array (mapcat (juxt key value) items))))
