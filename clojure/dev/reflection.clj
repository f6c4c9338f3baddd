(ns reflection
  "Fails if a Clojure file makes the compiler fall back to reflection: `bin/check-reflection`.

  The arguments are folders. Loads every namespace in them and collects its warnings."
  (:require [clojure.java.io :as io]
            [clojure.string :as string])
  (:import (java.io File PushbackReader StringWriter)))

(set! *warn-on-reflection* true)

(defn- namespace-of
  "Returns the name in the `ns` form at the beginning of `file`."
  [^File file]
  (with-open [reader (PushbackReader. (io/reader file))]
    (second (read reader))))

(defn- warnings
  "Returns the reflection warnings of the compiler while it loads the namespace `ns-name`."
  [ns-name]
  (let [err (StringWriter.)]
    (binding [*err* err
              *warn-on-reflection* true]
      (require ns-name :reload))
    (filter #(string/starts-with? % "Reflection warning") (string/split-lines (str err)))))

(let [files (for [folder *command-line-args*
                  ^File file (sort (file-seq (io/file folder)))
                  :when (string/ends-with? (.getName file) ".clj")]
              file)
      found (mapcat (comp warnings namespace-of) files)]
  (run! println found)
  (println (count files) "files," (count found) "reflection warnings")
  (shutdown-agents)
  (when (or (empty? files) (seq found))
    (System/exit 1)))
