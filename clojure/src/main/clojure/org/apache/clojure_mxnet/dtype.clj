(ns org.apache.clojure-mxnet.dtype
  "The data types of array elements.

    FLOAT16 BFLOAT16 FLOAT32 FLOAT64   floating point
    UINT8 INT8 INT32 INT64             integers

  A function that takes a `:dtype` also accepts the name: `:float64` or \"float64\"."
  (:require [dev.kvstore.impl.printing])
  (:import (dev.kvstore DType)))

(set! *warn-on-reflection* true)

(def UINT8
  "Unsigned bytes, 0 to 255.

      (str UINT8) ;=> \"uint8\""
  DType/UINT8)

(def INT8
  "Signed bytes, -128 to 127.

      (str INT8) ;=> \"int8\""
  DType/INT8)

(def INT32
  "Signed 32-bit integers.

      (str INT32) ;=> \"int32\""
  DType/INT32)

(def INT64
  "Signed 64-bit integers.

      (str INT64) ;=> \"int64\""
  DType/INT64)

(def FLOAT16
  "IEEE 754 half precision.

      (str FLOAT16) ;=> \"float16\""
  DType/FLOAT16)

(def BFLOAT16
  "Brain floating point: the upper half of a single precision number.

      (str BFLOAT16) ;=> \"bfloat16\""
  DType/BFLOAT16)

(def FLOAT32
  "IEEE 754 single precision. This is the default.

      (str FLOAT32) ;=> \"float32\""
  DType/FLOAT32)

(def FLOAT64
  "IEEE 754 double precision.

      (str FLOAT64) ;=> \"float64\""
  DType/FLOAT64)
