(ns dev.kvstore.manual-test
  "Tests that the Clojure code of the quick start returns the values in its comments, and that the
  migration page names every variable."
  (:require [clojure.string :as string]
            [clojure.test :refer [deftest is]])
  (:import (clojure.lang LineNumberingPushbackReader)
           (java.io StringReader)))

(set! *warn-on-reflection* true)

(defn- code
  "Returns the Clojure program of the quick start."
  []
  (second (re-find #"(?s)```clojure\n(.*?)```" (slurp "../docs/getting-started/clojure.md"))))

(defn- expressions
  "Returns the forms of `text`, each with the text of the value after ;=> on its last line."
  [text]
  (let [reader (LineNumberingPushbackReader. (StringReader. text))]
    (->> (repeatedly #(let [form (read {:eof reader} reader)]
                        [form (second (re-find #";=> (.*)" (or (.readLine reader) "")))]))
         (take-while (fn [[form _]] (not (identical? form reader))))
         doall)))

(deftest the-quick-start-gives-its-values
  (let [all (expressions (code))]
    (is (= 3 (count (filter second all))))
    (binding [*ns* *ns*]
      (doseq [[form value] all
              :let [found (eval form)]
              :when value]
        (is (= (read-string value) found) (pr-str form))))))

(defn- names
  "Returns the words in backquotes in `text`."
  [text]
  (set (mapcat #(string/split (second %) #"\s+") (re-seq #"`([^`]+)`" text))))

(defn- sections
  "Returns the variables that the page names for each namespace, by the last part of its name."
  [page]
  (into {}
        (for [section (rest (string/split page #"(?m)^##+ "))
              :let [[heading body] (string/split section #"\n" 2)]
              n (names heading)]
          [n (names body)])))

(deftest the-migration-page-names-every-variable
  (let [found (sections (slurp "../docs/migration.md"))]
    (doseq [n '[base context dtype kvstore kvstore-server lr-scheduler ndarray optimizer random
                resource-scope shape]
            :let [full-name (symbol (str "org.apache.clojure-mxnet." n))]]
      (require full-name)
      (doseq [var-name (keys (ns-publics full-name))]
        (is (contains? (get found (str n) #{}) (str var-name)) (str n "/" var-name))))))
