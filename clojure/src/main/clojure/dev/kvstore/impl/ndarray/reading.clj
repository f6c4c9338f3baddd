(ns dev.kvstore.impl.ndarray.reading
  "The elements of an array as Clojure data. org.apache.clojure-mxnet.ndarray exports these
  functions.

    ->vec ->nd-vec                                         Floats, flat or nested
    ->float-vec ->double-vec ->int-vec ->long-vec ->byte-vec   other numbers
    ->raw to-array to-float64-array                        primitive arrays
    as-buffer read-into                                    without a copy; into a given array
    to-scalar                                              one number
    =                                                      equality"
  (:refer-clojure :exclude [= to-array])
  (:require [clojure.core :as core]
            [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.pairs :as pairs])
  (:import (dev.kvstore DType NDArray)
           (java.nio Buffer)))

(set! *warn-on-reflection* true)

(defn to-array
  "Returns the elements of `ndarray` in row-major order as a new float[].

  Throws code `:closed` if `ndarray` is closed.

      (alength (to-array (ones [2 3]))) ;=> 6"
  ^floats [^NDArray ndarray]
  (errors/guard (.toFloats ndarray)))

(defn to-float64-array
  "Returns the elements of `ndarray` in row-major order as a new double[].

  Throws code `:closed` if `ndarray` is closed.

      (alength (to-float64-array (ones [2 3]))) ;=> 6"
  ^doubles [^NDArray ndarray]
  (errors/guard (.toDoubles ndarray)))

(defn ->vec
  "Returns the elements of `ndarray` in row-major order as a flat vector of Floats, whatever its
  dtype.

  For an element 0.5, `(= [0.5] v)` is true. For an element 0.1, `(= [0.1] v)` is false, because
  the Float 0.1 is not equal to the Double 0.1. Throws code `:closed` if `ndarray` is closed.

      (->vec (ones [2 2])) ;=> [1.0 1.0 1.0 1.0]"
  [ndarray]
  (vec (to-array ndarray)))

(defn ->float-vec
  "Returns the elements of `ndarray` as a flat vector of Floats, like `->vec`.

  Throws code `:closed` if `ndarray` is closed.

      (->float-vec (ones [2])) ;=> [1.0 1.0]"
  [ndarray]
  (->vec ndarray))

(defn ->double-vec
  "Returns the elements of `ndarray` as a flat vector of Doubles.

  Throws code `:closed` if `ndarray` is closed.

      (->double-vec (array [0.1] [1] {:dtype :float64})) ;=> [0.1]"
  [^NDArray ndarray]
  (errors/guard (vec (.toDoubles ndarray))))

(defn ->int-vec
  "Returns the elements of `ndarray`, truncated to integers, as a flat vector of Integers.

  Throws code `:closed` if `ndarray` is closed.

      (->int-vec (array [1.5 200] [2])) ;=> [1 200]"
  [^NDArray ndarray]
  (errors/guard (vec (.toInts ndarray))))

(defn ->long-vec
  "Returns the elements of `ndarray`, truncated to integers, as a flat vector of Longs.

  Throws code `:closed` if `ndarray` is closed.

      (->long-vec (full [1] 9007199254740993 {:dtype :int64})) ;=> [9007199254740993]"
  [^NDArray ndarray]
  (errors/guard (vec (.toLongs ndarray))))

(defn ->byte-vec
  "Returns the elements of `ndarray`, truncated to integers and to their low eight bits, as a
  vector of signed Bytes.

  Throws code `:closed` if `ndarray` is closed.

      (->byte-vec (array [1 200] [2] {:dtype :uint8})) ;=> [1 -56]"
  [^NDArray ndarray]
  (errors/guard (mapv unchecked-byte (.toInts ndarray))))

(defn ->raw
  "Returns the bytes of the elements of `ndarray` as a byte[], in row-major order and little
  endian.

  Throws code `:closed` if `ndarray` is closed.

      (alength (->raw (ones [2]))) ;=> 8"
  ^bytes [^NDArray ndarray]
  (errors/guard (.toBytes ndarray)))

(defn- nest
  "Returns the elements of the vector `flat` in nested vectors with the dimensions `dims`."
  [flat [n & dims]]
  (if (or (empty? dims) (zero? (long n)))
    flat
    (let [width (long (apply * dims))]
      (mapv #(nest (subvec flat (* (long %) width) (* (inc (long %)) width)) dims)
            (range n)))))

(defn elements
  "Returns the elements of `ndarray` as a flat vector: Longs for int64, Integers for other integer
  dtypes, Doubles for float64, Floats for other floating-point dtypes."
  [^NDArray ndarray]
  (let [dtype (.dtype ndarray)]
    (cond
      (core/= DType/FLOAT64 dtype) (vec (.toDoubles ndarray))
      (.isFloatingPoint dtype) (vec (.toFloats ndarray))
      (core/= DType/INT64 dtype) (vec (.toLongs ndarray))
      :else (vec (.toInts ndarray)))))

(defn nd-elements
  "Returns the `elements` of `ndarray` in vectors that are nested like its dimensions."
  [^NDArray ndarray]
  (errors/guard
    (nest (elements ndarray) (vec (.toArray (.shape ndarray))))))

(defn ->nd-vec
  "Returns the elements of `ndarray` as Floats in vectors that are nested like its dimensions.

  Throws \"Invalid input array\" if it is not an array, and code `:closed` if `ndarray` is closed.

      (->nd-vec (ones [2 1])) ;=> [[1.0] [1.0]]"
  [^NDArray ndarray]
  (when-not (pairs/array? ndarray)
    (errors/reject "input array" "an NDArray" ndarray))
  (errors/guard
    (nest (vec (.toFloats ndarray)) (vec (.toArray (.shape ndarray))))))

(defn as-buffer
  "Returns the current elements of `ndarray` without a copy, as a read-only direct ByteBuffer.

  The elements are in row-major order and in the byte order of the machine. If the array is on a
  GPU, they are first copied to the host. Later changes of `ndarray` do not change the buffer. The
  buffer stays valid while it is reachable, even after `dispose`. Throws code `:invalid-argument`
  if the elements take 2 GiB or more, which is too large for a buffer (use `read-into` for parts
  of the array), and code `:closed` if `ndarray` is closed.

      (.get (.asFloatBuffer (as-buffer (array [1 2] [2]))) 1) ;=> 2.0"
  ^java.nio.ByteBuffer [^NDArray ndarray]
  (errors/guard (.asBuffer ndarray)))

(defn read-into
  "Fills `dest` with elements of `ndarray`, and returns it.

  `dest` is a float[], double[], int[], long[] or byte[], or a buffer of java.nio, which is filled
  from its position to its limit. A FloatBuffer, DoubleBuffer, IntBuffer or LongBuffer receives
  numbers. A ByteBuffer, which must have the byte order of the machine, receives the bytes of the
  elements. Elements are read in row-major order, beginning with the index `start`, 0 by default,
  and converted. Throws \"Invalid destination\", \"Invalid start\", and code `:invalid-argument`
  if `ndarray` has too few elements.

      (vec (read-into (array [1 2 3] [3]) (float-array 2) 1)) ;=> [2.0 3.0]"
  ([ndarray dest] (read-into ndarray dest 0))
  ([^NDArray ndarray dest start]
   (errors/check int? start "start" "an integer")
   (let [start (long start)]
     (errors/guard
       (case (some-> dest class .getName)
         "[F" (.read ndarray start ^floats dest)
         "[D" (.read ndarray start ^doubles dest)
         "[I" (.read ndarray start ^ints dest)
         "[J" (.read ndarray start ^longs dest)
         "[B" (.read ndarray start ^bytes dest)
         (if (instance? Buffer dest)
           (.read ndarray start ^Buffer dest)
           (errors/reject "destination" "a primitive array or a buffer" dest)))))
   dest))

(defn to-scalar
  "Returns the element of an `ndarray` of the shape [1] as a Float.

  Throws \"The current array is not a scalar\" for any other shape, and code `:closed` if
  `ndarray` is closed.

      (to-scalar (sum (ones [2 3]))) ;=> 6.0"
  [^NDArray ndarray]
  (errors/guard
    (let [dims (vec (.toArray (.shape ndarray)))]
      (when-not (or (core/= [1] dims) (core/= [] dims))
        (errors/invalid (str "The current array is not a scalar: expected shape [1], found " dims)
                        dims))
      (aget (.toFloats ndarray) 0))))

(defn- same-floats?
  [^floats xs ^floats ys]
  (loop [i 0]
    (cond
      (core/= i (alength xs)) true
      (== (aget xs i) (aget ys i)) (recur (inc i))
      :else false)))

(defn =
  "Returns whether `a` and `b` are arrays with the same shape and, read as Floats, the same
  elements.

  Their dtypes and contexts may differ. NaN is not equal to anything. Throws code `:closed` if one
  of two arrays is closed.

      (= (ones [2]) (full [2] 1)) ;=> true"
  [a b]
  (errors/guard
    (and (pairs/array? a)
         (pairs/array? b)
         (core/= (.shape ^NDArray a) (.shape ^NDArray b))
         (same-floats? (.toFloats ^NDArray a) (.toFloats ^NDArray b)))))
