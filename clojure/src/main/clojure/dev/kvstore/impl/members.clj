(ns dev.kvstore.impl.members
  "The members of a group as plain data.

    data   a vector of maps for a list of members"
  (:import (dev.kvstore Member)))

(set! *warn-on-reflection* true)

(defn data
  "Returns a map with :name, :rank and :reader for each of `members`."
  [members]
  (mapv (fn [^Member member]
          {:name (.name member)
           :rank (.rank member)
           :reader (.isReader member)})
        members))
