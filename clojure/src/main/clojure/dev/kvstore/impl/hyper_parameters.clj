(ns dev.kvstore.impl.hyper-parameters
  "What hyper-parameters are called in Clojure and in the native library.

    native-name    :learning-rate is \"learning_rate\"
    native-values  a map of options as the native library takes it
    option         the way back
    options        the way back for a map"
  (:require [clojure.string :as string]
            [dev.kvstore.impl.errors :as errors]))

(set! *warn-on-reflection* true)

(def ^:private aliases
  "Options that are called otherwise than by the rule; the native library's names are MXNet's."
  {:rescale-gradient "rescale_grad"
   :lambda "lamda"
   :lambda1 "lamda1"})

(defn native-name
  "Returns the name of the hyper-parameter that the keyword `option` stands for."
  ^String [option]
  (or (get aliases option)
      (string/replace (name option) "-" "_")))

(defn native-values
  "Returns the map `option->value` with native names for keys.

  Throws code `:invalid-argument` when two options stand for the same hyper-parameter."
  [option->value]
  (let [native->value (into {} (map (fn [[k value]] [(native-name k) value])) option->value)]
    (when-not (= (count native->value) (count option->value))
      (errors/invalid "Two options for the same hyper-parameter" option->value))
    native->value))

(defn option
  "Returns the keyword for the hyper-parameter `native-name`."
  [native-name]
  (keyword (string/replace (string/replace native-name "lamda" "lambda") "_" "-")))

(defn options
  "Returns the map `native->value` with keywords for keys, in its order."
  [native->value]
  (apply array-map (mapcat (fn [[native-name value]] [(option native-name) value]) native->value)))
