(ns dev.kvstore.impl.errors
  "How failures look from Clojure.

    guard    runs code that calls Java and translates what it throws
    outward  the exception that the caller of a verb sees
    invalid, check, length-mismatch  throw for mistakes that Clojure can see by itself
    int32?   a number that fits a Java int"
  (:require [clojure.string :as string])
  (:import (dev.kvstore KVStoreException KVStoreException$Code)
           (java.util Locale)))

(set! *warn-on-reflection* true)

(defn code->keyword
  "Returns the keyword of a Java error code: KEY_NOT_FOUND is `:key-not-found`."
  [^KVStoreException$Code code]
  (keyword (string/replace (.toLowerCase (.name code) Locale/ROOT) "_" "-")))

(defn- facts
  [^KVStoreException e]
  (into {:kvstore/code (code->keyword (.code e))}
        (remove (comp nil? val))
        {:kvstore/key (.key e)
         :kvstore/expected (.expected e)
         :kvstore/found (.found e)}))

(defn outward
  "Returns the exception to throw in place of `e`.

  A KVStoreException becomes an `ex-info` with the same message and `e` as its cause; everything
  else, and everything that an updater threw, stays the same object."
  ^Throwable [e]
  (if (and (instance? KVStoreException e) (not (.isFromUpdater ^KVStoreException e)))
    (ex-info (ex-message e) (facts e) e)
    e))

(defmacro guard
  "Evaluates `body` and throws what `outward` makes of its exceptions."
  [& body]
  `(try
     ~@body
     (catch RuntimeException e#
       (throw (outward e#)))))

(defn invalid
  "Throws `message` with code `:invalid-argument` and the offending `value` in the `ex-data`."
  [message value]
  (throw (ex-info message {:kvstore/code :invalid-argument
                           :kvstore/value value})))

(defn check
  "Throws \"Invalid `what`\" unless `valid?` holds for `value`."
  [valid? value what]
  (when-not (valid? value)
    (invalid (str "Invalid " what) value)))

(defn int32?
  "Is `x` an integer that fits a Java int?"
  [x]
  (and (int? x) (<= Integer/MIN_VALUE (long x) Integer/MAX_VALUE)))

(defn length-mismatch
  "Throws that `expected` things were needed where `found` were given. `what` names both."
  [what expected found]
  (throw (ex-info (str what ": expected " expected ", found " found)
                  {:kvstore/code :length-mismatch
                   :kvstore/expected (str expected)
                   :kvstore/found (str found)})))
