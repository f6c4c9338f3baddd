(ns dev.kvstore.impl.ndarray.reading
  "What is in an array, as Clojure data; offered by org.apache.clojure-mxnet.ndarray.

    ->vec ->nd-vec                                         Floats, flat or nested
    ->float-vec ->double-vec ->int-vec ->long-vec ->byte-vec   other numbers
    ->raw to-array to-float64-array                        primitive arrays
    as-buffer read-into                                    without a copy; into an array of the caller
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
  "Returns the elements of `ndarray`, row by row, as a new float[].

  Throws code `:closed` when `ndarray` was disposed.

      (alength (to-array (ones [2 3]))) ;=> 6"
  ^floats [^NDArray ndarray]
  (errors/guard (.toFloats ndarray)))

(defn to-float64-array
  "Returns the elements of `ndarray`, row by row, as a new double[].

  Throws code `:closed` when `ndarray` was disposed.

      (alength (to-float64-array (ones [2 3]))) ;=> 6"
  ^doubles [^NDArray ndarray]
  (errors/guard (.toDoubles ndarray)))

(defn ->vec
  "Returns the elements of `ndarray`, row by row, as a flat vector of Floats, whatever its dtype.

  `(= [0.5] v)` holds for an element 0.5, but `(= [0.1] v)` does not for 0.1: the Float is another number than
  the Double. Throws code `:closed` when `ndarray` was disposed.

      (->vec (ones [2 2])) ;=> [1.0 1.0 1.0 1.0]"
  [ndarray]
  (vec (to-array ndarray)))

(defn ->float-vec
  "Returns the elements of `ndarray` as a flat vector of Floats, as `->vec` does.

  Throws code `:closed` when `ndarray` was disposed.

      (->float-vec (ones [2])) ;=> [1.0 1.0]"
  [ndarray]
  (->vec ndarray))

(defn ->double-vec
  "Returns the elements of `ndarray` as a flat vector of Doubles.

  Throws code `:closed` when `ndarray` was disposed.

      (->double-vec (array [0.1] [1] {:dtype :float64})) ;=> [0.1]"
  [^NDArray ndarray]
  (errors/guard (vec (.toDoubles ndarray))))

(defn ->int-vec
  "Returns the elements of `ndarray`, without their fractions, as a flat vector of Integers.

  Throws code `:closed` when `ndarray` was disposed.

      (->int-vec (array [1.5 200] [2])) ;=> [1 200]"
  [^NDArray ndarray]
  (errors/guard (vec (.toInts ndarray))))

(defn ->long-vec
  "Returns the elements of `ndarray`, without their fractions, as a flat vector of Longs.

  Throws code `:closed` when `ndarray` was disposed.

      (->long-vec (full [1] 9007199254740993 {:dtype :int64})) ;=> [9007199254740993]"
  [^NDArray ndarray]
  (errors/guard (vec (.toLongs ndarray))))

(defn ->byte-vec
  "Returns the low eight bits of the elements of `ndarray`, without their fractions, as signed Bytes.

  Throws code `:closed` when `ndarray` was disposed.

      (->byte-vec (array [1 200] [2] {:dtype :uint8})) ;=> [1 -56]"
  [^NDArray ndarray]
  (errors/guard (mapv unchecked-byte (.toInts ndarray))))

(defn ->raw
  "Returns the elements of `ndarray` as the bytes that hold them: a byte[], row by row, little endian.

  Throws code `:closed` when `ndarray` was disposed.

      (alength (->raw (ones [2]))) ;=> 8"
  ^bytes [^NDArray ndarray]
  (errors/guard (.toBytes ndarray)))

(defn- nest
  "The elements of the vector `flat` in vectors of vectors with the dimensions `dims`."
  [flat [n & dims]]
  (if (or (empty? dims) (zero? (long n)))
    flat
    (let [width (long (apply * dims))]
      (mapv #(nest (subvec flat (* (long %) width) (* (inc (long %)) width)) dims)
            (range n)))))

(defn elements
  "Returns the elements as a flat vector: Longs for int64, Integers for other integer dtypes,
  Doubles for float64, Floats for other floating-point dtypes."
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

  Throws \"Invalid input array\" when it is no array, and code `:closed` when `ndarray` was disposed.

      (->nd-vec (ones [2 1])) ;=> [[1.0] [1.0]]"
  [^NDArray ndarray]
  (when-not (pairs/array? ndarray)
    (errors/reject "input array" "an NDArray" ndarray))
  (errors/guard
    (nest (vec (.toFloats ndarray)) (vec (.toArray (.shape ndarray))))))

(defn as-buffer
  "Returns the elements of `ndarray` without a copy, as they are now: a read-only direct ByteBuffer.

  They are row-major, in the byte order of the machine. Later changes of `ndarray` do not reach it, and it
  stays valid as long as it can be reached, even after `dispose`. Elements on a GPU are copied to the host
  first. Throws code `:invalid-argument` for 2 GiB or more, which no buffer can have (`read-into` reads piece
  by piece), and code `:closed` when `ndarray` was disposed.

      (.get (.asFloatBuffer (as-buffer (array [1 2] [2]))) 1) ;=> 2.0"
  ^java.nio.ByteBuffer [^NDArray ndarray]
  (errors/guard (.asBuffer ndarray)))

(defn read-into
  "Fills `dest` with elements of `ndarray`, and returns it.

  `dest` is a float[], double[], int[], long[] or byte[], or a buffer of java.nio, which is filled from its
  position to its limit: numbers for a FloatBuffer, DoubleBuffer, IntBuffer or LongBuffer, the bytes of the
  elements for a ByteBuffer in the byte order of the machine. Elements are read in row-major order from
  `start` on, 0 by default, and converted. Throws \"Invalid destination\", \"Invalid start\", and code
  `:invalid-argument` when `ndarray` does not have as many.

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

  Throws \"The current array is not a scalar\" for any other shape, and code `:closed` when `ndarray` was
  disposed.

      (to-scalar (sum (ones [2 3]))) ;=> 6.0"
  [^NDArray ndarray]
  (errors/guard
    (let [dims (vec (.toArray (.shape ndarray)))]
      (when-not (or (core/= [1] dims) (core/= [] dims))
        (errors/invalid (str "The current array is not a scalar: expected shape [1], found " dims) dims))
      (aget (.toFloats ndarray) 0))))

(defn- same-floats?
  [^floats xs ^floats ys]
  (loop [i 0]
    (cond
      (core/= i (alength xs)) true
      (== (aget xs i) (aget ys i)) (recur (inc i))
      :else false)))

(defn =
  "Have `a` and `b` the same shape and, read as Floats, the same elements?

  Their dtypes and contexts may differ. NaN equals nothing. What is no array equals no array. Throws code
  `:closed` when one of two arrays was disposed.

      (= (ones [2]) (full [2] 1)) ;=> true"
  [a b]
  (errors/guard
    (and (pairs/array? a)
         (pairs/array? b)
         (core/= (.shape ^NDArray a) (.shape ^NDArray b))
         (same-floats? (.toFloats ^NDArray a) (.toFloats ^NDArray b)))))
