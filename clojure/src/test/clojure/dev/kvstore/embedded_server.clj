(ns dev.kvstore.embedded-server
  "A program with a server that a shutdown hook closes, as dev.kvstore.EmbeddedServer in Java.

    -main  starts the server, whose updater waits for a line of input and then adds"
  (:require [org.apache.clojure-mxnet.kvstore-server :as kvstore-server]
            [org.apache.clojure-mxnet.ndarray :as ndarray]))

(set! *warn-on-reflection* true)

(defn- add
  [_ pushed stored]
  (println "updating")
  (read-line)
  (ndarray/+= stored pushed))

(defn -main
  "Prints the address of the server, and runs until a signal ends the JVM."
  []
  (let [server (kvstore-server/start {:address "127.0.0.1:0" :updater add})]
    (.addShutdownHook (Runtime/getRuntime)
                      (Thread. (fn []
                                 (println "closing")
                                 (kvstore-server/stop server)
                                 (println "closed"))))
    (println (kvstore-server/address server))
    @(promise)))
