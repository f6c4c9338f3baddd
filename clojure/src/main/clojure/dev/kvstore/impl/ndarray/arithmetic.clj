(ns dev.kvstore.impl.ndarray.arithmetic
  "Element-wise arithmetic and comparison. org.apache.clojure-mxnet.ndarray exports these
  functions.

    + - * div / % ** power maximum minimum        new arrays
    > >= < <= equal not-equal                     new arrays of ones and zeros
    += -= *= div= %= **=                          in place

  Two arrays need the same shape and dtype. Comparisons also broadcast dimensions of size 1. A
  number is first converted to the array's dtype, so for an integer array it is truncated."
  (:refer-clojure :exclude [+ - * / > >= < <=])
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.numbers :as numbers]
            [dev.kvstore.impl.pairs :as pairs])
  (:import (dev.kvstore BinaryOp NDArray)))

(set! *warn-on-reflection* true)

(defn- operand
  [x]
  (if (or (pairs/array? x) (number? x))
    x
    (errors/reject "operand" "an NDArray or a number" x)))

(defn- with-number
  [^NDArray a ^BinaryOp op x]
  (if (numbers/long? x (.dtype a))
    (.apply a op (long x))
    (.apply a op (double x))))

(defn- number-with
  [x ^BinaryOp op ^NDArray a]
  (if (numbers/long? x (.dtype a))
    (.applyReversed a op (long x))
    (.applyReversed a op (double x))))

(defn- binary
  "Returns a new array with `op` applied to the elements of `a` and `b`. One of them may be a
  number."
  ^NDArray [^BinaryOp op a b]
  (errors/guard
    (cond
      (and (pairs/array? a) (pairs/array? b)) (.apply ^NDArray a op ^NDArray b)
      (pairs/array? a) (with-number a op (operand b))
      (pairs/array? b) (number-with (operand a) op b)
      :else (errors/reject "operand" "an NDArray on one side at least" a))))

(defn- assign
  "Applies `op` to the elements of the array `a` and of `b`, an array or a number. Writes the
  results to `a` and returns it."
  ^NDArray [^BinaryOp op ^NDArray a b]
  (errors/guard
    (cond
      (pairs/array? b) (.applyInPlace a op ^NDArray b)
      (numbers/long? (operand b) (.dtype a)) (.applyInPlace a op (long b))
      :else (.applyInPlace a op (double b)))))

(defn +
  "Returns a new array of the sums of `a` and `b`.

  `a` or `b` may be a number. Throws code `:spec-mismatch` if shapes or dtypes differ.

      (->vec (+ (ones [2]) 2)) ;=> [3.0 3.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/ADD a b))

(defn -
  "Returns a new array of the differences of `a` and `b`.

  `a` or `b` may be a number. Throws code `:spec-mismatch` if shapes or dtypes differ.

      (->vec (- (ones [2]) 2)) ;=> [-1.0 -1.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/SUB a b))

(defn *
  "Returns a new array of the products of `a` and `b`.

  `a` or `b` may be a number. Throws code `:spec-mismatch` if shapes or dtypes differ.

      (->vec (* (ones [2]) 2)) ;=> [2.0 2.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/MUL a b))

(defn div
  "Returns a new array of the quotients of `a` and `b`.

  `a` or `b` may be a number. Throws code `:spec-mismatch` if shapes or dtypes differ. Integer
  division truncates. Throws code `:invalid-argument` if an integer is divided by zero.

      (->vec (div (ones [2]) 2)) ;=> [0.5 0.5]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/DIV a b))

(defn /
  "Returns a new array of the quotients of `a` and `b`. The same as `div`.

  `a` or `b` may be a number. Throws code `:spec-mismatch` if shapes or dtypes differ. Integer
  division truncates. Throws code `:invalid-argument` if an integer is divided by zero.

      (->vec (/ (ones [2]) 2)) ;=> [0.5 0.5]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/DIV a b))

(defn %
  "Returns a new array of the remainders of `a` and `b`, with the sign of the divisor.

  `a` or `b` may be a number. Throws code `:spec-mismatch` if shapes or dtypes differ.

      (->vec (% (array [5 -5] [2]) 3)) ;=> [2.0 1.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/REM a b))

(defn power
  "Returns a new array of `a` to the power of `b`.

  `a` or `b` may be a number. Throws code `:spec-mismatch` if shapes or dtypes differ.

      (->vec (power 2 (array [3 5] [2]))) ;=> [8.0 32.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/POW a b))

(defn **
  "Returns a new array of `a` to the power of `b`. The same as `power`.

  `a` or `b` may be a number. Throws code `:spec-mismatch` if shapes or dtypes differ.

      (->vec (** (array [3 5] [2]) 2)) ;=> [9.0 25.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/POW a b))

(defn maximum
  "Returns a new array of the maxima of `a` and `b`, element by element.

  `a` or `b` may be a number. Throws code `:spec-mismatch` if shapes or dtypes differ.

      (->vec (maximum (array [-1 1] [2]) 0)) ;=> [0.0 1.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/MAXIMUM a b))

(defn minimum
  "Returns a new array of the minima of `a` and `b`, element by element.

  `a` or `b` may be a number. Throws code `:spec-mismatch` if shapes or dtypes differ.

      (->vec (minimum (array [-1 1] [2]) 0)) ;=> [-1.0 0.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/MINIMUM a b))

(defn >
  "Returns a new array with 1 where `a` is greater than `b`, else 0.

  `a` or `b` may be a number; dimensions of size 1 are broadcast. Throws code `:spec-mismatch` if
  shapes or dtypes do not match.

      (->vec (> (array [1 2 3] [3]) 2)) ;=> [0.0 0.0 1.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/GREATER a b))

(defn >=
  "Returns a new array with 1 where `a` is greater than or equal to `b`, else 0.

  `a` or `b` may be a number; dimensions of size 1 are broadcast. Throws code `:spec-mismatch` if
  shapes or dtypes do not match.

      (->vec (>= (array [1 2 3] [3]) 2)) ;=> [0.0 1.0 1.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/GREATER_EQUAL a b))

(defn <
  "Returns a new array with 1 where `a` is less than `b`, else 0.

  `a` or `b` may be a number; dimensions of size 1 are broadcast. Throws code `:spec-mismatch` if
  shapes or dtypes do not match.

      (->vec (< (array [1 2 3] [3]) 2)) ;=> [1.0 0.0 0.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/LESS a b))

(defn <=
  "Returns a new array with 1 where `a` is less than or equal to `b`, else 0.

  `a` or `b` may be a number; dimensions of size 1 are broadcast. Throws code `:spec-mismatch` if
  shapes or dtypes do not match.

      (->vec (<= (array [1 2 3] [3]) 2)) ;=> [1.0 1.0 0.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/LESS_EQUAL a b))

(defn equal
  "Returns a new array with 1 where `a` equals `b`, else 0.

  `a` or `b` may be a number; dimensions of size 1 are broadcast. Throws code `:spec-mismatch` if
  shapes or dtypes do not match.

      (->vec (equal (array [1 2 3] [3]) 2)) ;=> [0.0 1.0 0.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/EQUAL a b))

(defn not-equal
  "Returns a new array with 1 where `a` does not equal `b`, else 0.

  `a` or `b` may be a number; dimensions of size 1 are broadcast. Throws code `:spec-mismatch` if
  shapes or dtypes do not match.

      (->vec (not-equal (array [1 2 3] [3]) 2)) ;=> [1.0 0.0 1.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/NOT_EQUAL a b))

(defn +=
  "Adds `b` to `a` in place and returns `a`.

  `b` is an array or a number. Throws code `:spec-mismatch` if shapes or dtypes differ.

      (->vec (+= (ones [2]) 2)) ;=> [3.0 3.0]"
  ^dev.kvstore.NDArray [a b]
  (assign BinaryOp/ADD a b))

(defn -=
  "Subtracts `b` from `a` in place and returns `a`.

  `b` is an array or a number. Throws code `:spec-mismatch` if shapes or dtypes differ.

      (->vec (-= (ones [2]) 2)) ;=> [-1.0 -1.0]"
  ^dev.kvstore.NDArray [a b]
  (assign BinaryOp/SUB a b))

(defn *=
  "Multiplies `a` by `b` in place and returns `a`.

  `b` is an array or a number. Throws code `:spec-mismatch` if shapes or dtypes differ.

      (->vec (*= (ones [2]) 2)) ;=> [2.0 2.0]"
  ^dev.kvstore.NDArray [a b]
  (assign BinaryOp/MUL a b))

(defn div=
  "Divides `a` by `b` in place and returns `a`.

  `b` is an array or a number. Throws code `:spec-mismatch` if shapes or dtypes differ. Throws
  code `:invalid-argument` if an integer is divided by zero.

      (->vec (div= (ones [2]) 2)) ;=> [0.5 0.5]"
  ^dev.kvstore.NDArray [a b]
  (assign BinaryOp/DIV a b))

(defn %=
  "Replaces `a` with the remainders of its division by `b` and returns `a`.

  `b` is an array or a number. Throws code `:spec-mismatch` if shapes or dtypes differ.

      (->vec (%= (array [5 -5] [2]) 3)) ;=> [2.0 1.0]"
  ^dev.kvstore.NDArray [a b]
  (assign BinaryOp/REM a b))

(defn **=
  "Raises `a` to the power of `b` in place and returns `a`.

  `b` is an array or a number. Throws code `:spec-mismatch` if shapes or dtypes differ.

      (->vec (**= (array [3 5] [2]) 2)) ;=> [9.0 25.0]"
  ^dev.kvstore.NDArray [a b]
  (assign BinaryOp/POW a b))
