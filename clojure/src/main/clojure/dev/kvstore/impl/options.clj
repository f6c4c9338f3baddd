(ns dev.kvstore.impl.options
  "The options map, which is the last argument of a function.

    check     rejects unknown options
    context   the :ctx option
    dtype     the :dtype option
    ->dtype   a dtype from itself or its name"
  (:require [clojure.string :as string]
            [dev.kvstore.impl.errors :as errors])
  (:import (dev.kvstore Context DType)))

(set! *warn-on-reflection* true)

(defn check
  "Returns the map `opts`, or nil, if all its keys are in the vector `allowed`.

  Throws an `ex-info` that names the first unknown key. Otherwise a misspelt option would silently
  have its default."
  [opts allowed]
  (when-not (or (nil? opts) (map? opts))
    (errors/reject "options" "a map or nil" opts))
  (when-let [unknown (first (remove (set allowed) (keys opts)))]
    (errors/invalid (str "Unknown option `" (pr-str unknown)
                         "`: expected one of " (string/join ", " allowed))
                    unknown))
  opts)

(defn context
  "Returns the context under `:ctx` in `opts`, cpu(0) by default."
  ^Context [{:keys [ctx]}]
  (cond
    (nil? ctx) (Context/cpu)
    (instance? Context ctx) ctx
    :else (errors/reject "context" "a Context" ctx)))

(defn ->dtype
  "Returns the dtype that `x` is or names, for example a DType, `:float32` or \"float32\"."
  ^DType [x]
  (cond
    (instance? DType x) x
    (or (string? x) (keyword? x)) (errors/guard (DType/fromName (name x)))
    :else (errors/reject "dtype" "a DType or its name" x)))

(defn dtype
  "Returns the dtype under `:dtype` in `opts`, float32 by default."
  ^DType [opts]
  (if-some [x (:dtype opts)]
    (->dtype x)
    DType/FLOAT32))
