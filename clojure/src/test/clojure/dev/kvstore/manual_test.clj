(ns dev.kvstore.manual-test
  "Tests that the Clojure code of the manual returns the values in its comments, and that the
  migration page names every variable."
  (:require [clojure.string :as string]
            [clojure.test :refer [deftest is]]
            [org.apache.clojure-mxnet.context]
            [org.apache.clojure-mxnet.kvstore]
            [org.apache.clojure-mxnet.kvstore-server]
            [org.apache.clojure-mxnet.ndarray]
            [org.apache.clojure-mxnet.optimizer])
  (:import (clojure.lang LineNumberingPushbackReader)
           (java.io StringReader)))

(set! *warn-on-reflection* true)

(defn- programs
  "Returns the Clojure programs of a page of the manual."
  [page]
  (map second (re-seq #"(?s)```clojure\n(.*?)```" (slurp (str "../docs/" page)))))

(defn- expressions
  "Returns the forms of `text`, each with the text of the value after ;=> on its last line."
  [text]
  (let [reader (LineNumberingPushbackReader. (StringReader. text))]
    (->> (repeatedly #(let [form (read {:eof reader} reader)]
                        [form (second (re-find #";=> (.*)" (or (.readLine reader) "")))]))
         (take-while (fn [[form _]] (not (identical? form reader))))
         doall)))

(def ^:private pages
  "The pages with programs, and the number of values in the comments of each."
  {"getting-started/clojure.md" 3
   "guides/devices.md" 1
   "guides/servers.md" 2})

(defn- program-namespace
  "Returns a new namespace with the aliases that the pages use."
  []
  (let [program (create-ns (gensym "manual-program"))]
    (binding [*ns* program]
      (refer-clojure)
      (doseq [n '[context kvstore kvstore-server ndarray optimizer]]
        (alias n (symbol (str "org.apache.clojure-mxnet." n)))))
    program))

(deftest the-programs-give-their-values
  (doseq [[page num-values] pages
          :let [all (mapcat expressions (programs page))]]
    (is (= num-values (count (filter second all))) page)
    (binding [*ns* (program-namespace)]
      (doseq [[form value] all
              :let [found (eval form)]
              :when value]
        (is (= (read-string value) found) (str page ": " (pr-str form)))))))

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
