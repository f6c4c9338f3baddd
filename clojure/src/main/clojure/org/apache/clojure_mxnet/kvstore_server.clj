(ns org.apache.clojure-mxnet.kvstore-server
  "Replacements for the functions that run MXNet's server processes.

    init    takes the environment of a server
    start   throws, because there are no servers

  In MXNet, servers hold the values of distributed stores. The stores of this library need no
  servers. These functions exist for programs that call them.

      (init {\"DMLC_ROLE\" \"worker\"}) ;=> nil"
  (:require [dev.kvstore.impl.errors :as errors]))

(set! *warn-on-reflection* true)

(defn init
  "Checks `env-map`, the environment of a server as a map of strings to strings, and returns nil.

  Throws \"Invalid environment map\" for anything else.

      (init {\"DMLC_ROLE\" \"server\"}) ;=> nil"
  [env-map]
  (errors/check #(and (map? %) (every? string? (keys %)) (every? string? (vals %)))
                env-map "environment map" "a map of strings to strings")
  nil)

(defn start
  "Throws code `:unsupported`, because there are no servers.

  Throws \"Invalid setting\" if `die-if-others-go-out-timeout` is not an integer.

      (start)"
  ([] (start 0))
  ([die-if-others-go-out-timeout]
   (when-not (int? die-if-others-go-out-timeout)
     (errors/reject "setting" "an integer" die-if-others-go-out-timeout
                    {:found die-if-others-go-out-timeout
                     :place "for `die-if-others-go-out-timeout`"}))
   (throw (ex-info "servers are not supported: no store of this library needs one"
                   {:kvstore/code :unsupported}))))
