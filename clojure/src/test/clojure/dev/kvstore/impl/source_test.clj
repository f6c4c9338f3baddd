(ns dev.kvstore.impl.source-test
  "Tests of every namespace: docstrings, reflection, and functions newer than Clojure 1.10."
  (:require [clojure.java.io :as io]
            [clojure.string :as string]
            [clojure.test :refer [deftest is]]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray])
  (:import (java.io PushbackReader StringWriter)))

(set! *warn-on-reflection* true)

(def ^:private namespaces
  '[org.apache.clojure-mxnet.base
    org.apache.clojure-mxnet.context
    org.apache.clojure-mxnet.dtype
    org.apache.clojure-mxnet.kvstore
    org.apache.clojure-mxnet.kvstore-server
    org.apache.clojure-mxnet.lr-scheduler
    org.apache.clojure-mxnet.ndarray
    org.apache.clojure-mxnet.optimizer
    org.apache.clojure-mxnet.random
    org.apache.clojure-mxnet.resource-scope
    org.apache.clojure-mxnet.shape])

(defn- ours
  "Returns the loaded namespaces of the library, including the internal ones."
  []
  (run! require namespaces)
  (concat namespaces
          (for [n (map ns-name (all-ns))
                :when (re-matches #"dev\.kvstore\.impl\..*(?<!-test)" (str n))]
            n)))

(deftest everything-public-is-documented
  (doseq [n (ours)
          :let [text (:doc (meta (the-ns n)))]]
    (is (some? text) (str n))
    (doseq [[var-name v] (ns-publics n)]
      (is (:doc (meta v)) (str v))
      (is (or (string/starts-with? (str n) "dev.kvstore.impl.")
              (string/includes? text (str var-name)))
          (str v " is missing from the index of its namespace")))))

(defn- functions
  "Returns the functions and macros of the public namespaces."
  []
  (for [n namespaces
        [_ v] (ns-publics n)
        :when (:arglists (meta v))]
    v))

(defn- arguments
  "Returns the names of the arguments of `v`."
  [v]
  (disj (set (flatten (:arglists (meta v)))) '&))

(defn- says-how-it-fails?
  [text]
  (re-find #"\bThrows\b|\b[Nn]ever\s+throws\b|\b[Ee]rrors\s+are\s+those\s+of\b" text))

(deftest every-docstring-names-the-arguments-and-errors
  (doseq [v (functions)
          :let [text (:doc (meta v))]]
    (is (says-how-it-fails? text) (str v))
    (doseq [argument (arguments v)]
      (is (string/includes? text (str "`" argument "`")) (str v)))))

(defn- outcome
  "Returns the code of the exception that (f x) throws, or nil if it returns."
  [f x]
  (try
    (f x)
    nil
    (catch clojure.lang.ExceptionInfo e
      (:kvstore/code (ex-data e) e))))

(deftest docstrings-are-right-about-closed-arrays-and-stores
  (doseq [[argument make] {'ndarray #(ndarray/ones [1])
                           'kvstore kvstore/create}
          v (functions)
          :when (some #{[argument]} (:arglists (meta v)))
          :let [gone (doto ^java.lang.AutoCloseable (make) .close)
                text (:doc (meta v))]]
    (is (= (when (re-find #"code\s+`:closed`\s+(?:when|if)" text) :closed)
           (outcome @v gone))
        (str v))))

(defn- examples
  "Returns the examples in the docstring `text` as pairs of an expression and its value, or nil if
  it shows none.

  An example begins with a parenthesis after six spaces. Its further lines have more spaces."
  [text]
  (for [[_ expression value] (re-seq #"(?m)^ {6}(\(.*?(?:\n {7,}.*?)*?)(?: ;=> (.*))?$(?!\n {7})"
                                     text)]
    [expression value]))

(deftest every-docstring-has-an-example
  (doseq [n namespaces
          [_ v] (ns-publics n)]
    (is (seq (examples (:doc (meta v)))) (str v))))

(def ^:private surroundings
  "Definitions that the examples use: a store with two keys and an optimizer, and arrays."
  '(do (def kv (-> (kvstore/create)
                   (kvstore/init ["a" "b"] [(ndarray/ones [2]) (ndarray/ones [3])])
                   (kvstore/set-optimizer (optimizer/sgd))))
       (def out (ndarray/zeros [2]))
       (def weights (ndarray/ones [2]))
       (let [[a b] [#(ndarray/ones [2]) #(ndarray/ones [3])]]
         (def a0 (a)) (def a1 (a)) (def b0 (b)) (def b1 (b))
         (def x0 (a)) (def x1 (a)) (def y0 (b)) (def y1 (b))
         (def g0 (a)) (def g1 (a)) (def w0 (a)) (def w1 (a)))))

(defn- user-of
  "Returns a new namespace that refers to all of `n`, has aliases for the other namespaces, and
  contains the `surroundings`."
  [n]
  (let [user (create-ns (gensym "examples"))]
    (binding [*ns* user]
      (refer 'clojure.core :exclude (keys (ns-publics n)))
      (refer n)
      (doseq [other namespaces]
        (alias (symbol (re-find #"[^.]+$" (str other))) other))
      (eval surroundings))
    user))

(defn- value-or-code
  "Returns the value of `expression`, or the code of the exception that it throws."
  [expression]
  (try
    (eval (read-string expression))
    (catch clojure.lang.ExceptionInfo e
      (:kvstore/code (ex-data e) e))))

(deftest examples-give-their-values
  (doseq [n namespaces
          v (cons (the-ns n) (vals (ns-publics n)))
          :let [text (:doc (meta v))
                user (user-of n)]
          [expression value] (examples text)]
    (binding [*ns* user]
      (let [found (value-or-code expression)]
        (cond
          value (is (= (read-string value) found) expression)
          (string/includes? text "`:unsupported`") (is (= :unsupported found) expression)
          :else (is (not (or (keyword? found) (instance? Throwable found))) expression))))))

(defn- symbols
  "Returns the symbols in the source of the namespace `n`."
  [n]
  (let [path (-> (str n) (string/replace "." "/") (string/replace "-" "_") (str ".clj"))]
    (binding [*ns* (the-ns n)]
      (with-open [reader (PushbackReader. (io/reader (io/resource path)))]
        (->> (repeatedly #(read {:eof reader} reader))
             (take-while #(not (identical? reader %)))
             (mapcat #(tree-seq coll? seq %))
             (filterv symbol?))))))

(defn- newer-than-1-10?
  "Returns whether the var `v` of Clojure is newer than version 1.10."
  [v]
  (let [[_ minor] (some->> v meta :added (re-find #"^1\.(\d+)"))]
    (and minor (< 10 (Long/parseLong minor)))))

(deftest no-function-is-newer-than-clojure-1-10
  (doseq [n (ours)
          sym (distinct (symbols n))
          :let [v (try (ns-resolve n sym) (catch Exception _))]
          :when (and (var? v) (= 'clojure.core (ns-name (:ns (meta v)))))]
    (is (not (newer-than-1-10? v)) (str sym " in " n))))

(deftest no-call-uses-reflection
  (let [err (StringWriter.)]
    (binding [*err* err]
      (doseq [n (ours)]
        (require n :reload)))
    (is (= "" (str err)))))
