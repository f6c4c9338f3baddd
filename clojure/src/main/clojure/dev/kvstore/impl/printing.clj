(ns dev.kvstore.impl.printing
  "Print methods for stores, arrays and related objects.

  Loading this namespace installs the print methods. Printing never fails. A closed object prints
  as closed."
  (:require [clojure.string :as string]
            [dev.kvstore.impl.hyper-parameters :as hyper-parameters]
            [dev.kvstore.impl.ndarray.reading :as reading])
  (:import (dev.kvstore Context DType KVStore KVStoreServer LrScheduler NDArray Optimizer
                        OptimizerState RowSparse Shape Snapshot)
           (java.io Writer)))

(set! *warn-on-reflection* true)

;; Printing reads no large arrays and none from other devices, because that is slow.
(def ^:private max-size 1024)
(def ^:private max-values 16)

(defn- values-text
  "Returns the first elements of `nd` in parentheses, or an empty string if `nd` is large or not on
  the host."
  [^NDArray nd]
  (if (and (= "cpu" (.deviceType (.context nd)))
           (<= (.size nd) max-size))
    (let [shown (min max-values (or *print-length* max-values))
          values (reading/elements nd)
          texts (mapv str (take shown values))]
      (str " (" (string/join " " (cond-> texts (< (count texts) (count values)) (conj "..."))) ")"))
    ""))

(defn- text-or-reason
  "Returns what `text` returns, or the reason why it fails in brackets: the object is closed,
  perhaps by another thread during the call, or `text` throws."
  [closed? text]
  (try
    (if (closed?) "[closed]" (text))
    (catch RuntimeException e
      (if (closed?) "[closed]" (str "[" (ex-message e) "]")))))

(defn- readable
  "Returns `x` as Clojure prints it with default settings, ignoring the caller's bindings, with at
  most `length` elements."
  [x length]
  (binding [*print-dup* false
            *print-length* length
            *print-level* nil
            *print-meta* false
            *print-readably* true]
    (pr-str x)))

(defn- array-text
  [^NDArray nd]
  (text-or-reason
    #(.isClosed nd)
    #(str "[" (.shortName (.dtype nd)) " " (readable (vec (.toArray (.shape nd))) nil) " "
          (.context nd) "]" (values-text nd))))

(defn- keys-text
  [type keys]
  (str "[" type ", keys " (readable (vec keys) (min max-values (or *print-length* max-values)))
       "]"))

(defn- store-text
  [^KVStore kvstore]
  (text-or-reason #(.isClosed kvstore) #(keys-text (.type kvstore) (.keys kvstore))))

(defn- snapshot-text
  [^Snapshot snapshot]
  (text-or-reason #(.isClosed snapshot) #(keys-text (.storeType snapshot) (.keys snapshot))))

(defmethod print-method NDArray [nd ^Writer w]
  (.write w (str "#kv/NDArray " (array-text nd))))

(defn- rows-text
  [^RowSparse rows]
  (text-or-reason
    #(.isClosed rows)
    #(str "[" (.numRows rows) " rows of " (.shortName (.dtype rows)) " "
          (readable (vec (.toArray (.shape rows))) nil) " " (.context rows) "]")))

(defmethod print-method RowSparse [rows ^Writer w]
  (.write w (str "#kv/RowSparse " (rows-text rows))))

(defmethod print-method KVStore [kvstore ^Writer w]
  (.write w (str "#kv/KVStore " (store-text kvstore))))

(defmethod print-method KVStoreServer [^KVStoreServer server ^Writer w]
  (.write w (str "#kv/KVStoreServer ["
                 (if (.isClosed server) "closed" (.address server))
                 "]")))

(defmethod print-method Snapshot [snapshot ^Writer w]
  (.write w (str "#kv/Snapshot " (snapshot-text snapshot))))

(defmethod print-method Context [ctx ^Writer w]
  (.write w (str "#kv/Context [" ctx "]")))

(defmethod print-method DType [dtype ^Writer w]
  (.write w (str "#kv/DType [" dtype "]")))

(defmethod print-method Shape [^Shape shape ^Writer w]
  (.write w (str "#kv/Shape " (readable (vec (.toArray shape)) nil))))

(defn- optimizer-options
  "Returns the options of `optimizer`, in its order."
  [^Optimizer optimizer]
  ;; `assoc` keeps the order of a small map only.
  (apply array-map
         (cond-> (into [] cat (hyper-parameters/options (.hyperParameters optimizer)))
           (.scheduler optimizer) (conj :lr-scheduler (.scheduler optimizer)))))

(defmethod print-method Optimizer [^Optimizer optimizer ^Writer w]
  (.write w (str "#kv/Optimizer [" (.name optimizer) " "
                 (readable (optimizer-options optimizer) nil) "]")))

(defmethod print-method LrScheduler [^LrScheduler scheduler ^Writer w]
  (.write w (str "#kv/LrScheduler [" scheduler "]")))

(defn- state-text
  [^OptimizerState state]
  (text-or-reason #(.isClosed state) #(str "[" (.numUpdates state) " updates]")))

(defmethod print-method OptimizerState [state ^Writer w]
  (.write w (str "#kv/OptimizerState " (state-text state))))

;; These objects cannot be read back, so *print-dup* has no effect.
(doseq [printed [Context DType KVStore LrScheduler NDArray Optimizer OptimizerState RowSparse Shape
                 Snapshot]]
  (defmethod print-dup printed [x w]
    (print-method x w)))
