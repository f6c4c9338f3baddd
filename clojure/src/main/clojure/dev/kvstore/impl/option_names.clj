(ns dev.kvstore.impl.option-names
  "Names of hyper-parameters and arguments in Clojure and in the native library.

    native-name  :learning-rate is \"learning_rate\", and so is :lr
    option       the keyword of a native name
    in-clojure   a message of the native library with the names of Clojure"
  (:require [clojure.string :as string]))

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

(defn option
  "Returns the keyword of the hyper-parameter `native-name`."
  [native-name]
  (keyword (string/replace (string/replace native-name "lamda" "lambda") "_" "-")))

(defn in-clojure
  "Returns `message` with the names that Clojure callers use, for example \"max-update: expected
  ..\" for \"max_update: expected ..\"."
  [message]
  (let [[_ start listed] (re-matches #"(.* has no hyper-parameter `.*`: expected one of )(.*)"
                                     message)]
    (-> (if start
          (str start (string/replace listed #"\w+" (comp str option)))
          message)
        (string/replace #"(?<=hyper-parameter `)\w+(?=`)" (comp str option))
        (string/replace #"^\w+(?=: )" #(string/replace % "_" "-")))))
