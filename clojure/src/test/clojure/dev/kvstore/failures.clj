(ns dev.kvstore.failures
  "Returns the exceptions of failing expressions, for tests.

    failure   the message and the data of the ex-info that an expression throws
    code      its :kvstore/code"
  (:require [clojure.string :as string]))

(set! *warn-on-reflection* true)

(defn failure*
  "Calls `f` and returns the `ex-data` of the ex-info that it throws, with its :message and :cause.

  :start is the part of the message before the first colon, which is MXNet's message."
  [f]
  (try
    (f)
    nil
    (catch clojure.lang.ExceptionInfo e
      (assoc (ex-data e)
             :message (ex-message e)
             :start (first (string/split (ex-message e) #": "))
             :cause (ex-cause e)))))

(defmacro failure
  "Evaluates `body` and returns the `ex-data` of the ex-info that it throws, with its :message and
  :cause.

  Returns nil if it throws nothing."
  [& body]
  `(failure* (fn [] ~@body)))

(defmacro code
  "Returns the :kvstore/code of the ex-info that `body` throws."
  [& body]
  `(:kvstore/code (failure ~@body)))
