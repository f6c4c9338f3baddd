(ns lein
  "Prints the main namespace of the Leiningen project in this folder. Fails unless the project
  depends on the artefact of the given pom.

  For machines without Leiningen, which is not available as a library."
  (:require [clojure.edn :as edn]
            [clojure.xml :as xml]))

(set! *warn-on-reflection* true)

(defn- coordinates
  [pom]
  (let [values (into {} (map (juxt :tag (comp first :content))) (:content (xml/parse pom)))]
    [(symbol (:groupId values) (:artifactId values)) (:version values)]))

(let [[_ _ _ & {:keys [dependencies main]}] (edn/read-string (slurp "project.clj"))
      expected (coordinates (first *command-line-args*))]
  (when-not (some #{expected} dependencies)
    (throw (ex-info (str "project.clj does not depend on " expected) {:dependencies dependencies})))
  (println main))
