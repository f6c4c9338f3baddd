(ns dev.kvstore.impl.errors
  "How failures look from Clojure.

    guard    runs code that calls Java and translates what it throws
    outward  the exception that the caller of a verb sees
    own!     lets an updater's own exception pass that translation
    invalid, check, length-mismatch  throw for mistakes that Clojure can see by itself
    int32?   a number that fits a Java int"
  (:require [clojure.string :as string])
  (:import (dev.kvstore KVStoreException KVStoreException$Code)
           (java.util Collections Locale Set WeakHashMap)))

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

(def ^:private ^Set own
  "What users' updaters threw themselves, as long as somebody has it."
  (Collections/synchronizedSet (Collections/newSetFromMap (WeakHashMap.))))

(defn own!
  "Notes that a user's updater threw `original`, a KVStoreException, and returns it.

  Translating it would hand the caller of push another object than the updater threw."
  ^Throwable [^KVStoreException original]
  (.add own original)
  original)

(defn outward
  "Returns the exception to throw in place of `e`.

  A KVStoreException becomes an `ex-info` with the same message and `e` as its cause; everything
  else, an updater's own exceptions above all, stays the same object."
  ^Throwable [e]
  (if (and (instance? KVStoreException e) (not (.contains own e)))
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
