(ns kvstore.demo-net.coordinator
  "The coordinator of the demo. It starts the other processes, and joins the servers as a reader.

    run   trains with servers and workers, kills a worker, adds another, and prints the results"
  (:require [kvstore.demo-net.model :as model]
            [kvstore.demo-net.processes :as processes]
            [kvstore.demo-net.results :as results]
            [kvstore.demo-net.story :as story]
            [kvstore.demo.screen :as screen]
            [org.apache.clojure-mxnet.kvstore :as kvstore]))

(set! *warn-on-reflection* true)

(def ^:private servers ["server-1" "server-2"])
(def ^:private first-workers ["worker-a" "worker-b" "worker-c"])
(def ^:private killed-worker "worker-b")
(def ^:private late-worker "worker-d")

;; How long the coordinator waits for one event. On an idle machine, none takes ten seconds.
(def ^:private seconds-to-wait 60)
(def ^:private epochs-between-tests 5)

(defn- start
  "Starts the process `process-name`, which reports to `story`."
  [story process-name & arguments]
  (let [pid (processes/start process-name arguments #(story/note-report story process-name %))]
    (story/note story (str process-name " starts as process " pid))))

(defn- measure
  "Adds the progress of the training to `story`. Tests the network every few epochs."
  [story kv]
  (let [epoch (quot (kvstore/version kv :pushes) (model/num-batches))
        {:keys [tested]} @story]
    (story/note-progress story {:epoch epoch})
    (when (or (nil? tested) (<= (+ tested epochs-between-tests) epoch))
      (let [accuracy (model/accuracy-in kv)]
        (story/note-progress story {:accuracy accuracy :tested epoch})
        (println (format "  %6.2f s  epoch %d: accuracy %s"
                         (story/now story) epoch (story/percent accuracy)))))))

(defn- until
  "Prints the progress of `story` until (ready? @story) is true. `kv` is the store of the
  coordinator, or nil before the servers run.

  Throws after a time limit, with `what` as the missing event, or if a process ends by itself."
  [story kv what ready?]
  (let [end (+ (story/now story) seconds-to-wait)]
    (loop []
      (processes/check)
      (story/show-news story)
      ;; When a worker has reported, the keys exist.
      (when (some (:reports @story) first-workers)
        (measure story kv))
      (when-not (ready? @story)
        (when (< end (story/now story))
          (throw (ex-info (format "not within %d s: %s" seconds-to-wait what)
                          (select-keys @story [:live :reports :epoch]))))
        (Thread/sleep 50)
        (recur)))))

(defn- divided?
  "Returns whether `n` workers are live, and each has reported that it takes every n-th batch."
  [n {:keys [live reports]}]
  (and (= n (count live))
       (every? #(= n (:of (reports %))) (keys live))))

(defn- train
  "Trains with all workers on the servers with these `addresses`, until the workers have left."
  [story kv addresses]
  (let [start-worker #(apply start story % "worker" % addresses)
        until-divided (fn [n]
                        (until story kv (str n " workers share the batches") #(divided? n %))
                        (story/note story (format "%d workers share the batches" n)))
        train-for (fn [num-epochs]
                    (let [last-epoch (+ num-epochs (:epoch @story))]
                      (until story kv (str "epoch " last-epoch) #(<= last-epoch (:epoch %)))))]
    (run! start-worker first-workers)
    (until-divided 3)
    (train-for 15)
    (story/note-kill story killed-worker)
    (processes/kill killed-worker)
    (until-divided 2)
    (train-for 5)
    (start-worker late-worker)
    (until-divided 3)
    (train-for 15)
    (processes/stop (keys (:live @story)))
    (until story kv "all workers have left" #(empty? (:live %)))))

(defn run
  "Starts the servers and trains with three workers. Kills one of them, starts a fourth, and prints
  the results.

  Throws if a result is wrong, or if an event does not happen in time."
  []
  (let [story (story/begin)
        addresses #(keep (comp :address (:reports @story)) servers)]
    (screen/heading "Two servers and three workers, each in its own process, learn to read digits")
    (run! #(start story % "server") servers)
    (until story nil "the servers run" (fn [_] (= (count servers) (count (addresses)))))
    (doseq [[server address] (map vector servers (addresses))]
      (story/note story (str server " listens on " address)))
    (with-open [kv (model/connect (addresses) {:name "coordinator" :reader true})]
      (kvstore/on-member kv #(story/note-members story %))
      (train story kv (addresses))
      (results/show story kv))
    (processes/stop servers)))
