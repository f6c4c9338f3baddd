(ns dev.kvstore.impl.hyper-parameters
  "The values of hyper-parameters.

    native-values  a map of options in the form that the native library takes
    wrong-value    why a value is invalid, as a string
    options        a map of native names with keywords for keys"
  (:require [clojure.string :as string]
            [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.option-names :as option-names])
  (:import (dev.kvstore Optimizer)))

(set! *warn-on-reflection* true)

(defn wrong-value
  "Returns why `value` is invalid for `option`, or nil. Boolean options accept true, false, 0 and
  1; others accept numbers."
  [option value]
  (let [flag? (Optimizer/isFlag (option-names/native-name option))]
    (when-not (or (number? value) (and flag? (boolean? value)))
      (str "hyper-parameter `" (pr-str option) "`: expected "
           (if flag? "true, false, 0 or 1" "a number")
           ", found " (errors/shown value)))))

(defn native-values
  "Returns the map `option->value` with native names for keys and numbers for values.

  Throws code `:invalid-argument` if two options denote the same hyper-parameter."
  [option->value]
  (doseq [[_ same] (group-by option-names/native-name (keys option->value))
          :when (next same)]
    (errors/invalid (str (string/join " and " (map #(str "`" % "`") same))
                         " name the same hyper-parameter: expected one of them, found "
                         (if (= 2 (count same)) "both" "all"))
                    option->value))
  (into {}
        (map (fn [[option value]]
               [(option-names/native-name option) (if (boolean? value) (if value 1 0) value)]))
        option->value))

(defn options
  "Returns the map `native->value` with keywords for keys, in the same order."
  [native->value]
  (apply array-map
         (mapcat (fn [[native-name value]] [(option-names/option native-name) value])
                 native->value)))
