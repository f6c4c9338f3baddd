(ns kvstore.demo-net
  "The demo of servers: `make demo-net`.

    -main   trains on two servers and several workers, in processes that it starts; kills a worker
            and adds another; fails if the result is wrong"
  (:require [kvstore.demo-net.coordinator :as coordinator]
            [kvstore.demo-net.server :as server]
            [kvstore.demo-net.worker :as worker]
            [kvstore.demo.screen :as screen]))

(set! *warn-on-reflection* true)

(defn- run
  [[part member & servers]]
  (case part
    nil (screen/in-unicode coordinator/run)
    "server" (server/serve)
    "worker" (worker/train member servers)))

(defn -main
  "Runs the demo. With the argument `server`, runs as a server. With `worker NAME SERVER..`, trains
  as the worker NAME. Exits with status 1 after a failure."
  [& arguments]
  (try
    (run arguments)
    (System/exit 0)
    (catch Throwable e
      (binding [*out* *err*]
        (println "The demo failed in" (or (second arguments) (first arguments) "the coordinator"))
        (.printStackTrace e))
      (System/exit 1))))
