(ns dev.kvstore.impl.ndarray.structure
  "Views, copies, properties and closing of arrays. org.apache.clojure-mxnet.ndarray exports these
  functions.

    slice at reshape                              views that share memory
    copy copy-to as-type as-in-context t          new arrays
    set                                           sets the elements
    shape shape-vec size dtype context            properties
    dispose is-disposed wait-to-read waitall      closing and waiting
    dependencies dispose-deps dispose-deps-except  the arrays that an array was computed from
    handle                                        a unique number"
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
  "Returns the rows from `start` up to, but not including, `stop` of `ndarray`, or only the row
  `i`.

  The result has the same rank and shares memory: writing to it writes to `ndarray`. Throws code
  `:invalid-argument` if `ndarray` has no such rows.

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
  "Returns row `i` of `ndarray` without the first dimension. If `ndarray` is a vector, the result
  has the shape [1].

  The result shares memory. Throws code `:invalid-argument` if `ndarray` has no such row.

      (shape-vec (at (ones [3 2]) 1)) ;=> [2]"
  ^dev.kvstore.NDArray [^NDArray ndarray i]
  (let [i (checked-index i)]
    (errors/guard (.at ndarray i))))

(defn reshape
  "Returns `ndarray` with the dimensions in `shape-vec`. The result shares memory.

  -1 is inferred from the size and the other dimensions, 0 copies the dimension at the same
  position, -2 copies all remaining dimensions, -3 multiplies the next two dimensions, and -4
  splits the next dimension into the two numbers that follow. Throws code `:invalid-argument` if
  the size would change.

      (shape-vec (reshape (zeros [2 3]) [3 -1])) ;=> [3 2]"
  ^dev.kvstore.NDArray [^NDArray ndarray shape-vec]
  (let [dims (lists/as-list shape-vec)]
    (when-not (and dims (every? int? dims))
      (errors/reject "shape" "a list of integers" shape-vec))
    (errors/guard (.reshape ndarray (long-array dims)))))

(defn copy
  "Returns a copy of `ndarray`.

  Throws code `:closed` if `ndarray` is closed.

      (->vec (copy (ones [2]))) ;=> [1.0 1.0]"
  ^dev.kvstore.NDArray [^NDArray ndarray]
  (errors/guard (.copy ndarray)))

(defn copy-to
  "Copies the elements of `source` into `dest`, converted to the dtype of `dest`, and returns
  `dest`.

  Throws code `:spec-mismatch` if the shapes differ.

      (->vec (copy-to (ones [2]) (zeros [2]))) ;=> [1.0 1.0]"
  ^dev.kvstore.NDArray [^NDArray source ^NDArray dest]
  (errors/guard (.copyTo source dest)))

(defn as-type
  "Returns a new array with the elements of `ndarray`, converted to `dtype`.

  Converting a number to an integer truncates it. If the result does not fit, only its low bits
  are kept. Throws \"Invalid dtype\", code `:invalid-argument` if there is no dtype of that name,
  and code `:closed` if `ndarray` is closed.

      (->vec (as-type (array [1.5 -1.5] [2]) dtype/INT32)) ;=> [1.0 -1.0]"
  ^dev.kvstore.NDArray [^NDArray ndarray dtype]
  (let [dtype (options/->dtype dtype)]
    (errors/guard (.asType ndarray dtype))))

(defn as-in-context
  "Returns `ndarray` itself if it is in the context `ctx`, else a copy in `ctx`.

  Throws \"Invalid context\" if `ctx` is not a context, and code `:device-unavailable` if this
  machine has no such device.

      (str (context (as-in-context (ones [2]) (context/cpu 1)))) ;=> \"cpu(1)\""
  ^dev.kvstore.NDArray [^NDArray ndarray ^Context ctx]
  (errors/check #(instance? Context %) ctx "context" "a Context")
  (errors/guard (.asContext ndarray ctx)))

(defn t
  "Returns the transpose of the matrix `ndarray` as a new array.

  Throws code `:invalid-argument` if `ndarray` is not a matrix, and code `:closed` if it is
  closed.

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
  "Sets the elements of `ndarray` to `x`, and returns it.

  `x` is a number for every element, an array of the same shape, or one number per element in any
  of the forms that `array` accepts. Throws \"Invalid source\", code `:spec-mismatch` or code
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

  Never throws for an array, open or closed.

      (str (shape (ones [2 3]))) ;=> \"(2,3)\""
  ^dev.kvstore.Shape [^NDArray ndarray]
  (errors/guard (.shape ndarray)))

(defn shape-vec
  "Returns the dimensions of `ndarray` as a vector.

  Never throws for an array, open or closed.

      (shape-vec (ones [2 3])) ;=> [2 3]"
  [^NDArray ndarray]
  (errors/guard (vec (.toArray (.shape ndarray)))))

(defn size
  "Returns the number of elements of `ndarray`, or the number of arrays in a `dependencies` map.

  Never throws for an array, open or closed.

      (size (ones [2 3])) ;=> 6"
  [ndarray]
  (if (map? ndarray)
    (count ndarray)
    (errors/guard (.size ^NDArray ndarray))))

(defn dtype
  "Returns the dtype of `ndarray`.

  Never throws for an array, open or closed.

      (str (dtype (ones [2]))) ;=> \"float32\""
  ^dev.kvstore.DType [^NDArray ndarray]
  (errors/guard (.dtype ndarray)))

(defn context
  "Returns the context of `ndarray`.

  Never throws for an array, open or closed.

      (str (context (ones [2]))) ;=> \"cpu(0)\""
  ^dev.kvstore.Context [^NDArray ndarray]
  (errors/guard (.context ndarray)))

(defn wait-to-read
  "Waits until every change of `ndarray` that was requested so far is complete, and returns it.
  Reading it waits as well.

  Throws code `:closed` if `ndarray` is closed.

      (wait-to-read (ones [2]))"
  ^dev.kvstore.NDArray [^NDArray ndarray]
  (errors/guard (.waitToRead ndarray))
  ndarray)

(defn waitall
  "Waits until every change of any array that was requested so far is complete. Returns nil.

  Throws code `:backend` if work on a device failed.

      (waitall) ;=> nil"
  []
  (errors/guard (NDArray/waitAll))
  nil)

(defn dispose
  "Closes `ndarray` and returns nil. Closing it again does nothing; any use of its elements then
  throws code `:closed`.

  An array that is not closed is released some time after it became unreachable. `with-open`
  closes it, too. Never throws for an array.

      (with-open [a (zeros [2])] (->vec a)) ;=> [0.0 0.0]"
  [^NDArray ndarray]
  (errors/guard (.close ndarray)))

(defn is-disposed
  "Returns whether `ndarray` is closed.

  Never throws for an array, open or closed.

      (is-disposed (doto (zeros [2]) dispose)) ;=> true"
  [^NDArray ndarray]
  (.isClosed ndarray))

(defn dependencies
  "Returns a map from `handle` to array of the arrays that `ndarray` was computed from, directly or
  indirectly, the nearest first.

  It contains only arrays that are open and that something else keeps alive. Views and in-place
  operations add no dependencies. Never throws for an array, open or closed.

      (let [a (ones [2]) b (ones [2]) c (ones [2])] (count (dependencies (+ a (+ b c))))) ;=> 4"
  [^NDArray ndarray]
  (errors/guard
    (maps/in-order (fn [^NDArray array] (.id array)) identity (.dependencies ndarray))))

(defn dispose-deps
  "Closes the `dependencies` of `ndarray`, removes them from the map, and returns `ndarray`.

  Never throws for an array, open or closed.

      (let [a (ones [2]) b (+ a 1)] (dispose-deps b) (is-disposed a)) ;=> true"
  ^dev.kvstore.NDArray [^NDArray ndarray]
  (errors/guard (.closeDependencies ndarray)))

(defn dispose-deps-except
  "Like `dispose-deps` of `ndarray`, but keeps `kept`, an array or a list of arrays, and their
  dependencies open.

  Throws \"Invalid arrays\" if `kept` is anything else.

      (let [a (ones [2]) b (+ a 1) c (* b b)] (dispose-deps-except c b) (is-disposed a)) ;=> false"
  ^dev.kvstore.NDArray [^NDArray ndarray kept]
  (let [arrays (or (lists/as-list kept) [kept])]
    (when-not (every? pairs/array? arrays)
      (errors/reject "arrays" "an NDArray or a list of them" kept))
    (errors/guard (.closeDependenciesExcept ndarray (into-array NDArray arrays)))))

(defn handle
  "Returns a number that is unique to `ndarray` among the arrays of this process. It is not an
  address.

  Throws code `:closed` if `ndarray` is closed.

      (integer? (handle (ones [2]))) ;=> true"
  [^NDArray ndarray]
  (errors/guard (.id ndarray)))
