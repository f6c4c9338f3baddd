(ns dev.kvstore.impl.pairs
  "Converts the keys and values in the arguments of a store function to pairs of a key and a value.

    key-name     the name of one key, a string
    key-names    the names of one key or a list of keys
    check-names  rejects a map in which two keys have the same name
    pairs        pairs from keys and values in one of their four forms, in order
    map-pairs    pairs from a map of keys to values
    names, arrays, values  the two halves of pairs, in the form that the Java API takes"
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.lists :as lists])
  (:import (dev.kvstore NDArray Value)
           (java.util HashSet)))

(set! *warn-on-reflection* true)

(defn array?
  "Returns whether `x` is an NDArray."
  [x]
  (instance? NDArray x))

(defn- class-of
  "Returns the class of the elements of `role`: values are dense or row-sparse, outs are arrays."
  ^Class [role]
  (if (= "values" role) Value NDArray))

(defn single-key?
  "Returns whether `x` is one key: a string, a keyword or a symbol."
  [x]
  (or (string? x) (keyword? x) (symbol? x)))

(def ^:private a-key
  "a string, keyword or symbol")

(defn- first-wrong
  "Returns the first index in `xs` whose element is not `valid?`, or nil."
  [valid? xs]
  (first (keep-indexed (fn [i x] (when-not (valid? x) i)) xs)))

(defn key-name
  "Returns the name of the key `k`: a string is its own name, a keyword or symbol has a name.

  Throws \"Invalid keys\" for anything else."
  ^String [k]
  (if (single-key? k)
    (name k)
    (errors/reject "keys" a-key k)))

(defn- fill
  "Fills the Java array `target` with (f x) for every x in `xs` and returns it. Creates no
  intermediate sequence."
  [^objects target f xs]
  (reduce (fn [^long i x]
            (aset target (int i) (f x))
            (inc i))
          0 xs)
  target)

(defn key-names
  "Returns the names of `ks`, one key or a list of keys, as a String[].

  Throws \"Invalid keys\" for anything else."
  ^"[Ljava.lang.String;" [ks]
  (if (single-key? ks)
    (into-array String [(name ks)])
    (let [listed (or (lists/as-list ks)
                     (errors/reject "keys" (str a-key ", or a list of them") ks))]
      (when-let [i (first-wrong single-key? listed)]
        (errors/reject "keys" a-key ks {:found (nth listed i)
                                        :place (str "at position " i)
                                        :kvstore/position i}))
      (fill (make-array String (count listed)) name listed))))

(defn check-names
  "Throws \"Invalid keys\" if two keys of the map `m` have the same name. Otherwise one value would
  be lost or used for the wrong key."
  [m]
  (let [seen (HashSet.)]
    (when-let [twice (first (remove #(.add seen (name %)) (keys m)))]
      (let [text (name twice)]
        (errors/invalid (str "Invalid keys: two with the name `" text "`")
                        (filterv #(= text (name %)) (keys m)))))))

(defn- expected-in
  "Returns the expected type of a role, for messages."
  [role]
  (if (= "values" role) "an NDArray or RowSparse" "an NDArray"))

(defn- reject-element
  "Throws \"Invalid `role`\" for `found`, the value of the key `k`. `i` is its index if it is in a
  list."
  [role vs found k i]
  (errors/reject role (expected-in role) vs
                 (cond-> {:found found
                          :place (str (when i (str "at position " i " ")) "for key `" k "`")
                          :kvstore/key k}
                   i (assoc :kvstore/position i))))

(defn- array-list
  "Returns `found`, an array or a list of arrays for the key `k`, as a list; `i` is its index or
  nil.

  Throws \"Invalid `role`\" with `vs` in the `ex-data`."
  [^Class of role vs found k i]
  (if (.isInstance of found)
    [found]
    (let [listed (or (lists/as-list found)
                     (reject-element role vs found k i))]
      (when-let [j (first-wrong #(.isInstance of %) listed)]
        (reject-element role vs (nth listed j) k (if i [i j] j)))
      listed)))

(defn- lists-per-key
  "Returns a list of arrays for each key. `ordered?` is false for the values of a map, which have
  no positions.

  Throws \"Invalid `role`\" for anything else."
  [ks ^objects names vs role ordered?]
  (let [of (class-of role)
        key-at #(if (< (long %) (alength names)) (aget names (int %)) "?")]
    (if (or (single-key? ks) (.isInstance of vs))
      [(array-list of role vs vs (key-at 0) nil)]
      (let [listed (or (lists/as-list vs)
                       (errors/reject role
                                      (str (expected-in role) " for each key, or a list of them")
                                      vs))]
        (map-indexed (fn [i found] (array-list of role vs found (key-at i) (when ordered? i)))
                     listed)))))

(defn- one-each
  "Returns `vs` as a Java array if it has exactly one array for each of the `n` keys, else nil.
  This is the fast path of most calls."
  [^Class of n vs]
  (if (.isInstance of vs)
    (when (= n 1)
      (into-array of [vs]))
    (when (and (sequential? vs) (counted? vs) (= n (count vs)) (every? #(.isInstance of %) vs))
      (fill (make-array of n) identity vs))))

(defn- listed
  "Returns the pairs of `names` and `vs` in the general case, in which a key may have several
  values."
  [ks names vs role ordered?]
  (let [lists (vec (lists-per-key ks names vs role ordered?))]
    (when-not (= (count names) (count lists))
      (errors/length-mismatch (str "len(keys) != len(" role ")") (count names) (count lists)))
    {:names (into-array String (mapcat (fn [k vs] (repeat (count vs) k)) names lists))
     :arrays (into-array (class-of role) (apply concat lists))}))

(defn- all-pairs
  [ks vs role ordered?]
  (let [names (key-names ks)]
    (if-let [arrays (one-each (class-of role) (alength names) vs)]
      {:names names :arrays arrays}
      (listed ks names vs role ordered?))))

(defn pairs
  "Returns pairs of a key and an array, in the order of the arguments. `names`, `arrays` and
  `values` return the two halves.

  `ks` is one key or a list of keys. For one key, `vs` is an array or a list of arrays. For a list
  of keys, `vs` is a list of the same length, whose elements are arrays or lists of arrays. `role`
  is the name of `vs` in messages: \"values\" or \"outs\".

  Throws \"Invalid keys\", \"Invalid values\" (or \"Invalid outs\"), or code `:length-mismatch`."
  [ks vs role]
  (all-pairs ks vs role true))

(defn map-pairs
  "Returns the pairs of the map `m`, whose values are arrays or lists of arrays, in the order of
  the map.

  Throws like `pairs`. Throws \"Invalid keys\" if `m` is not a map or two of its keys have the
  same name."
  [m role]
  (if (map? m)
    (let [found (all-pairs (or (keys m) []) (or (vals m) []) role false)]
      (check-names m)
      found)
    (errors/reject "keys" (str "a map of keys to " role) m)))

(defn names
  "Returns the key of each pair."
  ^"[Ljava.lang.String;" [pairs]
  (:names pairs))

(def ^:private ^Class array-class
  (class (make-array NDArray 0)))

(defn arrays
  "Returns the array of each pair.

  Throws \"Invalid outs\" if a value is row-sparse, because outs must be arrays."
  ^"[Ldev.kvstore.NDArray;" [pairs]
  (let [found (:arrays pairs)]
    (if (instance? array-class found)
      found
      (let [values (vec found)]
        (when-let [i (first-wrong array? values)]
          ;; `i` is an index in the flattened pairs, not in the argument.
          (reject-element "outs" values (nth values i) (nth (:names pairs) i) nil))
        (into-array NDArray values)))))

(defn values
  "Returns the dense or row-sparse value of each pair. The role of the pairs must be values."
  ^"[Ldev.kvstore.Value;" [pairs]
  (:arrays pairs))
