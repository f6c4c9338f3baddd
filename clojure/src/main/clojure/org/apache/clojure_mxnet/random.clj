(ns org.apache.clojure-mxnet.random
  "Arrays of random numbers. The process has one random number generator.

    uniform   uniformly distributed numbers
    normal    normally distributed numbers
    seed      seeds the generator

  After the same seed, the same calls return the same numbers on every machine, whatever the
  number of threads. The numbers differ from those of MXNet.

      (do (seed 7) (= (ndarray/->vec (uniform 0 1 [3]))
                      (do (seed 7) (ndarray/->vec (uniform 0 1 [3]))))) ;=> true"
  (:require [clojure.string :as string]
            [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.lists :as lists]
            [dev.kvstore.impl.options :as options]
            [dev.kvstore.impl.pairs :as pairs]
            [org.apache.clojure-mxnet.shape :as shape])
  (:import (dev.kvstore Context DType NDArray RandomArrays Shape)))

(set! *warn-on-reflection* true)

(defn- shape-vec?
  [x]
  (when-let [dims (lists/as-list x)]
    (every? #(and (int? %) (pos? (long %))) dims)))

(defn- checked
  "Throws `message` with the arguments in the `ex-data`, unless `valid?` is true. `expected` says
  which arguments are valid."
  [valid? message expected & arguments]
  (when-not valid?
    (errors/invalid (str message ": expected " expected ", found "
                         (string/join ", " (map errors/shown arguments)))
                    (vec arguments))))

(defn- made
  "Returns the array that `make` creates with the shape, dtype and context of the arguments, or
  copies its elements to `:out` and returns that."
  ^NDArray [make shape-vec {:keys [ctx context ^NDArray out] :as opts}]
  (options/check opts [:ctx :context :dtype :out])
  (when (and (contains? opts :ctx) (contains? opts :context))
    (errors/invalid "Two options for the context: expected :ctx or :context, found both" opts))
  (when (some? out)
    (errors/check pairs/array? out "out" "an NDArray"))
  (errors/guard
    (let [fresh ^NDArray (make (shape/->shape shape-vec)
                               (if out (.dtype out) (options/dtype opts))
                               (if out
                                 (.context out)
                                 (options/context
                                   {:ctx (if (contains? opts :context) context ctx)})))]
      (if out
        (with-open [fresh fresh]
          (.set out ^NDArray fresh))
        fresh))))

(defn uniform
  "Returns a new array with the shape `shape-vec` of uniformly distributed numbers from `low`
  (included) to `high` (excluded).

  `opts` are `:ctx` or `:context`, cpu(0) by default, `:dtype`, float32 by default, and `:out`, an
  array of that shape. If `:out` is set, the numbers are written to it in its own dtype, and it is
  returned. Throws \"Incorrect random uniform parameters\", also if `high` is below `low` or a
  dimension is not above 0, and code `:invalid-argument` for an integer dtype.

      (every? #(<= 1 % 2) (ndarray/->vec (uniform 1 2 [10]))) ;=> true"
  (^dev.kvstore.NDArray [low high shape-vec] (uniform low high shape-vec nil))
  (^dev.kvstore.NDArray [low high shape-vec opts]
   (checked (and (number? low)
                 (number? high)
                 (<= (double low) (double high))
                 (shape-vec? shape-vec))
            "Incorrect random uniform parameters"
            "numbers low <= high and a list of dimensions above 0"
            low high shape-vec)
   (let [low (double low)
         high (double high)]
     (made (fn [^Shape s ^DType d ^Context c] (RandomArrays/uniform low high s d c))
           shape-vec opts))))

(defn normal
  "Returns a new array with the shape `shape-vec` of normally distributed numbers with the mean
  `loc` and the standard deviation `scale`.

  `opts` are those of `uniform`. Throws \"Incorrect random normal parameters\", also if `scale` or
  a dimension is not above 0, and code `:invalid-argument` for an integer dtype.

      (ndarray/shape-vec (normal 0 1 [2 3])) ;=> [2 3]"
  (^dev.kvstore.NDArray [loc scale shape-vec] (normal loc scale shape-vec nil))
  (^dev.kvstore.NDArray [loc scale shape-vec opts]
   (checked (and (number? loc) (number? scale) (pos? (double scale)) (shape-vec? shape-vec))
            "Incorrect random normal parameters"
            "a number loc, a number scale above 0 and a list of dimensions above 0"
            loc scale shape-vec)
   (let [loc (double loc)
         scale (double scale)]
     (made (fn [^Shape s ^DType d ^Context c] (RandomArrays/normal loc scale s d c))
           shape-vec opts))))

(defn seed
  "Seeds the random number generator with the number `n`, and returns nil.

  Throws \"Incorrect seed parameters\" if `n` is not a whole number that fits 64 bits.

      (seed 7) ;=> nil"
  [n]
  (checked (and (number? n) (<= Long/MIN_VALUE n Long/MAX_VALUE) (== n (bigint n)))
           "Incorrect seed parameters" "a whole number that fits 64 bits" n)
  (errors/guard (RandomArrays/seed (long n))))
