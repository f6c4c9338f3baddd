(ns dev.kvstore.impl.ndarray.files
  "Array files. org.apache.clojure-mxnet.ndarray exports these functions.

    save load                    arrays by name
    save-to-file load-from-file  one array
    load2-map load2-array        like load; in order, with or without names
    serialize deserialize        an array as bytes"
  (:refer-clojure :exclude [load])
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.pairs :as pairs]
            [dev.kvstore.impl.paths :as paths])
  (:import (dev.kvstore NDArray NDArrayFile)
           (java.util LinkedHashMap Map)))

(set! *warn-on-reflection* true)

(def ^:private default-name
  "The name of the array in a file with one array."
  "default")

(defn save
  "Writes the arrays of the map `name->ndarray` to the file `fname`, and returns nil.

  The file has the format of MXNet. An existing file is replaced when the new one is complete. A
  name is a string, a keyword or a symbol. Throws \"Invalid filename\", \"Invalid keys\" (also if
  two keys have the same name), \"Invalid values\", and code `:io` if the file cannot be written.

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
  "Returns a map from names to new arrays, read from the file `fname` that `save` or MXNet has
  written.

  The arrays are on cpu(0). Sparse arrays become dense. Throws \"Invalid filename\", code `:io` if
  the file cannot be read, code `:corrupt` if it is damaged, and code `:invalid-argument` if its
  arrays have no names; use `load2-array` for such files.

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
  "Returns a vector of the arrays in the file `fname`, in the order of the file, with or without
  names.

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

  Errors are those of `load`; also throws code `:invalid-argument` if the file contains no arrays.

      (let [f (java.io.File/createTempFile \"weights\" \".nd\")]
        (save-to-file f (ones [2]))
        (->vec (load-from-file f))) ;=> [1.0 1.0]"
  ^dev.kvstore.NDArray [fname]
  (let [[ndarray & others] (load2-array fname)]
    (run! #(.close ^NDArray %) others)
    (or ndarray
        (errors/invalid (str "Invalid filename: expected a file with an array, found none in "
                             fname)
                        fname))))

(defn serialize
  "Returns `ndarray` as a byte[], for `deserialize` here or in MXNet.

  Throws code `:closed` if `ndarray` is closed.

      (->vec (deserialize (serialize (ones [2])))) ;=> [1.0 1.0]"
  ^bytes [^NDArray ndarray]
  (errors/guard (NDArrayFile/serialize ndarray)))

(defn deserialize
  "Returns a new array from the byte[] `data` of `serialize`.

  Throws \"Invalid bytes\" if `data` is not a byte[], and code `:corrupt` if the bytes are
  damaged.

      (shape-vec (deserialize (serialize (zeros [2 3])))) ;=> [2 3]"
  ^dev.kvstore.NDArray [data]
  (errors/check bytes? data "bytes" "a byte[]")
  (errors/guard (NDArrayFile/deserialize ^bytes data)))
