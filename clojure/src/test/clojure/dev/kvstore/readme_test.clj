(ns dev.kvstore.readme-test
  "The Clojure code of the README gives the values that stand beside it."
  (:require [clojure.test :refer [deftest is]])
  (:import (clojure.lang LineNumberingPushbackReader)
           (java.io StringReader)))

(set! *warn-on-reflection* true)

(defn- code
  "The text of the block of Clojure code in the README beside the Maven project."
  []
  (second (re-find #"(?s)```clojure\n(.*?)```" (slurp "../README.md"))))

(defn- expressions
  "The forms of `text`, each with the text of the value after ;=> on its last line."
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
