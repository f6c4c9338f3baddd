(ns dev.kvstore.impl.ndarray.creation
  "Creating arrays. org.apache.clojure-mxnet.ndarray exports these functions.

    empty zeros ones full arange    from a shape or a range
    array ->ndarray                 from numbers
    concatenate                     from arrays
    host-data                       numbers as a primitive array; `set` uses it, too"
  (:refer-clojure :exclude [empty])
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.lists :as lists]
            [dev.kvstore.impl.numbers :as numbers]
            [dev.kvstore.impl.options :as options]
            [dev.kvstore.impl.pairs :as pairs]
            [org.apache.clojure-mxnet.shape :as shape])
  (:import (dev.kvstore Context DType NDArray Shape)
           (java.nio Buffer)
           (java.util List)))

(set! *warn-on-reflection* true)

(defn- with-spec
  "Calls `make` with the shape, the dtype and the context of `shape-vec` and `opts`."
  [make shape-vec opts]
  (options/check opts [:ctx :dtype])
  (let [shape (shape/->shape shape-vec)
        dtype (options/dtype opts)
        ctx (options/context opts)]
    (errors/guard (make shape dtype ctx))))

(defn zeros
  "Returns a new array of zeros with the shape `shape-vec`.

  `opts` are `:ctx`, the context, cpu(0) by default, and `:dtype`, float32 by default. Throws
  \"Invalid shape\", \"Invalid context\", \"Invalid dtype\", code `:device-unavailable` if this
  machine has no such device, and code `:out-of-memory`.

      (->vec (zeros [2 2])) ;=> [0.0 0.0 0.0 0.0]"
  (^dev.kvstore.NDArray [shape-vec] (zeros shape-vec nil))
  (^dev.kvstore.NDArray [shape-vec opts]
   (with-spec (fn [^Shape s ^DType d ^Context c] (NDArray/zeros s d c)) shape-vec opts)))

(defn empty
  "Returns a new array with the shape `shape-vec`, to be filled by the caller. Its elements are
  zeros.

  `opts` and errors are those of `zeros`.

      (shape-vec (empty [2 3])) ;=> [2 3]"
  (^dev.kvstore.NDArray [shape-vec] (zeros shape-vec nil))
  (^dev.kvstore.NDArray [shape-vec opts] (zeros shape-vec opts)))

(defn ones
  "Returns a new array of ones with the shape `shape-vec`.

  `opts` and errors are those of `zeros`.

      (->vec (ones [2] {:ctx (context/cpu 1)})) ;=> [1.0 1.0]"
  (^dev.kvstore.NDArray [shape-vec] (ones shape-vec nil))
  (^dev.kvstore.NDArray [shape-vec opts]
   (with-spec (fn [^Shape s ^DType d ^Context c] (NDArray/ones s d c)) shape-vec opts)))

(defn full
  "Returns a new array with the shape `shape-vec` and the number `value` in every element.

  `opts` and errors are those of `zeros`; also throws \"Invalid value\" if `value` is not a
  number.

      (->vec (full [3] 2.5)) ;=> [2.5 2.5 2.5]"
  (^dev.kvstore.NDArray [shape-vec value] (full shape-vec value nil))
  (^dev.kvstore.NDArray [shape-vec value opts]
   (with-spec (fn [^Shape s ^DType d ^Context c]
                (errors/check number? value "value" "a number")
                (if (numbers/long? value d)
                  (NDArray/fullLong s (long value) d c)
                  (NDArray/full s (double value) d c)))
     shape-vec opts)))

(defn host-data
  "Returns the numbers in `source` in a form that an array of `dtype` can be filled from: a
  float[], double[], int[], long[] or byte[], or a buffer.

  Arrays and buffers are returned unchanged. A list of integers becomes a long[], any other list
  of numbers a double[]. Throws \"Invalid source\" for anything else."
  [source dtype]
  (if (or (instance? Buffer source)
          (contains? #{"[F" "[D" "[I" "[J" "[B"} (some-> source class .getName)))
    source
    (let [listed (or (lists/as-list source)
                     (errors/reject "source"
                                    "a list of numbers, a primitive array or a buffer"
                                    source))]
      (when-let [i (first (keep-indexed (fn [i x] (when-not (number? x) i)) listed))]
        (errors/reject "source" "a number" source {:found (nth listed i)
                                                   :place (str "at position " i)
                                                   :kvstore/position i}))
      (if (numbers/all-long? listed dtype)
        (long-array listed)
        (double-array listed)))))

(defn- from-host
  [data ^Shape shape ^DType dtype ^Context ctx]
  (case (.getName (class data))
    "[F" (NDArray/of ^floats data shape dtype ctx)
    "[D" (NDArray/of ^doubles data shape dtype ctx)
    "[I" (NDArray/of ^ints data shape dtype ctx)
    "[J" (NDArray/of ^longs data shape dtype ctx)
    "[B" (NDArray/of ^bytes data shape dtype ctx)
    (NDArray/of ^Buffer data shape dtype ctx)))

(defn array
  "Returns a new array with the shape `shape-vec` and the numbers of `source-vec` in row-major
  order.

  `source-vec` is a list of numbers, a float[], double[], int[], long[] or byte[], or a buffer of
  java.nio: a FloatBuffer, DoubleBuffer, IntBuffer or LongBuffer of numbers, or a ByteBuffer with
  the bytes of the array, in the byte order of the machine. `opts` and errors are those of
  `zeros`; also throws \"Invalid source\", and code `:length-mismatch` if the number of elements
  does not match the shape.

      (->nd-vec (array [1 2 3 4] [2 2])) ;=> [[1.0 2.0] [3.0 4.0]]"
  (^dev.kvstore.NDArray [source-vec shape-vec] (array source-vec shape-vec nil))
  (^dev.kvstore.NDArray [source-vec shape-vec opts]
   (with-spec (fn [s d c] (from-host (host-data source-vec d) s d c)) shape-vec opts)))

(defn- nested-shape
  [x]
  (when-let [listed (lists/as-list x)]
    (cons (count listed) (nested-shape (first listed)))))

(defn- rows
  "Returns the numbers of the nested lists `x` in one sequence, or nil if a list does not have the
  length in `dims`."
  [x [n & dims]]
  (if (nil? n)
    (when (number? x) [x])
    (let [listed (lists/as-list x)]
      (when (and listed (= n (count listed)))
        (let [parts (map #(rows % dims) listed)]
          (when (every? some? parts)
            (apply concat parts)))))))

(defn ->ndarray
  "Returns a new array with the shape and the elements of the nested lists `nd-vec`.

  `opts` are those of `zeros`. Throws \"Invalid N-D sequence\" if it is empty or ragged, or
  contains anything but numbers.

      (shape-vec (->ndarray [[1 2 3] [4 5 6]])) ;=> [2 3]"
  (^dev.kvstore.NDArray [nd-vec] (->ndarray nd-vec nil))
  (^dev.kvstore.NDArray [nd-vec opts]
   (let [dims (nested-shape nd-vec)
         numbers (when (and dims (every? pos? dims)) (rows nd-vec dims))]
     (when-not numbers
       (errors/reject "N-D sequence" "nested lists of numbers, equally long at each level" nd-vec))
     (array numbers (vec dims) opts))))

(defn arange
  "Returns a new array [n] of the numbers from `start` up to, but not including, `stop`.

  `opts` are `:step`, 1 by default, `:repeat`, 1 by default (how many times each number is
  repeated), `:ctx` and `:dtype` as for `zeros`. Throws \"Invalid range\" if an argument is not a
  number, \"Invalid repeat\" if it is not a 32-bit integer, and code `:invalid-argument` if the
  range is empty.

      (->vec (arange 0 1 {:step 0.5 :repeat 2})) ;=> [0.0 0.0 0.5 0.5]"
  (^dev.kvstore.NDArray [start stop] (arange start stop nil))
  (^dev.kvstore.NDArray [start stop opts]
   (options/check opts [:step :repeat :ctx :dtype])
   (let [{:keys [step repeat] :or {step 1 repeat 1}} opts
         dtype (options/dtype opts)
         ctx (options/context opts)]
     (when-not (every? number? [start stop step])
       (errors/reject "range" "numbers for start, stop and step" [start stop step]))
     (errors/check errors/int32? repeat "repeat" "an integer of 32 bits")
     (errors/guard
       (NDArray/arange (double start) (double stop) (double step) (int repeat) dtype ctx)))))

(defn concatenate
  "Concatenates the arrays in the list `ndarrays` along a dimension.

  Without `opts` this is dimension 0; in the map `opts` it is `:axis`, 1 by default.
  `:always-copy` has no effect: the result is always a copy. Throws \"Invalid arrays\", \"Invalid
  axis\", and code `:spec-mismatch` if the arrays differ in another dimension, in dtype or in
  context.

      (shape-vec (concatenate [(ones [2 3]) (ones [1 3])])) ;=> [3 3]"
  (^dev.kvstore.NDArray [ndarrays] (concatenate ndarrays {:axis 0}))
  (^dev.kvstore.NDArray [ndarrays opts]
   (options/check opts [:axis :always-copy])
   (let [{:keys [axis] :or {axis 1}} opts
         arrays (lists/as-list ndarrays)]
     (when-not (and arrays (every? pairs/array? arrays))
       (errors/reject "arrays" "a list of NDArrays" ndarrays))
     (errors/check errors/int32? axis "axis" "an integer of 32 bits")
     (errors/guard
       (NDArray/concatenate ^List (vec arrays) (int axis))))))
