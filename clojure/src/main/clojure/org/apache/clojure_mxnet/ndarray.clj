(ns org.apache.clojure-mxnet.ndarray
  "Arrays of numbers on a device.

  Creating arrays
    empty zeros ones full arange array ->ndarray concatenate
  Reading elements
    ->vec ->nd-vec ->float-vec ->double-vec ->int-vec ->long-vec ->byte-vec to-scalar =
    ->raw to-array to-float64-array
    as-buffer read-into                                   without a copy; into an array of yours
  Properties
    shape shape-vec size dtype context handle
  Views, which share memory, and copies
    slice at reshape              copy copy-to as-type as-in-context t set
  Element-wise arithmetic
    + - * div / % ** power maximum minimum                new arrays; either operand may be a number
    += -= *= div= %= **=                                  in place (/= is not a valid symbol)
    > >= < <= equal not-equal                             1 for true, 0 for false
    abs negative sign square sqrt rsqrt exp log sin cos tanh sigmoid relu
    ceil floor round rint fix clip
  Reductions and products
    sum mean max min norm argmax-channel dot
  One element of each row
    choose-element-0index onehot-encode
  Row-sparse values
    row-sparse-array row-sparse-from-ids row-indices row-data to-dense
  Files, in MXNet's format
    save load                   by name
    save-to-file load-from-file one array
    load2-map load2-array       like load; in order, with or without names
    serialize deserialize       an array as bytes
  Closing and waiting
    dispose is-disposed wait-to-read waitall
    dependencies dispose-deps dispose-deps-except         the arrays that an array was computed from

  Many functions have the name of a function of clojure.core: require this namespace with an
  alias. Arrays are `java.lang.AutoCloseable`: `with-open` releases them immediately; otherwise
  they are released after they have been garbage-collected. Failures are `ex-info` with
  `:kvstore/code`, as in the kvstore namespace. If an argument is not an array where one is
  expected, the functions throw ClassCastException, or NullPointerException if it is nil.

      (ndarray/->vec (ndarray/+ (ndarray/ones [2]) 1)) ;=> [2.0 2.0]"
  (:refer-clojure :exclude [* + - / < <= = > >= abs empty load max min set to-array])
  (:require [dev.kvstore.impl.export :refer [export]]
            [dev.kvstore.impl.ndarray.arithmetic]
            [dev.kvstore.impl.ndarray.creation]
            [dev.kvstore.impl.ndarray.files]
            [dev.kvstore.impl.ndarray.math]
            [dev.kvstore.impl.ndarray.reading]
            [dev.kvstore.impl.ndarray.choose]
            [dev.kvstore.impl.ndarray.sparse]
            [dev.kvstore.impl.ndarray.structure]
            [dev.kvstore.impl.printing]))

(set! *warn-on-reflection* true)

(export
  [dev.kvstore.impl.ndarray.creation
   empty zeros ones full arange array ->ndarray concatenate]
  [dev.kvstore.impl.ndarray.reading
   ->vec ->nd-vec ->float-vec ->double-vec ->int-vec ->long-vec ->byte-vec to-scalar =
   ->raw to-array to-float64-array as-buffer read-into]
  [dev.kvstore.impl.ndarray.structure
   shape shape-vec size dtype context
   slice at reshape copy copy-to as-type as-in-context t set
   dispose is-disposed wait-to-read waitall
   dependencies dispose-deps dispose-deps-except handle]
  [dev.kvstore.impl.ndarray.arithmetic
   + - * div / % ** power maximum minimum
   += -= *= div= %= **=
   > >= < <= equal not-equal]
  [dev.kvstore.impl.ndarray.math
   abs negative sign square sqrt rsqrt exp log sin cos tanh sigmoid relu
   ceil floor round rint fix clip
   sum mean max min norm argmax-channel
   dot]
  [dev.kvstore.impl.ndarray.choose
   choose-element-0index onehot-encode]
  [dev.kvstore.impl.ndarray.sparse
   row-sparse-array row-sparse-from-ids row-indices row-data to-dense]
  [dev.kvstore.impl.ndarray.files
   save load save-to-file load-from-file load2-map load2-array serialize deserialize])
