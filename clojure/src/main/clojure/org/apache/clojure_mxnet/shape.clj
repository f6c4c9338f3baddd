(ns org.apache.clojure-mxnet.shape
  "The dimensions of an array as a value.

    ->shape           creates a shape from a vector
    ->vec             returns the dimensions
    length, product   return the number of dimensions, the number of elements

  Shapes with equal dimensions are equal, and `(str (->shape [1 2 3]))` is \"(1,2,3)\"."
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.lists :as lists]
            [dev.kvstore.impl.printing])
  (:import (dev.kvstore Shape)))

(set! *warn-on-reflection* true)

(defn ->shape
  "Returns the shape with the dimensions in `shape-vec`, a list of integers. Returns a shape
  unchanged.

  Throws \"Invalid shape\" if an element is not an integer, and code `:invalid-argument` if a
  dimension is negative.

      (str (->shape [2 3])) ;=> \"(2,3)\""
  ^dev.kvstore.Shape [shape-vec]
  (if (instance? Shape shape-vec)
    shape-vec
    (let [dims (lists/as-list shape-vec)]
      (if (and dims (every? int? dims))
        (errors/guard (Shape/of (long-array dims)))
        (errors/reject "shape" "a list of integers" shape-vec)))))

(defn ->vec
  "Returns the dimensions of `shape` as a vector. Throws ClassCastException if it is not a shape.

      (->vec (->shape [2 3])) ;=> [2 3]"
  [^Shape shape]
  (vec (.toArray shape)))

(defn length
  "Returns the number of dimensions of `shape`, 0 for the shape of a scalar.

  Throws ClassCastException if it is not a shape.

      (length (->shape [2 3])) ;=> 2"
  [^Shape shape]
  (.length shape))

(defn product
  "Returns the number of elements of an array with this `shape`.

  Throws code `:invalid-argument` if the number does not fit a long, and ClassCastException if it
  is not a shape.

      (product (->shape [2 3])) ;=> 6"
  [^Shape shape]
  (.product shape))
