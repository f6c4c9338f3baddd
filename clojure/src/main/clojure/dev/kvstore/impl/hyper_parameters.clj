(ns dev.kvstore.impl.hyper-parameters
  "Names of hyper-parameters in Clojure and in the native library, and their valid values.

    native-name    :learning-rate is \"learning_rate\", and so is :lr
    native-values  a map of options in the form that the native library takes
    wrong-value    why a value is invalid, as a string
    option         the keyword of a native name
    options        a map of native names with keywords for keys"
  (:require [clojure.string :as string]
            [dev.kvstore.impl.errors :as errors])
  (:import (dev.kvstore Optimizer)))

(set! *warn-on-reflection* true)

(def ^:private aliases
  "Options whose native name does not follow the general rule. Native names are those of MXNet."
  {:lr "learning_rate"
   :weight-decay "wd"
   :eps "epsilon"
   :num-update "begin_num_update"
   :rescale-gradient "rescale_grad"
   :lambda "lamda"
   :lambda1 "lamda1"})

(defn native-name
  "Returns the native name of the hyper-parameter `option`, a keyword."
  ^String [option]
  (or (get aliases option)
      (string/replace (name option) "-" "_")))

(defn wrong-value
  "Returns why `value` is invalid for `option`, or nil. Boolean options accept true, false, 0 and
  1; others accept numbers."
  [option value]
  (let [flag? (Optimizer/isFlag (native-name option))]
    (when-not (or (number? value) (and flag? (boolean? value)))
      (str "hyper-parameter `" (pr-str option) "`: expected "
           (if flag? "true, false, 0 or 1" "a number")
           ", found " (errors/shown value)))))

(defn native-values
  "Returns the map `option->value` with native names for keys and numbers for values.

  Throws code `:invalid-argument` if two options denote the same hyper-parameter."
  [option->value]
  (doseq [[_ same] (group-by native-name (keys option->value))
          :when (next same)]
    (errors/invalid (str (string/join " and " (map #(str "`" % "`") same))
                         " name the same hyper-parameter: expected one of them, found "
                         (if (= 2 (count same)) "both" "all"))
                    option->value))
  (into {}
        (map (fn [[k value]] [(native-name k) (if (boolean? value) (if value 1 0) value)]))
        option->value))

(defn option
  "Returns the keyword of the hyper-parameter `native-name`."
  [native-name]
  (keyword (string/replace (string/replace native-name "lamda" "lambda") "_" "-")))

(defn options
  "Returns the map `native->value` with keywords for keys, in the same order."
  [native->value]
  (apply array-map (mapcat (fn [[native-name value]] [(option native-name) value]) native->value)))
