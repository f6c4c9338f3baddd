(ns org.apache.clojure-mxnet.kvstore-server
  "MXNet's server processes, which held the values of stores that span machines.

    init    takes the environment of a server
    start   would serve until the job ends

  No store of this library needs a server, so there is nothing to serve; the functions are here for programs
  that call them.

      (init {\"DMLC_ROLE\" \"worker\"}) ;=> nil"
  (:require [dev.kvstore.impl.errors :as errors]))

(set! *warn-on-reflection* true)

(defn init
  "Takes `env-map`, the environment of a server as a map of string to string, and returns nil.

  Throws \"Invalid environment map\" for anything else.

      (init {\"DMLC_ROLE\" \"server\"}) ;=> nil"
  [env-map]
  (errors/check #(and (map? %) (every? string? (keys %)) (every? string? (vals %)))
                env-map "environment map" "a map of strings to strings")
  nil)

(defn start
  "Throws code `:unsupported`: there is nothing that a server would do.

  Throws \"Invalid setting\" when `die-if-others-go-out-timeout` is no integer.

      (start)"
  ([] (start 0))
  ([die-if-others-go-out-timeout]
   (errors/check int? die-if-others-go-out-timeout "setting" "an integer")
   (throw (ex-info "servers are not supported: no store of this library needs one"
                   {:kvstore/code :unsupported}))))
