(ns dev.kvstore.impl.numbers
  "Numbers on their way into an array.

    long?     does a number go as a long, or as a double?
    all-long? the same of many"
  (:require [dev.kvstore.impl.errors :as errors])
  (:import (dev.kvstore DType)))

(set! *warn-on-reflection* true)

(defn long?
  "Does the number `x` go into an array of `dtype` as a long? Every integer does that fits one.

  A larger one goes as a double where the elements are floating point, and is refused where they are
  integers: it would arrive as another number."
  [x ^DType dtype]
  (cond
    (int? x) true
    (not (integer? x)) false
    (<= Long/MIN_VALUE x Long/MAX_VALUE) true
    (.isFloatingPoint dtype) false
    :else (errors/invalid (str "Invalid number: " x " does not fit a long") x)))

(defn all-long?
  "Do all the numbers `xs` go into an array of `dtype` as longs?"
  [xs dtype]
  (or (every? int? xs)
      (and (every? integer? xs)
           (every? #(long? % dtype) xs))))
