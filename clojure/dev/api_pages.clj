(ns api-pages
  "Writes a Markdown page for each namespace below a folder, from its docstrings."
  (:require [clojure.java.io :as io]
            [clojure.string :as string])
  (:import (java.io File PushbackReader)))

(defn- namespace-of [^File file]
  (with-open [reader (PushbackReader. (io/reader file))]
    (second (read reader))))

(defn- dedent
  "Removes the indentation that all lines but the first one share."
  [text]
  (let [[first-line & others] (string/split-lines text)
        indents (for [line others :when (not (string/blank? line))]
                  (count (take-while #(= \space %) line)))
        indent (if (seq indents) (apply min indents) 0)]
    (string/join "\n" (cons first-line (map #(subs % (min indent (count %))) others)))))

(defn- block [kind text]
  (str "```" kind "\n" text "\n```\n"))

(defn- section [variable]
  (let [{:keys [name arglists doc macro]} (meta variable)]
    (str "## " name (when macro " (macro)") "\n\n"
         (when arglists
           (block "clojure" (string/join "\n" (map #(pr-str (cons name %)) arglists))))
         (when doc
           (str "\n" (block "text" (dedent doc))))
         "\n")))

(defn- page [namespace]
  (let [variables (sort-by (comp str :name meta) (vals (ns-publics namespace)))]
    (str "# " (ns-name namespace) "\n\n"
         (some->> (:doc (meta namespace)) dedent (block "text"))
         "\n"
         (apply str (map section variables)))))

(let [[sources folder] *command-line-args*]
  (doseq [^File file (sort (file-seq (io/file sources)))
          :when (string/ends-with? (.getName file) ".clj")
          :let [symbol (namespace-of file)]]
    (require symbol)
    (spit (io/file folder (str symbol ".md")) (page (the-ns symbol)))))
