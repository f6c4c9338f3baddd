(ns dev.kvstore.impl.source-test
  "What holds for every namespace: documentation, no reflection, no library at require."
  (:require [clojure.string :as string]
            [clojure.test :refer [deftest is]])
  (:import (java.io StringWriter)))

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
  "Our namespaces that are loaded, those behind the public ones included."
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

(deftest functions-show-an-example
  (doseq [n namespaces
          [_ v] (ns-publics n)
          :when (fn? (deref v))]
    (is (string/includes? (:doc (meta v)) "\n      (") (str v))))

(defn- examples
  "The examples in the docstrings of `n` that give a value, as pairs of an expression and its value.

  An example begins with a parenthesis behind six spaces; its further lines have more."
  [n]
  (for [v (cons (the-ns n) (vals (ns-publics n)))
        [_ expression value] (re-seq #"(?m)^ {6}(\(.*(?:\n {7,}.*)*) ;=> (.*)$" (:doc (meta v)))
        :when (not (string/includes? expression " kv"))]
    [expression value]))

(defn- user-of
  "A new namespace that refers to all of `n` and has the others by their aliases."
  [n]
  (let [user (create-ns (gensym "examples"))]
    (binding [*ns* user]
      (refer 'clojure.core :exclude (keys (ns-publics n)))
      (refer n)
      (doseq [other namespaces]
        (alias (symbol (re-find #"[^.]+$" (str other))) other)))
    user))

(deftest examples-give-their-values
  (doseq [n namespaces
          :let [user (user-of n)]
          [expression value] (examples n)]
    (binding [*ns* user]
      (is (= (read-string value) (eval (read-string expression))) expression))))

(deftest nothing-is-called-by-reflection
  (let [err (StringWriter.)]
    (binding [*err* err]
      (doseq [n (ours)]
        (require n :reload)))
    (is (= "" (str err)))))
