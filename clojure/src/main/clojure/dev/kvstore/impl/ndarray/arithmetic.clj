(ns dev.kvstore.impl.ndarray.arithmetic
  "Arithmetic and comparison, element by element; offered by org.apache.clojure-mxnet.ndarray.

    + - * div / % ** power maximum minimum        new arrays
    > >= < <= equal not-equal                     new arrays of ones and zeros
    += -= *= div= %= **=                          in place

  Two arrays need the same shape and dtype, but comparisons stretch an axis of length 1. A number takes
  the array's dtype first: with integers it loses its fraction."
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
  "Returns a new array of `op` on the elements of `a` and `b`, of which one may be a number."
  ^NDArray [^BinaryOp op a b]
  (errors/guard
    (cond
      (and (pairs/array? a) (pairs/array? b)) (.apply ^NDArray a op ^NDArray b)
      (pairs/array? a) (with-number a op (operand b))
      (pairs/array? b) (number-with (operand a) op b)
      :else (errors/reject "operand" "an NDArray on one side at least" a))))

(defn- assign
  "Writes `op` on the elements of the array `a` and `b`, an array or a number, into `a` and returns it."
  ^NDArray [^BinaryOp op ^NDArray a b]
  (errors/guard
    (cond
      (pairs/array? b) (.applyInPlace a op ^NDArray b)
      (numbers/long? (operand b) (.dtype a)) (.applyInPlace a op (long b))
      :else (.applyInPlace a op (double b)))))

(defn +
  "Returns a new array of the sums of `a` and `b`.

  `a` or `b` may be a number. Throws code `:spec-mismatch` when shapes or dtypes differ.

      (->vec (+ (ones [2]) 2)) ;=> [3.0 3.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/ADD a b))

(defn -
  "Returns a new array of the differences of `a` and `b`.

  `a` or `b` may be a number. Throws code `:spec-mismatch` when shapes or dtypes differ.

      (->vec (- (ones [2]) 2)) ;=> [-1.0 -1.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/SUB a b))

(defn *
  "Returns a new array of the products of `a` and `b`.

  `a` or `b` may be a number. Throws code `:spec-mismatch` when shapes or dtypes differ.

      (->vec (* (ones [2]) 2)) ;=> [2.0 2.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/MUL a b))

(defn div
  "Returns a new array of the quotients of `a` and `b`.

  `a` or `b` may be a number. Throws code `:spec-mismatch` when shapes or dtypes differ.
  Integers divide without a fraction; code `:invalid-argument` when one of them is divided by zero.

      (->vec (div (ones [2]) 2)) ;=> [0.5 0.5]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/DIV a b))

(defn /
  "Returns a new array of the quotients of `a` and `b`. The same as `div`.

  `a` or `b` may be a number. Throws code `:spec-mismatch` when shapes or dtypes differ.
  Integers divide without a fraction; code `:invalid-argument` when one of them is divided by zero.

      (->vec (/ (ones [2]) 2)) ;=> [0.5 0.5]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/DIV a b))

(defn %
  "Returns a new array of the remainders of `a` and `b`, with the sign of the divisor.

  `a` or `b` may be a number. Throws code `:spec-mismatch` when shapes or dtypes differ.

      (->vec (% (array [5 -5] [2]) 3)) ;=> [2.0 1.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/REM a b))

(defn power
  "Returns a new array of `a` to the power of `b`.

  `a` or `b` may be a number. Throws code `:spec-mismatch` when shapes or dtypes differ.

      (->vec (power 2 (array [3 5] [2]))) ;=> [8.0 32.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/POW a b))

(defn **
  "Returns a new array of `a` to the power of `b`. The same as `power`.

  `a` or `b` may be a number. Throws code `:spec-mismatch` when shapes or dtypes differ.

      (->vec (** (array [3 5] [2]) 2)) ;=> [9.0 25.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/POW a b))

(defn maximum
  "Returns a new array of the greater of each `a` and `b`.

  `a` or `b` may be a number. Throws code `:spec-mismatch` when shapes or dtypes differ.

      (->vec (maximum (array [-1 1] [2]) 0)) ;=> [0.0 1.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/MAXIMUM a b))

(defn minimum
  "Returns a new array of the lesser of each `a` and `b`.

  `a` or `b` may be a number. Throws code `:spec-mismatch` when shapes or dtypes differ.

      (->vec (minimum (array [-1 1] [2]) 0)) ;=> [-1.0 0.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/MINIMUM a b))

(defn >
  "Returns a new array with 1 where `a` is greater than `b`, else 0.

  `a` or `b` may be a number; axes of length 1 are stretched. Throws code `:spec-mismatch` when the
  arrays do not fit together.

      (->vec (> (array [1 2 3] [3]) 2)) ;=> [0.0 0.0 1.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/GREATER a b))

(defn >=
  "Returns a new array with 1 where `a` is greater than or equal to `b`, else 0.

  `a` or `b` may be a number; axes of length 1 are stretched. Throws code `:spec-mismatch` when the
  arrays do not fit together.

      (->vec (>= (array [1 2 3] [3]) 2)) ;=> [0.0 1.0 1.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/GREATER_EQUAL a b))

(defn <
  "Returns a new array with 1 where `a` is less than `b`, else 0.

  `a` or `b` may be a number; axes of length 1 are stretched. Throws code `:spec-mismatch` when the
  arrays do not fit together.

      (->vec (< (array [1 2 3] [3]) 2)) ;=> [1.0 0.0 0.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/LESS a b))

(defn <=
  "Returns a new array with 1 where `a` is less than or equal to `b`, else 0.

  `a` or `b` may be a number; axes of length 1 are stretched. Throws code `:spec-mismatch` when the
  arrays do not fit together.

      (->vec (<= (array [1 2 3] [3]) 2)) ;=> [1.0 1.0 0.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/LESS_EQUAL a b))

(defn equal
  "Returns a new array with 1 where `a` equals `b`, else 0.

  `a` or `b` may be a number; axes of length 1 are stretched. Throws code `:spec-mismatch` when the
  arrays do not fit together.

      (->vec (equal (array [1 2 3] [3]) 2)) ;=> [0.0 1.0 0.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/EQUAL a b))

(defn not-equal
  "Returns a new array with 1 where `a` does not equal `b`, else 0.

  `a` or `b` may be a number; axes of length 1 are stretched. Throws code `:spec-mismatch` when the
  arrays do not fit together.

      (->vec (not-equal (array [1 2 3] [3]) 2)) ;=> [1.0 0.0 1.0]"
  ^dev.kvstore.NDArray [a b]
  (binary BinaryOp/NOT_EQUAL a b))

(defn +=
  "Adds `b` to `a` in place and returns `a`.

  `b` is an array or a number. Throws code `:spec-mismatch` when shapes or dtypes differ.

      (->vec (+= (ones [2]) 2)) ;=> [3.0 3.0]"
  ^dev.kvstore.NDArray [a b]
  (assign BinaryOp/ADD a b))

(defn -=
  "Subtracts `b` from `a` in place and returns `a`.

  `b` is an array or a number. Throws code `:spec-mismatch` when shapes or dtypes differ.

      (->vec (-= (ones [2]) 2)) ;=> [-1.0 -1.0]"
  ^dev.kvstore.NDArray [a b]
  (assign BinaryOp/SUB a b))

(defn *=
  "Multiplies `a` with `b` in place and returns `a`.

  `b` is an array or a number. Throws code `:spec-mismatch` when shapes or dtypes differ.

      (->vec (*= (ones [2]) 2)) ;=> [2.0 2.0]"
  ^dev.kvstore.NDArray [a b]
  (assign BinaryOp/MUL a b))

(defn div=
  "Divides `a` by `b` in place and returns `a`.

  `b` is an array or a number. Throws code `:spec-mismatch` when shapes or dtypes differ.
  Code `:invalid-argument` when an integer is divided by zero.

      (->vec (div= (ones [2]) 2)) ;=> [0.5 0.5]"
  ^dev.kvstore.NDArray [a b]
  (assign BinaryOp/DIV a b))

(defn %=
  "Replaces `a` by its remainders on division by `b` in place and returns `a`.

  `b` is an array or a number. Throws code `:spec-mismatch` when shapes or dtypes differ.

      (->vec (%= (array [5 -5] [2]) 3)) ;=> [2.0 1.0]"
  ^dev.kvstore.NDArray [a b]
  (assign BinaryOp/REM a b))

(defn **=
  "Raises `a` to the power of `b` in place and returns `a`.

  `b` is an array or a number. Throws code `:spec-mismatch` when shapes or dtypes differ.

      (->vec (**= (array [3 5] [2]) 2)) ;=> [9.0 25.0]"
  ^dev.kvstore.NDArray [a b]
  (assign BinaryOp/POW a b))
