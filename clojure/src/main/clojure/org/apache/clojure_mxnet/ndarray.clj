(ns org.apache.clojure-mxnet.ndarray
  "Arrays of numbers on a device.

  Making them
    empty zeros ones full arange array ->ndarray concatenate
  Reading them
    ->vec ->nd-vec ->float-vec ->double-vec ->int-vec ->long-vec ->byte-vec to-scalar =
    ->raw to-array to-float64-array
    as-buffer read-into                                   without a copy; into an array of yours
  What they are
    shape shape-vec size dtype context handle
  Views, which share memory, and copies
    slice at reshape              copy copy-to as-type as-in-context t set
  Arithmetic, element by element
    + - * div / % ** power maximum minimum                new arrays; a number on either side is fine
    += -= *= div= %= **=                                  in place (no symbol can be named /=)
    > >= < <= equal not-equal                             1 where it holds, else 0
    abs negative sign square sqrt rsqrt exp log sin cos tanh sigmoid relu
    ceil floor round rint fix clip
  Fewer elements, and products
    sum mean max min norm argmax-channel dot
  One element of each row
    choose-element-0index onehot-encode
  Values of which only some rows are there
    row-sparse-array row-sparse-from-ids row-indices row-data to-dense
  Files, in MXNet's format
    save load                   by name
    save-to-file load-from-file one array
    load2-map load2-array       as load; in order, with or without names
    serialize deserialize       an array as bytes
  Their life
    dispose is-disposed wait-to-read waitall
    dependencies dispose-deps dispose-deps-except         the arrays that it was computed from

  Many of these share a name with a function of clojure.core: require this namespace with an alias.
  Arrays are `java.lang.AutoCloseable`: `with-open` frees them at once, otherwise the garbage collector does
  in time. Failures are `ex-info` with `:kvstore/code`, as in the kvstore namespace; something else where an
  array belongs is a ClassCastException, nil a NullPointerException.

      (ndarray/->vec (ndarray/+ (ndarray/ones [2]) 1)) ;=> [2.0 2.0]"
  (:refer-clojure :exclude [* + - / < <= = > >= abs empty load max min set to-array])
  (:require [dev.kvstore.impl.export :refer [export]]
            [dev.kvstore.impl.ndarray.arithmetic]
            [dev.kvstore.impl.ndarray.creation]
            [dev.kvstore.impl.ndarray.files]
            [dev.kvstore.impl.ndarray.math]
            [dev.kvstore.impl.ndarray.reading]
            [dev.kvstore.impl.ndarray.rows]
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
  [dev.kvstore.impl.ndarray.rows
   choose-element-0index onehot-encode]
  [dev.kvstore.impl.ndarray.sparse
   row-sparse-array row-sparse-from-ids row-indices row-data to-dense]
  [dev.kvstore.impl.ndarray.files
   save load save-to-file load-from-file load2-map load2-array serialize deserialize])
