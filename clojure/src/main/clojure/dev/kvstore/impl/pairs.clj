(ns dev.kvstore.impl.pairs
  "The one place where the arguments of a verb become pairs of a key and an array, or another value.

    key-name     the text of one key
    key-names    the texts of one key or a sequential of keys
    check-names  refuses a map with two keys of one name
    pairs        the four shapes of keys and values, as pairs in call order
    map-pairs    the same from a map of keys to values
    names, arrays, values  the halves of pairs, as the Java API takes them"
  (:require [dev.kvstore.impl.errors :as errors])
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

(defn key-name
  "Returns the text of the key `k`: a string is itself, a keyword or symbol is its name.

  Throws \"Invalid keys\" for anything else."
  ^String [k]
  (if (single-key? k)
    (name k)
    (errors/invalid "Invalid keys" k)))

(defn- fill
  "Returns `target` with (f x) for every x in `xs`, without a sequence between."
  [^objects target f xs]
  (reduce (fn [^long i x]
            (aset target (int i) (f x))
            (inc i))
          0 xs)
  target)

(defn key-names
  "Returns the texts of `ks`, one key or a sequential of keys, as a String[].

  Throws \"Invalid keys\" for anything else."
  ^"[Ljava.lang.String;" [ks]
  (cond
    (single-key? ks) (into-array String [(name ks)])
    (and (sequential? ks) (every? single-key? ks)) (fill (make-array String (count ks)) name ks)
    :else (errors/invalid "Invalid keys" ks)))

(defn check-names
  "Throws \"Invalid keys\" when two of the keys of the map `m` have the same name: one value would be lost or
  be taken for the other's."
  [m]
  (let [seen (HashSet.)]
    (when-let [twice (first (remove #(.add seen (name %)) (keys m)))]
      (let [text (name twice)]
        (errors/invalid (str "Invalid keys: two with the name `" text "`")
                        (filterv #(= text (name %)) (keys m)))))))

(defn- array-list
  "Returns `vs`, one array or a sequential of arrays, as a sequential; nil if it is neither."
  [^Class of vs]
  (let [one? #(.isInstance of %)]
    (cond
      (one? vs) [vs]
      (and (sequential? vs) (every? one? vs)) vs)))

(defn- lists-per-key
  "Returns one sequential of arrays for each key that `vs` has values for; nil if `vs` has not that form."
  [^Class of ks vs]
  (if (or (single-key? ks) (.isInstance of vs))
    (some-> (array-list of vs) list)
    (when (sequential? vs)
      (let [lists (map #(array-list of %) vs)]
        (when (every? some? lists) lists)))))

(defn- one-each
  "Returns `vs` as a Java array when it is one for each of `n` keys, which most calls have; else nil."
  [^Class of n vs]
  (if (.isInstance of vs)
    (when (= n 1)
      (into-array of [vs]))
    (when (and (sequential? vs) (every? #(.isInstance of %) vs) (= n (count vs)))
      (fill (make-array of n) identity vs))))

(defn- listed
  "Returns the pairs of `names` and `vs` where a key may have several values."
  [ks names vs role]
  (let [of (class-of role)
        lists (or (lists-per-key of ks vs)
                  (errors/invalid (str "Invalid " role) vs))]
    (when-not (= (count names) (count lists))
      (errors/length-mismatch (str "len(keys) != len(" role ")") (count names) (count lists)))
    {:names (into-array String (mapcat (fn [k vs] (repeat (count vs) k)) names lists))
     :arrays (into-array of (apply concat lists))}))

(defn pairs
  "Returns pairs of a key and an array in call order, to be taken apart by `names` and `arrays` or `values`.

  `ks` is one key or a sequential of keys. `vs` is an array or a sequential of arrays for one key, and
  a sequential of either, as long as `ks`, for several. `role` is what messages call `vs`: \"values\"
  or \"outs\".

  Throws \"Invalid keys\", \"Invalid values\" (or \"Invalid outs\"), or code `:length-mismatch`."
  [ks vs role]
  (let [names (key-names ks)]
    (if-let [arrays (one-each (class-of role) (alength names) vs)]
      {:names names :arrays arrays}
      (listed ks names vs role))))

(defn map-pairs
  "Returns the pairs of the map `m` from keys to an array or a sequential of arrays, in its order.

  Throws as `pairs` does, and \"Invalid keys\" when `m` is no map, or has two keys with one name."
  [m role]
  (if (map? m)
    (let [found (pairs (or (keys m) []) (or (vals m) []) role)]
      (check-names m)
      found)
    (errors/invalid "Invalid keys" m)))

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
    (cond
      (instance? array-class found) found
      (every? array? found) (into-array NDArray found)
      :else (errors/invalid "Invalid outs" (vec found)))))

(defn values
  "Returns the array or rows of each pair whose role is values."
  ^"[Ldev.kvstore.Value;" [pairs]
  (:arrays pairs))
