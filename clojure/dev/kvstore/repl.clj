(ns kvstore.repl
  "A Clojure REPL with the library loaded: `bin/repl`.

    -main   starts it

  On a terminal, it has line editing, completes names with the tab key, waits for the end of a
  form that spans lines, evaluates pasted text with several forms, and keeps its history in
  $XDG_STATE_HOME/kvstore. If its input is a pipe or a dumb terminal, it is Clojure's own REPL."
  (:require [clojure.java.io :as io]
            [clojure.main :as main]
            [clojure.string :as string]
            [kvstore.repl.console :as console]
            [org.apache.clojure-mxnet.kvstore :as kvstore])
  (:import (java.io File)))

(set! *warn-on-reflection* true)

(def ^:private aliases
  '[[org.apache.clojure-mxnet.kvstore :as kvstore]
    [org.apache.clojure-mxnet.ndarray :as ndarray]
    [org.apache.clojure-mxnet.context :as context]
    [org.apache.clojure-mxnet.optimizer :as optimizer]
    [org.apache.clojure-mxnet.dtype :as dtype]
    [org.apache.clojure-mxnet.shape :as shape]])

(defn- load-library
  "Loads the native library, so that the first call is not slow. Returns a sentence for the
  greeting."
  []
  (try
    (kvstore/dispose (kvstore/create "local"))
    "the native library is loaded"
    (catch Exception e
      (ex-message e))))

(defn- greet
  []
  (println (str "kvstore on Clojure " (clojure-version) " and Java "
                (System/getProperty "java.version") ": " (load-library) "."))
  (println (str "Here by these names: " (string/join ", " (map last aliases)) "."))
  (println "Try (doc kvstore/push) or (kvstore/doctor); leave with Ctrl-D."))

(defn- init
  []
  (in-ns 'user)
  (apply require aliases)
  (apply require main/repl-requires))

(defn- history-file
  ^File []
  (let [state (or (not-empty (System/getenv "XDG_STATE_HOME"))
                  (io/file (System/getProperty "user.home") ".local" "state"))]
    (io/file state "kvstore" "repl-history")))

(defn- plain-repl
  "Runs Clojure's own REPL, without prompts unless the terminal is dumb."
  []
  (if (= "dumb" (System/getenv "TERM"))
    (main/repl :init init)
    (main/repl :init init :prompt (fn []))))

(defn- terminal-repl
  [terminal]
  (let [history (history-file)]
    (io/make-parents history)
    (main/repl :init init
               :prompt (fn [])
               :need-prompt (constantly false)
               :read (console/form-reader terminal history))))

(defn -main
  "Prints a greeting and runs the REPL until its input ends."
  [& _]
  (greet)
  (with-open [terminal (console/terminal)]
    (if (console/dumb? terminal)
      (plain-repl)
      (terminal-repl terminal)))
  (shutdown-agents))
