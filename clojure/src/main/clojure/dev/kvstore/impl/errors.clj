(ns dev.kvstore.impl.errors
  "How failures look from Clojure.

    guard    runs code that calls Java and translates what it throws
    outward  the exception that the caller of a verb sees
    shown    a value as messages show it
    invalid, reject, check, length-mismatch  throw for mistakes that Clojure can see by itself
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

  else, and any exception of an updater, is returned unchanged."
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
  "Throws `message` with code `:invalid-argument`, the offending `value` and the map `facts` in the `ex-data`."
  ([message value]
   (invalid message value nil))
  ([message value facts]
   (throw (ex-info message (merge {:kvstore/code :invalid-argument
                                   :kvstore/value value}
                                  facts)))))

(def ^:private max-shown 80)

(defn- text
  "Returns `x` as the REPL prints it, cut short."
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

  `facts` goes into the `ex-data`. `:found` and `:place` in it name the offending part of `value`."
  ([what expected value]
   (reject what expected value {:found value}))
  ([what expected value {:keys [found place] :as facts}]
   (let [found (shown found)]
     (invalid (str "Invalid " what ": expected " expected (when place (str " " place)) ", found " found)
              value
              (merge (dissoc facts :found :place)
                     {:kvstore/expected expected
                      :kvstore/found found})))))

(defn check
  "Throws as `reject` does unless `valid?` holds for `value`."
  [valid? value what expected]
  (when-not (valid? value)
    (reject what expected value)))

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
