(ns dev.kvstore.impl.hyper-parameters
  "Names of hyper-parameters in Clojure and in the native library, and their valid values.

    native-name    :learning-rate is \"learning_rate\", and so is :lr
    native-values  a map of options as the native library takes it
    wrong-value    what is wrong with a value, in words
    option         the way back
    options        the way back for a map"
  (:require [clojure.string :as string]
            [dev.kvstore.impl.errors :as errors])
  (:import (dev.kvstore Optimizer)))

(set! *warn-on-reflection* true)

(def ^:private aliases
  "Options that the rule does not cover. Native names are MXNet's."
  {:lr "learning_rate"
   :weight-decay "wd"
   :eps "epsilon"
   :num-update "begin_num_update"
   :rescale-gradient "rescale_grad"
   :lambda "lamda"
   :lambda1 "lamda1"})

(defn native-name
  "Returns the name of the hyper-parameter that the keyword `option` stands for."
  ^String [option]
  (or (get aliases option)
      (string/replace (name option) "-" "_")))

(defn wrong-value
  "Returns why `value` is wrong for `option`, or nil. Boolean options take true, false, 0 and 1;
  others take numbers."
  [option value]
  (let [flag? (Optimizer/isFlag (native-name option))]
    (when-not (or (number? value) (and flag? (boolean? value)))
      (str "expected " (if flag? "true, false, 0 or 1" "a number") " for " (pr-str option)
           ", found " (errors/shown value)))))

(defn native-values
  "Returns the map `option->value` with native names for keys and numbers for values.

  Throws code `:invalid-argument` when two options stand for the same hyper-parameter."
  [option->value]
  (doseq [[_ same] (group-by native-name (keys option->value))
          :when (next same)]
    (errors/invalid (str (string/join " and " same)
                         " name the same hyper-parameter: expected one of them, found "
                         (if (= 2 (count same)) "both" "all"))
                    option->value))
  (into {}
        (map (fn [[k value]] [(native-name k) (if (boolean? value) (if value 1 0) value)]))
        option->value))

(defn option
  "Returns the keyword for the hyper-parameter `native-name`."
  [native-name]
  (keyword (string/replace (string/replace native-name "lamda" "lambda") "_" "-")))

(defn options
  "Returns the map `native->value` with keywords for keys, in its order."
  [native->value]
  (apply array-map (mapcat (fn [[native-name value]] [(option native-name) value]) native->value)))
