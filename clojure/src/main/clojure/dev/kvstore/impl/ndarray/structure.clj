(ns dev.kvstore.impl.ndarray.structure
  "Views, copies and the life of an array; offered by org.apache.clojure-mxnet.ndarray.

    slice at reshape                              views that share memory
    copy copy-to as-type as-in-context t          new arrays
    set                                           new content
    shape shape-vec size dtype context            what it is
    dispose is-disposed wait-to-read waitall      its life
    dependencies dispose-deps dispose-deps-except  what it was computed from
    handle                                        which one it is"
  (:refer-clojure :exclude [set])
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.lists :as lists]
            [dev.kvstore.impl.ndarray.creation :as creation]
            [dev.kvstore.impl.maps :as maps]
            [dev.kvstore.impl.numbers :as numbers]
            [dev.kvstore.impl.options :as options]
            [dev.kvstore.impl.pairs :as pairs])
  (:import (dev.kvstore Context NDArray)
           (java.nio Buffer)))

(set! *warn-on-reflection* true)

(defn- checked-index
  ^long [i]
  (if (int? i)
    (long i)
    (errors/reject "index" "an integer of 64 bits" i)))

(defn slice
  "Returns the rows `start` up to, but not including, `stop` of `ndarray`, or the one row `i`.

  The result keeps the rank and shares memory: writing to it writes to `ndarray`. Throws code
  `:invalid-argument` when there are no such rows.

      (->vec (slice (->ndarray [[1 2] [3 4] [5 6]]) 1)) ;=> [3.0 4.0]"
  (^dev.kvstore.NDArray [ndarray i]
   (let [i (checked-index i)]
     (errors/check #(< (long %) Long/MAX_VALUE) i "index" "an integer below 9223372036854775807")
     (slice ndarray i (inc i))))
  (^dev.kvstore.NDArray [^NDArray ndarray start stop]
   (let [start (checked-index start)
         stop (checked-index stop)]
     (errors/guard (.slice ndarray start stop)))))

(defn at
  "Returns row `i` of `ndarray` without its first axis; that of a vector has the shape [1].

  The result shares memory. Throws code `:invalid-argument` when there is no such row.

      (shape-vec (at (ones [3 2]) 1)) ;=> [2]"
  ^dev.kvstore.NDArray [^NDArray ndarray i]
  (let [i (checked-index i)]
    (errors/guard (.at ndarray i))))

(defn reshape
  "Returns `ndarray` with the dimensions in `shape-vec`, sharing memory.

  -1 stands for what is left over, 0 keeps the dimension, -2 keeps all that follow, -3 joins two and -4
  splits one into the two that follow. Throws code `:invalid-argument` when the size would change.

      (shape-vec (reshape (zeros [2 3]) [3 -1])) ;=> [3 2]"
  ^dev.kvstore.NDArray [^NDArray ndarray shape-vec]
  (let [dims (lists/as-list shape-vec)]
    (when-not (and dims (every? int? dims))
      (errors/reject "shape" "a list of integers" shape-vec))
    (errors/guard (.reshape ndarray (long-array dims)))))

(defn copy
  "Returns a new array with the content of `ndarray`.

  Throws code `:closed` when `ndarray` was disposed.

      (->vec (copy (ones [2]))) ;=> [1.0 1.0]"
  ^dev.kvstore.NDArray [^NDArray ndarray]
  (errors/guard (.copy ndarray)))

(defn copy-to
  "Writes the content of `source` into `dest`, converted to its dtype, and returns `dest`.

  Throws code `:spec-mismatch` when the shapes differ.

      (->vec (copy-to (ones [2]) (zeros [2]))) ;=> [1.0 1.0]"
  ^dev.kvstore.NDArray [^NDArray source ^NDArray dest]
  (errors/guard (.copyTo source dest)))

(defn as-type
  "Returns a new array with the content of `ndarray` as `dtype`.

  Numbers become integers by dropping the fraction and keeping the low bits. Throws \"Invalid dtype\", code
  `:invalid-argument` for a name that is no dtype's, and code `:closed` when `ndarray` was disposed.

      (->vec (as-type (array [1.5 -1.5] [2]) dtype/INT32)) ;=> [1.0 -1.0]"
  ^dev.kvstore.NDArray [^NDArray ndarray dtype]
  (let [dtype (options/->dtype dtype)]
    (errors/guard (.asType ndarray dtype))))

(defn as-in-context
  "Returns `ndarray` itself when it is in the context `ctx`, else a copy there.

  Throws \"Invalid context\" for what is none, and code `:device-unavailable` for a device that this machine
  does not have.

      (str (context (as-in-context (ones [2]) (context/cpu 1)))) ;=> \"cpu(1)\""
  ^dev.kvstore.NDArray [^NDArray ndarray ^Context ctx]
  (errors/check #(instance? Context %) ctx "context" "a Context")
  (errors/guard (.asContext ndarray ctx)))

(defn t
  "Returns the transpose of the matrix `ndarray` as a new array.

  Throws code `:invalid-argument` for an array that is no matrix, and code `:closed` when `ndarray` was
  disposed.

      (shape-vec (t (ones [2 3]))) ;=> [3 2]"
  ^dev.kvstore.NDArray [^NDArray ndarray]
  (errors/guard (.transpose ndarray)))

(defn- set-host
  [^NDArray ndarray data]
  (case (.getName (class data))
    "[F" (.set ndarray ^floats data)
    "[D" (.set ndarray ^doubles data)
    "[I" (.set ndarray ^ints data)
    "[J" (.set ndarray ^longs data)
    "[B" (.set ndarray ^bytes data)
    (.set ndarray ^Buffer data)))

(defn set
  "Gives `ndarray` another content, `x`, and returns it.

  `x` is a number for every element, an array of the same shape, or as many numbers as there are elements,
  in any of the forms that `array` takes. Throws \"Invalid source\", code `:spec-mismatch` or code
  `:length-mismatch`.

      (->vec (set (zeros [2]) [1 2])) ;=> [1.0 2.0]"
  ^dev.kvstore.NDArray [^NDArray ndarray x]
  (errors/guard
    (cond
      (pairs/array? x) (.set ndarray ^NDArray x)
      (not (number? x)) (set-host ndarray (creation/host-data x (.dtype ndarray)))
      (numbers/long? x (.dtype ndarray)) (.set ndarray (long x))
      :else (.set ndarray (double x)))))

(defn shape
  "Returns the Shape of `ndarray`.

  Never throws for an array, disposed or not.

      (str (shape (ones [2 3]))) ;=> \"(2,3)\""
  ^dev.kvstore.Shape [^NDArray ndarray]
  (errors/guard (.shape ndarray)))

(defn shape-vec
  "Returns the dimensions of `ndarray` as a vector.

  Never throws for an array, disposed or not.

      (shape-vec (ones [2 3])) ;=> [2 3]"
  [^NDArray ndarray]
  (errors/guard (vec (.toArray (.shape ndarray)))))

(defn size
  "Returns the number of elements of `ndarray`, or the number of arrays in a `dependencies` map.

  Never throws for an array, disposed or not.

      (size (ones [2 3])) ;=> 6"
  [ndarray]
  (if (map? ndarray)
    (count ndarray)
    (errors/guard (.size ^NDArray ndarray))))

(defn dtype
  "Returns the dtype of `ndarray`.

  Never throws for an array, disposed or not.

      (str (dtype (ones [2]))) ;=> \"float32\""
  ^dev.kvstore.DType [^NDArray ndarray]
  (errors/guard (.dtype ndarray)))

(defn context
  "Returns the context of `ndarray`.

  Never throws for an array, disposed or not.

      (str (context (ones [2]))) ;=> \"cpu(0)\""
  ^dev.kvstore.Context [^NDArray ndarray]
  (errors/guard (.context ndarray)))

(defn wait-to-read
  "Waits until all that was started on `ndarray` is done, and returns it. Reading it waits as well.

  Throws code `:closed` when `ndarray` was disposed.

      (wait-to-read (ones [2]))"
  ^dev.kvstore.NDArray [^NDArray ndarray]
  (errors/guard (.waitToRead ndarray))
  ndarray)

(defn waitall
  "Waits until all that was started on any array is done. Returns nil.

  Throws code `:backend` when work on a device went wrong.

      (waitall) ;=> nil"
  []
  (errors/guard (NDArray/waitAll))
  nil)

(defn dispose
  "Frees `ndarray` and returns nil. Doing so twice is fine; any use of its elements is code `:closed` then.

  An array that is never disposed is freed some time after it became unreachable. `with-open` disposes.
  Never throws for an array.

      (with-open [a (zeros [2])] (->vec a)) ;=> [0.0 0.0]"
  [^NDArray ndarray]
  (errors/guard (.close ndarray)))

(defn is-disposed
  "Was `ndarray` disposed?

  Never throws for an array, disposed or not.

      (is-disposed (doto (zeros [2]) dispose)) ;=> true"
  [^NDArray ndarray]
  (.isClosed ndarray))

(defn dependencies
  "Returns a map of `handle` to array: those that `ndarray` was computed from, and those in turn, the nearest
  first.

  Disposed ones and those that nobody else keeps are not in it; views and what is done in place add none.
  Never throws for an array, disposed or not.

      (let [a (ones [2]) b (ones [2]) c (ones [2])] (count (dependencies (+ a (+ b c))))) ;=> 4"
  [^NDArray ndarray]
  (errors/guard
    (maps/in-order (fn [^NDArray array] (.id array)) identity (.dependencies ndarray))))

(defn dispose-deps
  "Disposes the `dependencies` of `ndarray`, forgets them, and returns it.

  Never throws for an array, disposed or not.

      (let [a (ones [2]) b (+ a 1)] (dispose-deps b) (is-disposed a)) ;=> true"
  ^dev.kvstore.NDArray [^NDArray ndarray]
  (errors/guard (.closeDependencies ndarray)))

(defn dispose-deps-except
  "As `dispose-deps` of `ndarray`, but keeps `kept`, an array or a list of arrays, with theirs.

  Throws \"Invalid arrays\" when `kept` is anything else.

      (let [a (ones [2]) b (+ a 1) c (* b b)] (dispose-deps-except c b) (is-disposed a)) ;=> false"
  ^dev.kvstore.NDArray [^NDArray ndarray kept]
  (let [arrays (or (lists/as-list kept) [kept])]
    (when-not (every? pairs/array? arrays)
      (errors/reject "arrays" "an NDArray or a list of them" kept))
    (errors/guard (.closeDependenciesExcept ndarray (into-array NDArray arrays)))))

(defn handle
  "Returns the number that tells `ndarray` from every other array of this process. It is no address.

  Throws code `:closed` when `ndarray` was disposed.

      (integer? (handle (ones [2]))) ;=> true"
  [^NDArray ndarray]
  (errors/guard (.id ndarray)))
