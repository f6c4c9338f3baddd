(ns dev.kvstore.impl.errors
  "Exceptions for Clojure callers.

    guard    runs code that calls Java and translates its exceptions
    outward  the exception to throw to the caller
    shown    a value as it appears in messages
    invalid, reject, check, length-mismatch  throw for errors that Clojure code detects
    int32?   whether a number fits a Java int"
  (:require [clojure.string :as string]
            [dev.kvstore.impl.option-names :as option-names])
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
  "Returns the exception to throw instead of `e`.

  For a KVStoreException of the library this is an `ex-info` with the names of Clojure in the
  message, and with code, key and so on in the `ex-data`. Any other exception, and every exception
  of an updater, is returned unchanged."
  ^Throwable [e]
  (if (and (instance? KVStoreException e) (not (.isFromUpdater ^KVStoreException e)))
    (ex-info (option-names/in-clojure (ex-message e)) (facts e) e)
    e))

(defmacro guard
  "Evaluates `body` and translates its exceptions with `outward`."
  [& body]
  `(try
     ~@body
     (catch RuntimeException e#
       (throw (outward e#)))))

(defn invalid
  "Throws an `ex-info` with `message`. Its `ex-data` has code `:invalid-argument`, the offending
  `value` and the entries of the map `facts`."
  ([message value]
   (invalid message value nil))
  ([message value facts]
   (throw (ex-info message (merge {:kvstore/code :invalid-argument
                                   :kvstore/value value}
                                  facts)))))

(def ^:private max-shown 80)

(defn- text
  "Returns `x` as the REPL prints it, truncated."
  [x]
  (binding [*print-length* 5
            *print-level* 3
            *print-meta* false
            *print-dup* false
            *print-readably* true]
    (pr-str (if (and (string? x) (< max-shown (count x)))
              (subs x 0 max-shown)
              x))))

(defn shown
  "Returns `x` and its class for a message, as in `3 (java.lang.Long)`. Never throws."
  [x]
  (if (nil? x)
    "nil"
    (let [class-name (.getName (class x))
          printed (try (text x) (catch Exception _ "a value"))]
      (str (if (< max-shown (count printed))
             (str (subs printed 0 max-shown) "...")
             printed)
           " (" class-name ")"))))

(defn reject
  "Throws \"Invalid `what`: expected .., found ..\".

  `facts` is added to the `ex-data`. Its `:found` and `:place` name the offending part of `value`."
  ([what expected value]
   (reject what expected value {:found value}))
  ([what expected value {:keys [found place] :as facts}]
   (let [found (shown found)]
     (invalid (str "Invalid " what ": expected " expected (when place (str " " place))
                   ", found " found)
              value
              (merge (dissoc facts :found :place)
                     {:kvstore/expected expected
                      :kvstore/found found})))))

(defn check
  "Throws like `reject` unless (`valid?` `value`)."
  [valid? value what expected]
  (when-not (valid? value)
    (reject what expected value)))

(defn int32?
  "Is `x` an integer that fits a Java int?"
  [x]
  (and (int? x) (<= Integer/MIN_VALUE (long x) Integer/MAX_VALUE)))

(defn length-mismatch
  "Throws code `:length-mismatch`. `what` names the two lists, whose lengths are `expected` and
  `found`."
  [what expected found]
  (throw (ex-info (str what ": expected " expected ", found " found)
                  {:kvstore/code :length-mismatch
                   :kvstore/expected (str expected)
                   :kvstore/found (str found)})))
