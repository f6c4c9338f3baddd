(ns dev.kvstore.impl.numbers
  "Numbers for the elements of an array.

    long?     whether to pass a number as a long rather than a double
    all-long? the same for several numbers"
  (:require [dev.kvstore.impl.errors :as errors])
  (:import (dev.kvstore DType)))

(set! *warn-on-reflection* true)

(defn long?
  "Returns whether to pass the number `x` as a long to an array of `dtype`. This is so for every
  integer that fits a long.

  A larger integer is passed as a double if the elements are floating point. If they are integers,
  it is rejected, because the array would receive a different number."
  [x ^DType dtype]
  (cond
    (int? x) true
    (not (integer? x)) false
    (<= Long/MIN_VALUE x Long/MAX_VALUE) true
    (.isFloatingPoint dtype) false
    :else (errors/invalid (str "Invalid number: expected an integer that fits into `int64`, found "
                               x)
                          x)))

(defn all-long?
  "Returns whether to pass all the numbers `xs` as longs to an array of `dtype`."
  [xs dtype]
  (or (every? int? xs)
      (and (every? integer? xs)
           (every? #(long? % dtype) xs))))
