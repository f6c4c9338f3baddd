(ns dev.kvstore.impl.pairs
  "The one place where the arguments of a verb become pairs of a key and an array, or another value.

    key-name     the text of one key
    key-names    the texts of one key or a list of keys
    check-names  rejects a map with two keys of one name
    pairs        the four shapes of keys and values, as pairs in call order
    map-pairs    the same from a map of keys to values
    names, arrays, values  the halves of pairs, as the Java API takes them"
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.lists :as lists])
  (:import (dev.kvstore NDArray Value)
           (java.util HashSet)))

(set! *warn-on-reflection* true)

(defn array?
  "Is `x` an NDArray?"
  [x]
  (instance? NDArray x))

(defn- class-of
  "Returns what may stand in the role: values are arrays or rows, outs are arrays."
  ^Class [role]
  (if (= "values" role) Value NDArray))

(defn single-key?
  "Is `x` one key: a string, a keyword or a symbol?"
  [x]
  (or (string? x) (keyword? x) (symbol? x)))

(def ^:private a-key
  "a string, keyword or symbol")

(defn- first-wrong
  "Returns the first index in `xs` whose element is not `valid?`, or nil."
  [valid? xs]
  (first (keep-indexed (fn [i x] (when-not (valid? x) i)) xs)))

(defn key-name
  "Returns the text of the key `k`: a string is itself, a keyword or symbol is its name.

  Throws \"Invalid keys\" for anything else."
  ^String [k]
  (if (single-key? k)
    (name k)
    (errors/reject "keys" a-key k)))

(defn- fill
  "Returns `target` with (f x) for every x in `xs`, without a sequence between."
  [^objects target f xs]
  (reduce (fn [^long i x]
            (aset target (int i) (f x))
            (inc i))
          0 xs)
  target)

(defn key-names
  "Returns the texts of `ks`, one key or a list of keys, as a String[].

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
  "Throws \"Invalid keys\" when two of the keys of the map `m` have the same name: one value would be lost or
  be taken for the other's."
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
  "Throws \"Invalid `role`\" for `found`, the value of the key `k`, at index `i` if it is in a
  list."
  [role vs found k i]
  (errors/reject role (expected-in role) vs
                 (cond-> {:found found
                          :place (str (when i (str "at position " i " ")) "for key `" k "`")
                          :kvstore/key k}
                   i (assoc :kvstore/position i))))

(defn- array-list
  "Returns `found`, an array or a list of arrays for the key `k`, as a list; `i` is its index, or
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
  "Returns a list of arrays for each key. `ordered?` is false for the values of a map, which have no position.

  Throws \"Invalid `role`\"."
  [ks ^objects names vs role ordered?]
  (let [of (class-of role)
        key-at #(if (< (long %) (alength names)) (aget names (int %)) "?")]
    (if (or (single-key? ks) (.isInstance of vs))
      [(array-list of role vs vs (key-at 0) nil)]
      (let [listed (or (lists/as-list vs)
                       (errors/reject role (str (expected-in role) " for each key, or a list of them") vs))]
        (map-indexed (fn [i found] (array-list of role vs found (key-at i) (when ordered? i))) listed)))))

(defn- one-each
  "Returns `vs` as a Java array when it is one for each of `n` keys, which most calls have; else nil."
  [^Class of n vs]
  (if (.isInstance of vs)
    (when (= n 1)
      (into-array of [vs]))
    (when (and (sequential? vs) (counted? vs) (= n (count vs)) (every? #(.isInstance of %) vs))
      (fill (make-array of n) identity vs))))

(defn- listed
  "Returns the pairs of `names` and `vs` where a key may have several values."
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
  "Returns pairs of a key and an array in call order, to be taken apart by `names` and `arrays` or `values`.

  `ks` is one key or a list of keys. `vs` is an array or a list of arrays for one key, and a list of either, as
  long as `ks`, for several. `role` is what messages call `vs`: \"values\" or \"outs\".

  Throws \"Invalid keys\", \"Invalid values\" (or \"Invalid outs\"), or code `:length-mismatch`."
  [ks vs role]
  (all-pairs ks vs role true))

(defn map-pairs
  "Returns the pairs of the map `m`, whose values are arrays or lists of arrays, in its order.

  Throws as `pairs` does, and \"Invalid keys\" when `m` is no map, or has two keys with one name."
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

  Values that are outs too must be arrays: throws \"Invalid outs\" for rows."
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
  "Returns the array or rows of each pair whose role is values."
  ^"[Ldev.kvstore.Value;" [pairs]
  (:arrays pairs))
