(ns dev.kvstore.impl.printing
  "How stores, arrays and their parts look at the REPL.

  Loading this namespace installs the print methods. Printing never fails: what was closed says so."
  (:require [clojure.string :as string])
  (:import (dev.kvstore Context DType KVStore KVStoreException LrScheduler NDArray Optimizer
                        OptimizerState Shape)
           (java.io Writer)))

(set! *warn-on-reflection* true)

;; Reading back a large array, or one on another device, is more than a print may cost.
(def ^:private max-size 1024)
(def ^:private max-values 16)

(defn- values-text
  "The first values of `nd` in parentheses, empty for an array that is large or not on the host."
  [^NDArray nd]
  (if (and (= "cpu" (.deviceType (.context nd)))
           (<= (.size nd) max-size))
    (let [shown (min max-values (or *print-length* max-values))
          values (.toFloats nd)
          texts (mapv str (take shown values))]
      (str " (" (string/join " " (cond-> texts (< (count texts) (alength values)) (conj "..."))) ")"))
    ""))

(def ^:private short-names
  {DType/FLOAT32 "f32" DType/FLOAT64 "f64" DType/FLOAT16 "f16" DType/BFLOAT16 "bf16"
   DType/UINT8 "u8" DType/INT8 "i8" DType/INT32 "i32" DType/INT64 "i64"})

(defn- array-text
  [^NDArray nd]
  (try
    (if (.isClosed nd)
      "[closed]"
      (str "[" (short-names (.dtype nd)) " " (vec (.toArray (.shape nd))) " " (.context nd) "]"
           (values-text nd)))
    ;; It may also be closed by another thread while it is being printed.
    (catch KVStoreException _ "[closed]")))

(defn- store-text
  [^KVStore kvstore]
  (try
    (binding [*print-length* (min max-values (or *print-length* max-values))]
      (str (.type kvstore) ", keys " (pr-str (vec (.keys kvstore)))))
    (catch KVStoreException _ "closed")))

(defmethod print-method NDArray [nd ^Writer w]
  (.write w (str "#kv/NDArray " (array-text nd))))

(defmethod print-method KVStore [kvstore ^Writer w]
  (.write w (str "#kv/KVStore [" (store-text kvstore) "]")))

(defmethod print-method Context [ctx ^Writer w]
  (.write w (str "#kv/Context [" ctx "]")))

(defmethod print-method DType [dtype ^Writer w]
  (.write w (str "#kv/DType [" dtype "]")))

(defmethod print-method Shape [^Shape shape ^Writer w]
  (.write w (str "#kv/Shape " (vec (.toArray shape)))))

(defmethod print-method Optimizer [^Optimizer optimizer ^Writer w]
  (.write w (str "#kv/Optimizer [" (.name optimizer) " " (into {} (.hyperParameters optimizer)) "]")))

(defmethod print-method LrScheduler [^LrScheduler scheduler ^Writer w]
  (.write w (str "#kv/LrScheduler [" scheduler "]")))

(defn- state-text
  [^OptimizerState state]
  (try
    (str (.numUpdates state) " updates")
    (catch KVStoreException _ "closed")))

(defmethod print-method OptimizerState [state ^Writer w]
  (.write w (str "#kv/OptimizerState [" (state-text state) "]")))
