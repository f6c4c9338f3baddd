(ns dev.kvstore.kondo-test
  "The configuration for clj-kondo that travels in the jar."
  (:require [clojure.edn :as edn]
            [clojure.java.io :as io]
            [clojure.test :refer [deftest is]]
            [dev.kvstore.impl.export]
            [org.apache.clojure-mxnet.resource-scope]))

(set! *warn-on-reflection* true)

(def ^:private lint-as
  ;; Where clj-kondo looks for it: a folder with the name of the artefact.
  (-> "clj-kondo.exports/dev.kvstore/kvstore/config.edn" io/resource slurp edn/read-string :lint-as))

(defn- macros
  "The macros of a namespace, as pairs of a name and its lists of arguments."
  [ns-name]
  (for [[_ v] (ns-publics ns-name)
        :let [{:keys [macro arglists]} (meta v)]
        :when macro]
    [(symbol v) arglists]))

(deftest what-is-named-is-a-macro-of-ours
  (is (seq lint-as))
  (doseq [name (keys lint-as)]
    (is (:macro (meta (resolve name))) (str name))))

(deftest macros-that-bind-names-are-named
  (doseq [[name arglists] (mapcat macros '[dev.kvstore.impl.export org.apache.clojure-mxnet.resource-scope])
          :when (some #{'bindings 'vectors} (flatten arglists))]
    (is (contains? lint-as name) (str name))))
