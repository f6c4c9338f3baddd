(ns kvstore.demo
  "The demo: `make demo` and `make demo-dist`.

    -main   follows the tutorial, then trains a network to read digits; or trains it as one of
            several workers; fails if a result is wrong"
  (:require [kvstore.demo.screen :as screen]
            [kvstore.demo.training :as training]
            [kvstore.demo.tutorial :as tutorial]
            [kvstore.demo.workers :as workers]
            [org.apache.clojure-mxnet.context :as context]
            [org.apache.clojure-mxnet.kvstore :as kvstore]))

(set! *warn-on-reflection* true)

(defn- show-tutorial
  []
  (screen/heading "1. The tutorial, expression by expression")
  (tutorial/follow "tutorial/kvstore.clj" 5)
  (screen/heading "2. A function of your own as the updater")
  (tutorial/follow "tutorial/updater.clj" 2))

(defn- show-training
  []
  (screen/heading "3. Handwritten digits, read by a network trained on four devices")
  (with-open [kv (kvstore/create "device")]
    (training/show kv (mapv context/cpu (range 4)))))

(defn- show
  [[part folder num-workers]]
  (case part
    nil (do (show-tutorial)
            (show-training))
    "worker" (workers/train folder)
    "compare" (workers/compare-all folder (parse-long num-workers))))

(defn -main
  "Runs the demo. With the arguments `worker FOLDER`, trains as a worker of a job. With `compare
  FOLDER NUM-WORKERS`, compares the results of the workers with those of one process. Exits with
  status 1 if a result is wrong."
  [& arguments]
  (try
    (screen/in-unicode #(show arguments))
    (shutdown-agents)
    (catch Throwable e
      (binding [*out* *err*]
        (println "The demo failed.")
        (.printStackTrace e))
      (System/exit 1))))
