(ns kvstore.demo-net.coordinator
  "The coordinator of the demo. It starts the other processes, and joins the servers as a reader.

    run   trains with servers and workers, kills a worker, adds another, and prints the results"
  (:require [kvstore.demo-net.model :as model]
            [kvstore.demo-net.processes :as processes]
            [kvstore.demo-net.results :as results]
            [kvstore.demo-net.timeline :as timeline]
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
  "Starts the process `process-name`, which reports to `timeline`."
  [timeline process-name & arguments]
  (let [on-report #(timeline/note-report timeline process-name %)
        pid (processes/start process-name arguments on-report)]
    (timeline/note timeline (str process-name " starts as process " pid))))

(defn- measure
  "Adds the progress of the training to `timeline`. Tests the model every few epochs."
  [timeline kv]
  (let [epoch (quot (kvstore/version kv :pushes) (model/num-batches))
        {:keys [tested]} @timeline]
    (timeline/note-progress timeline {:epoch epoch})
    (when (or (nil? tested) (<= (+ tested epochs-between-tests) epoch))
      (let [accuracy (model/accuracy-in kv)]
        (timeline/note-progress timeline {:accuracy accuracy :tested epoch})
        (println (format "  %6.2f s  epoch %d: accuracy %s"
                         (timeline/now timeline) epoch (timeline/percent accuracy)))))))

(defn- until
  "Prints the progress of `timeline` until (ready? @timeline) is true. `kv` is the store of the
  coordinator, or nil before the servers run.

  Throws after a time limit, with `what` as the missing event, or if a process ends by itself."
  [timeline kv what ready?]
  (let [end (+ (timeline/now timeline) seconds-to-wait)]
    (loop []
      (processes/check)
      (timeline/show-new-events timeline)
      ;; When a worker has reported, the keys exist.
      (when (some (:reports @timeline) first-workers)
        (measure timeline kv))
      (when-not (ready? @timeline)
        (when (< end (timeline/now timeline))
          (throw (ex-info (format "not within %d s: %s" seconds-to-wait what)
                          (select-keys @timeline [:live :reports :epoch]))))
        (Thread/sleep 50)
        (recur)))))

(defn- divided?
  "Returns whether `n` workers are live, and each has reported that it takes every n-th batch."
  [n {:keys [live reports]}]
  (and (= n (count live))
       (every? #(= n (:of (reports %))) (keys live))))

(defn- train
  "Trains with all workers on the servers with these `addresses`, until the workers have left."
  [timeline kv addresses]
  (let [start-worker #(apply start timeline % "worker" % addresses)
        until-divided (fn [n]
                        (until timeline kv (str n " workers share the batches") #(divided? n %))
                        (timeline/note timeline (format "%d workers share the batches" n)))
        train-for (fn [num-epochs]
                    (let [last-epoch (+ num-epochs (:epoch @timeline))]
                      (until timeline kv (str "epoch " last-epoch) #(<= last-epoch (:epoch %)))))]
    (run! start-worker first-workers)
    (until-divided 3)
    (train-for 15)
    (timeline/note-kill timeline killed-worker)
    (processes/kill killed-worker)
    (until-divided 2)
    (train-for 5)
    (start-worker late-worker)
    (until-divided 3)
    (train-for 15)
    (processes/stop (keys (:live @timeline)))
    (until timeline kv "all workers have left" #(empty? (:live %)))))

(defn run
  "Starts the servers and trains with three workers. Kills one of them, starts a fourth, and prints
  the results.

  Throws if a result is wrong, or if an event does not happen in time."
  []
  (let [timeline (timeline/begin)
        addresses #(keep (comp :address (:reports @timeline)) servers)]
    (screen/heading "Two servers and three workers, each in its own process, learn to read digits")
    (run! #(start timeline % "server") servers)
    (until timeline nil "the servers run" (fn [_] (= (count servers) (count (addresses)))))
    (doseq [[server address] (map vector servers (addresses))]
      (timeline/note timeline (str server " listens on " address)))
    (with-open [kv (model/connect (addresses) {:name "coordinator" :reader true})]
      (kvstore/on-member kv #(timeline/note-members timeline %))
      (train timeline kv (addresses))
      (results/show timeline kv))
    (processes/stop servers)))
