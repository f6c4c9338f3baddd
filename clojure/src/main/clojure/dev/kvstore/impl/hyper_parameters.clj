(ns dev.kvstore.impl.hyper-parameters
  "What hyper-parameters are called in Clojure and in the native library.

    native-name   :learning-rate is \"learning_rate\"
    option        the way back"
  (:require [clojure.string :as string]))

(set! *warn-on-reflection* true)

(def ^:private aliases
  "Options that MXNet calls otherwise than this library does."
  {:rescale-gradient "rescale_grad"
   :lambda "lamda"})

(defn native-name
  "Returns the name of the hyper-parameter that the keyword `option` stands for."
  ^String [option]
  (or (get aliases option)
      (string/replace (name option) "-" "_")))

(defn option
  "Returns the keyword for the hyper-parameter `native-name`."
  [native-name]
  (keyword (string/replace native-name "_" "-")))
