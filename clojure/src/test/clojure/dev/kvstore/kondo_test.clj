(ns dev.kvstore.kondo-test
  "Tests of the configuration for clj-kondo in the jar."
  (:require [clojure.edn :as edn]
            [clojure.java.io :as io]
            [clojure.test :refer [deftest is]]
            [dev.kvstore.impl.export]
            [org.apache.clojure-mxnet.resource-scope]))

(set! *warn-on-reflection* true)

(def ^:private lint-as
  ;; clj-kondo looks for the file in a folder with the name of the artifact.
  (-> "clj-kondo.exports/dev.kvstore/kvstore/config.edn"
      io/resource
      slurp
      edn/read-string
      :lint-as))

(defn- macros
  "Returns the macros of a namespace, as pairs of a name and its argument lists."
  [ns-name]
  (for [[_ v] (ns-publics ns-name)
        :let [{:keys [macro arglists]} (meta v)]
        :when macro]
    [(symbol v) arglists]))

(deftest every-configured-name-is-a-macro-of-the-library
  (is (seq lint-as))
  (doseq [name (keys lint-as)]
    (is (:macro (meta (resolve name))) (str name))))

(deftest every-macro-that-binds-names-is-configured
  (doseq [[name arglists] (mapcat macros '[dev.kvstore.impl.export
                                           org.apache.clojure-mxnet.resource-scope])
          :when (some #{'bindings 'vectors} (flatten arglists))]
    (is (contains? lint-as name) (str name))))
