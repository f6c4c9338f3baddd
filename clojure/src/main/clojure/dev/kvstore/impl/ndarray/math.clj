(ns dev.kvstore.impl.ndarray.math
  "Functions of one array, and the matrix product. org.apache.clojure-mxnet.ndarray exports these
  functions.

    abs negative sign square sqrt rsqrt exp log sin cos tanh sigmoid relu   element by element
    ceil floor round rint fix clip                                          rounding, clamping
    sum mean max min norm argmax-channel                                    reductions
    dot                                                                     products"
  (:refer-clojure :exclude [abs max min])
  (:require [dev.kvstore.impl.errors :as errors])
  (:import (dev.kvstore NDArray Reduction UnaryOp)))

(set! *warn-on-reflection* true)

(defn- unary
  ^NDArray [^UnaryOp op ^NDArray a]
  (errors/guard (.apply a op)))

(defn- reduction
  ^NDArray [^Reduction reduction ^NDArray a]
  (errors/guard (.reduce a reduction)))

(defn abs
  "Returns a new array of the absolute values of `ndarray`.

  Throws code `:closed` if `ndarray` is closed.

      (->vec (abs (array [-1 2] [2]))) ;=> [1.0 2.0]"
  ^dev.kvstore.NDArray [ndarray]
  (unary UnaryOp/ABS ndarray))

(defn negative
  "Returns a new array of the elements of `ndarray` with the opposite sign.

  Throws code `:closed` if `ndarray` is closed.

      (->vec (negative (ones [2]))) ;=> [-1.0 -1.0]"
  ^dev.kvstore.NDArray [ndarray]
  (unary UnaryOp/NEGATE ndarray))

(defn sign
  "Returns a new array of the signs of the elements of `ndarray`: -1, 0 or 1.

  Throws code `:closed` if `ndarray` is closed.

      (->vec (sign (array [-3 0 2] [3]))) ;=> [-1.0 0.0 1.0]"
  ^dev.kvstore.NDArray [ndarray]
  (unary UnaryOp/SIGN ndarray))

(defn square
  "Returns a new array of the squares of `ndarray`.

  Throws code `:closed` if `ndarray` is closed.

      (->vec (square (array [-3 2] [2]))) ;=> [9.0 4.0]"
  ^dev.kvstore.NDArray [ndarray]
  (unary UnaryOp/SQUARE ndarray))

(defn sqrt
  "Returns a new array of the square roots of `ndarray`. Negative elements give NaN.

  Throws code `:closed` if `ndarray` is closed.

      (->vec (sqrt (array [9 4] [2]))) ;=> [3.0 2.0]"
  ^dev.kvstore.NDArray [ndarray]
  (unary UnaryOp/SQRT ndarray))

(defn rsqrt
  "Returns a new array of one over the square roots of `ndarray`.

  Throws code `:closed` if `ndarray` is closed.

      (->vec (rsqrt (array [4 1] [2]))) ;=> [0.5 1.0]"
  ^dev.kvstore.NDArray [ndarray]
  (unary UnaryOp/RSQRT ndarray))

(defn exp
  "Returns a new array of e to the power of `ndarray`.

  Throws code `:closed` if `ndarray` is closed.

      (->vec (exp (zeros [2]))) ;=> [1.0 1.0]"
  ^dev.kvstore.NDArray [ndarray]
  (unary UnaryOp/EXP ndarray))

(defn log
  "Returns a new array of the natural logarithms of `ndarray`.

  Throws code `:closed` if `ndarray` is closed.

      (->vec (log (ones [2]))) ;=> [0.0 0.0]"
  ^dev.kvstore.NDArray [ndarray]
  (unary UnaryOp/LOG ndarray))

(defn sin
  "Returns a new array of the sines of `ndarray`, in radians.

  Throws code `:closed` if `ndarray` is closed.

      (->vec (sin (zeros [2]))) ;=> [0.0 0.0]"
  ^dev.kvstore.NDArray [ndarray]
  (unary UnaryOp/SIN ndarray))

(defn cos
  "Returns a new array of the cosines of `ndarray`, in radians.

  Throws code `:closed` if `ndarray` is closed.

      (->vec (cos (zeros [2]))) ;=> [1.0 1.0]"
  ^dev.kvstore.NDArray [ndarray]
  (unary UnaryOp/COS ndarray))

(defn tanh
  "Returns a new array of the hyperbolic tangents of `ndarray`.

  Throws code `:closed` if `ndarray` is closed.

      (->vec (tanh (zeros [2]))) ;=> [0.0 0.0]"
  ^dev.kvstore.NDArray [ndarray]
  (unary UnaryOp/TANH ndarray))

(defn sigmoid
  "Returns a new array of 1 / (1 + exp(-x)) for each x of `ndarray`.

  Throws code `:closed` if `ndarray` is closed.

      (->vec (sigmoid (zeros [2]))) ;=> [0.5 0.5]"
  ^dev.kvstore.NDArray [ndarray]
  (unary UnaryOp/SIGMOID ndarray))

(defn relu
  "Returns a new array of max(x, 0) for each x of `ndarray`.

  Throws code `:closed` if `ndarray` is closed.

      (->vec (relu (array [-1 2] [2]))) ;=> [0.0 2.0]"
  ^dev.kvstore.NDArray [ndarray]
  (unary UnaryOp/RELU ndarray))

(defn ceil
  "Returns a new array of the elements of `ndarray` rounded up.

  Throws code `:closed` if `ndarray` is closed.

      (->vec (ceil (array [1.5 -1.5] [2]))) ;=> [2.0 -1.0]"
  ^dev.kvstore.NDArray [ndarray]
  (unary UnaryOp/CEIL ndarray))

(defn floor
  "Returns a new array of the elements of `ndarray` rounded down.

  Throws code `:closed` if `ndarray` is closed.

      (->vec (floor (array [1.5 -1.5] [2]))) ;=> [1.0 -2.0]"
  ^dev.kvstore.NDArray [ndarray]
  (unary UnaryOp/FLOOR ndarray))

(defn round
  "Returns a new array of the nearest integers to the elements of `ndarray`. Halves are rounded
  away from zero.

  Throws code `:closed` if `ndarray` is closed.

      (->vec (round (array [1.5 2.5] [2]))) ;=> [2.0 3.0]"
  ^dev.kvstore.NDArray [ndarray]
  (unary UnaryOp/ROUND ndarray))

(defn rint
  "Returns a new array of the nearest integers to the elements of `ndarray`. Halves are rounded
  down.

  Throws code `:closed` if `ndarray` is closed.

      (->vec (rint (array [1.5 2.5] [2]))) ;=> [1.0 2.0]"
  ^dev.kvstore.NDArray [ndarray]
  (unary UnaryOp/RINT ndarray))

(defn fix
  "Returns a new array of the elements of `ndarray` without their fractions.

  Throws code `:closed` if `ndarray` is closed.

      (->vec (fix (array [1.5 -1.5] [2]))) ;=> [1.0 -1.0]"
  ^dev.kvstore.NDArray [ndarray]
  (unary UnaryOp/FIX ndarray))

(defn clip
  "Returns a new array of the elements of `ndarray`, clamped to the range from `low` to `high`.

  Throws \"Invalid limits\" if `low` or `high` is not a number, and code `:closed` if `ndarray` is
  closed.

      (->vec (clip (array [-1 0.5 2] [3]) 0 1)) ;=> [0.0 0.5 1.0]"
  ^dev.kvstore.NDArray [^NDArray ndarray low high]
  (when-not (and (number? low) (number? high))
    (errors/reject "limits" "two numbers" [low high]))
  (errors/guard (.clip ndarray (double low) (double high))))

(defn sum
  "Returns a new array of the shape [1] with the sum of all elements of `ndarray`.

  Throws code `:closed` if `ndarray` is closed.

      (to-scalar (sum (ones [2 3]))) ;=> 6.0"
  ^dev.kvstore.NDArray [ndarray]
  (reduction Reduction/SUM ndarray))

(defn mean
  "Returns a new array of the shape [1] with the mean of all elements of `ndarray`.

  Throws code `:closed` if `ndarray` is closed.

      (to-scalar (mean (array [1 2 6] [3]))) ;=> 3.0"
  ^dev.kvstore.NDArray [ndarray]
  (reduction Reduction/MEAN ndarray))

(defn max
  "Returns a new array of the shape [1] with the maximum of `ndarray`.

  Throws code `:invalid-argument` if there are no elements, and code `:closed` if `ndarray` is
  closed.

      (to-scalar (max (array [1 2 6] [3]))) ;=> 6.0"
  ^dev.kvstore.NDArray [ndarray]
  (reduction Reduction/MAX ndarray))

(defn min
  "Returns a new array of the shape [1] with the minimum of `ndarray`.

  Throws code `:invalid-argument` if there are no elements, and code `:closed` if `ndarray` is
  closed.

      (to-scalar (min (array [1 2 6] [3]))) ;=> 1.0"
  ^dev.kvstore.NDArray [ndarray]
  (reduction Reduction/MIN ndarray))

(defn norm
  "Returns a new array of the shape [1] with the Euclidean norm of `ndarray`: the square root of
  the sum of the squares.

  Throws code `:closed` if `ndarray` is closed.

      (to-scalar (norm (array [3 4] [2]))) ;=> 5.0"
  ^dev.kvstore.NDArray [ndarray]
  (reduction Reduction/NORM ndarray))

(defn argmax-channel
  "Returns a new array with the column index of the maximum of each row of the matrix `ndarray`.

  Throws code `:invalid-argument` if `ndarray` is not a matrix, and code `:closed` if `ndarray` is
  closed.

      (->vec (argmax-channel (->ndarray [[1 2] [4 3]]))) ;=> [1.0 0.0]"
  ^dev.kvstore.NDArray [^NDArray ndarray]
  (errors/guard (.argmaxChannel ndarray)))

(defn dot
  "Returns a new array: the product of the matrices `a` and `b`, or the inner product of two
  vectors.

  Throws code `:spec-mismatch` if the shapes or dtypes do not match, and code `:unsupported` for
  integers.

      (->nd-vec (dot (ones [1 3]) (ones [3 2]))) ;=> [[3.0 3.0]]"
  ^dev.kvstore.NDArray [^NDArray a ^NDArray b]
  (errors/guard (.dot a b)))
