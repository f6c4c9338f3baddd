(ns dev.kvstore.impl.maps
  "Ordered maps for results.

    in-order   a map that keeps the order of its entries"
  (:import (clojure.lang PersistentArrayMap)))

(set! *warn-on-reflection* true)

(defn in-order
  "Returns a map from (`key` item) to (`value` item) for each item, in the order of `items`.

  The keys must be distinct. `array-map` is not used, because it compares each key with all
  others."
  [key value items]
  (PersistentArrayMap. (to-array (mapcat (juxt key value) items))))
