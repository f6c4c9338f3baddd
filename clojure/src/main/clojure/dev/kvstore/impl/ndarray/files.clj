(ns dev.kvstore.impl.ndarray.files
  "Files of arrays; offered by org.apache.clojure-mxnet.ndarray.

    save load                    arrays by name
    save-to-file load-from-file  one array
    load2-map load2-array        as load; in order, with or without names
    serialize deserialize        an array as bytes"
  (:refer-clojure :exclude [load])
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.pairs :as pairs]
            [dev.kvstore.impl.paths :as paths])
  (:import (dev.kvstore NDArray NDArrayFile)
           (java.util LinkedHashMap Map)))

(set! *warn-on-reflection* true)

(def ^:private default-name
  "What an array is called in a file of its own."
  "default")

(defn save
  "Writes the arrays of the map `name->ndarray` to the file `fname`, and returns nil.

  The file is in the format of MXNet. An earlier one is replaced, and is there until the new one is whole.
  A name is a string, or a keyword or symbol by its name. Throws \"Invalid filename\", \"Invalid keys\",
  also for two keys with one name, \"Invalid values\", and code `:io` when the file cannot be written.

      (let [f (java.io.File/createTempFile \"model\" \".params\")]
        (save f {\"w\" (ones [2 3]) \"b\" (zeros [3])})
        (shape-vec (get (load f) \"w\"))) ;=> [2 3]"
  [fname name->ndarray]
  (let [path (paths/->path fname)
        arrays (LinkedHashMap.)]
    (when-not (map? name->ndarray)
      (errors/reject "values" "a map of names to NDArrays" name->ndarray))
    (doseq [[k ndarray] name->ndarray]
      (let [array-name (pairs/key-name k)]
        (when-not (pairs/array? ndarray)
          (errors/reject "values" "an NDArray" ndarray
                         {:found ndarray
                          :place (str "for key `" array-name "`")
                          :kvstore/key array-name}))
        (.put arrays array-name ndarray)))
    (pairs/check-names name->ndarray)
    (errors/guard (NDArrayFile/save path ^Map arrays))
    nil))

(defn load
  "Returns a map of name to new array, from the file `fname` that `save` or MXNet wrote.

  The arrays are on cpu(0); sparse ones become dense. Throws \"Invalid filename\", code `:io` when the file
  cannot be read, code `:corrupt` when it is damaged, and code `:invalid-argument` when its arrays have no
  names, for which there is `load2-array`.

      (let [f (java.io.File/createTempFile \"model\" \".params\")]
        (save f {:w (ones [2])})
        (keys (load f))) ;=> (\"w\")"
  [fname]
  (let [path (paths/->path fname)]
    (into {} (errors/guard (NDArrayFile/loadMap path)))))

(defn load2-map
  "Returns what `load` returns for the file `fname`. Errors are those of `load`.

      (let [f (java.io.File/createTempFile \"model\" \".params\")]
        (save f {:w (ones [2])})
        (->vec (get (load2-map f) \"w\"))) ;=> [1.0 1.0]"
  [fname]
  (load fname))

(defn load2-array
  "Returns a vector of the arrays in the file `fname`, in their order, with or without names.

  Errors are those of `load`.

      (let [f (java.io.File/createTempFile \"model\" \".params\")]
        (save f (array-map \"w\" (ones [2 3]) \"b\" (zeros [3])))
        (mapv shape-vec (load2-array f))) ;=> [[2 3] [3]]"
  [fname]
  (let [path (paths/->path fname)]
    (errors/guard (vec (NDArrayFile/loadList path)))))

(defn save-to-file
  "Writes `ndarray` to the file `fname` under the name \"default\", and returns nil.

  Errors are those of `save`.

      (let [f (java.io.File/createTempFile \"weights\" \".nd\")]
        (save-to-file f (ones [2]))
        (keys (load f))) ;=> (\"default\")"
  [fname ndarray]
  (save fname {default-name ndarray}))

(defn load-from-file
  "Returns the first array of the file `fname`.

  Errors are those of `load`; also code `:invalid-argument` for a file without arrays.

      (let [f (java.io.File/createTempFile \"weights\" \".nd\")]
        (save-to-file f (ones [2]))
        (->vec (load-from-file f))) ;=> [1.0 1.0]"
  ^dev.kvstore.NDArray [fname]
  (let [[ndarray & others] (load2-array fname)]
    (run! #(.close ^NDArray %) others)
    (or ndarray
        (errors/invalid "Invalid filename: the file holds no array" fname))))

(defn serialize
  "Returns `ndarray` as a byte[], for `deserialize` here or in MXNet.

  Throws code `:closed` when `ndarray` was disposed.

      (->vec (deserialize (serialize (ones [2])))) ;=> [1.0 1.0]"
  ^bytes [^NDArray ndarray]
  (errors/guard (NDArrayFile/serialize ndarray)))

(defn deserialize
  "Returns a new array from the byte[] `data` of `serialize`.

  Throws \"Invalid bytes\" for what is no byte[], and code `:corrupt` for bytes that are damaged.

      (shape-vec (deserialize (serialize (zeros [2 3])))) ;=> [2 3]"
  ^dev.kvstore.NDArray [data]
  (errors/check bytes? data "bytes" "a byte[]")
  (errors/guard (NDArrayFile/deserialize ^bytes data)))
