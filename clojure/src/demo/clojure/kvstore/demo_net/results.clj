(ns kvstore.demo-net.results
  "The results of the demo.

    show   prints them, and fails if they are wrong"
  (:require [kvstore.demo-net.model :as model]
            [kvstore.demo-net.timeline :as timeline]
            [kvstore.demo.screen :as screen]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray]))

(set! *warn-on-reflection* true)

(def ^:private min-accuracy 0.95)

(defn- counts
  "Returns the column under the key `k` of `kv` as a vector of integers, one per rank."
  [kv k]
  (with-open [column ^dev.kvstore.NDArray (kvstore/pull kv k)]
    (ndarray/->int-vec column)))

(defn- workers
  "Returns what each worker did, in the order of the ranks: its numbers in `timeline`, and the
  numbers of :pushes and their mean :staleness that the servers have counted."
  [timeline kv]
  (let [pushes (counts kv :pushes)
        staleness (counts kv :staleness)
        {:keys [workers reports]} @timeline]
    (for [[member {:keys [rank] :as worker}] (sort-by (comp :rank val) workers)
          :let [num-pushes (pushes rank)]]
      (merge worker
             (select-keys (reports member) [:passes :batches])
             {:member member
              :pushes num-pushes
              :staleness (/ (staleness rank) (double (max 1 num-pushes)))}))))

(defn- show-workers
  [workers]
  (screen/table ["worker" "rank" "joined" "ended" "end" "passes" "pushes" "mean staleness"]
                (for [{:keys [member rank joined ended end passes pushes staleness]} workers]
                  [member rank (format "%6.2f s" joined) (format "%6.2f s" ended) end
                   passes pushes (format "%.2f" staleness)])))

(defn- check
  "Throws if `right?` is false, with the `expectation` that is not met."
  [right? expectation facts]
  (when-not right?
    (throw (ex-info (str "expected: " expectation) facts))))

(defn- check-workers
  "Throws unless the servers have counted the `total` pushes of the `workers` exactly.

  A killed worker has reported only the batches before its last pass."
  [workers total]
  (doseq [{:keys [member end batches pushes] :as worker} workers]
    (check (if (= "killed" end) (<= batches pushes) (= batches pushes))
           (str "each push of " member " counts once") worker))
  (check (= total (transduce (map :pushes) + workers))
         "the workers' pushes add up to the version of the key" {:version total})
  (check (= {"killed" 1 "left" 3} (frequencies (map :end workers)))
         "one of four workers was killed" {:workers workers}))

(defn show
  "Prints the events of `timeline`, what each worker did, and the accuracy of the values in `kv`.

  Throws if the accuracy is too low, or if a push is missing or counts twice."
  [timeline kv]
  (let [workers (workers timeline kv)
        total (kvstore/version kv :pushes)
        accuracy (model/accuracy-in kv)]
    (screen/heading "What happened")
    (timeline/show-table timeline)
    (screen/heading "What each worker did, as the servers have counted it")
    (show-workers workers)
    (check-workers workers total)
    (println)
    (screen/facts {"pushes" (format "%d, each counted once" total)
                   "accuracy" (format "%s of %d digits that no worker saw"
                                      (timeline/percent accuracy) (model/num-tested))})
    (check (<= min-accuracy accuracy) (str "an accuracy of at least " min-accuracy)
           {:accuracy accuracy})))
