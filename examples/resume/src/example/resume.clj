(ns example.resume
  "Training that is killed again and again ends with the very weights of training that nobody disturbs.

  Without arguments this program trains once in peace. Then it lets another process train, kills it at random
  steps, starts it again each time, and compares the weights. With a file as argument it is that other process:
  it goes on where the checkpoint in the file is, or begins."
  (:require [clojure.java.io :as io]
            [example.digits :as digits]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.lr-scheduler :as lr-scheduler]
            [org.apache.clojure-mxnet.ndarray :as ndarray]
            [org.apache.clojure-mxnet.optimizer :as optimizer]
            [org.apache.clojure-mxnet.resource-scope :as resource-scope])
  (:import (java.io File)
           (java.util.concurrent TimeUnit)))

(set! *warn-on-reflection* true)

(def ^:private num-steps 3000)
(def ^:private num-kills 4)
(def ^:private steps-per-checkpoint 20)

(defn- begin
  "A new store with weights and an optimizer; what it keeps for them has to survive, too."
  []
  (-> (kvstore/create)
      (kvstore/init "w" (ndarray/zeros [64 10]))
      (kvstore/set-optimizer
        (optimizer/adam {:learning-rate 0.01 :lr-scheduler (lr-scheduler/factor-scheduler 750 0.5)}))))

(defn- num-done
  "How many steps the weights have behind them. The store counts, and a checkpoint has the count."
  [kv]
  (get-in (kvstore/stats kv) [:keys "w" :pushes]))

(defn- step
  [kv batches]
  (resource-scope/using
    (let [batch (nth batches (mod (num-done kv) (count batches)))]
      (kvstore/push kv "w" (:gradient (digits/learn (kvstore/pull kv "w") batch)))))
  nil)

(defn- weights
  [kv]
  (ndarray/->vec (kvstore/pull kv "w")))

(defn- train-in-peace
  []
  (let [kv (begin)
        batches (digits/batches)]
    (dotimes [_ num-steps]
      (step kv batches))
    (weights kv)))

(defn- train-with-checkpoints
  "Trains from the checkpoint in `file`, if there is one. A checkpoint is written while the next steps are taken."
  [file]
  (let [kv (if (.exists (io/file file)) (kvstore/restore (kvstore/create) file) (begin))
        batches (digits/batches)]
    (println "from" (num-done kv))
    (loop [writing nil]
      (when (< (num-done kv) num-steps)
        (step kv batches)
        (println (num-done kv))
        (recur (if (zero? (mod (num-done kv) steps-per-checkpoint))
                 (do (some-> writing deref)
                     (kvstore/checkpoint kv file))
                 writing))))
    @(kvstore/checkpoint kv file)))

(defn- child
  "Starts this program again, to train with checkpoints in `file`."
  ^Process [file]
  (-> (ProcessBuilder. ^"[Ljava.lang.String;"
                       (into-array String [(str (io/file (System/getProperty "java.home") "bin" "java"))
                                           "--enable-native-access=ALL-UNNAMED"
                                           "-cp" (System/getProperty "java.class.path")
                                           "clojure.main" "-m" "example.resume" (str file)]))
      (.redirectError java.lang.ProcessBuilder$Redirect/INHERIT)
      .start))

(defn- train-until
  "Lets another process train, and kills it when it has come to the step `last-step`, if that is not nil. Returns the
  step `:from` which it went on, and whether it was `:killed?`."
  [file last-step]
  (let [process (child file)]
    (with-open [lines (io/reader (.getInputStream process))]
      (let [[start & steps] (line-seq lines)
            reached (last (take-while #(or (nil? last-step) (< (parse-long %) last-step)) steps))]
        (when last-step
          (.destroyForcibly process))
        (when-not (.waitFor process 1 TimeUnit/MINUTES)
          (throw (ex-info "a process does not end" {:file file})))
        (binding [*out* *err*]
          (println (str start ", ended behind " reached ", exit value " (.exitValue process))))
        ;; 128 and the number of the signal.
        {:from (parse-long (subs start (count "from ")))
         :killed? (= 137 (.exitValue process))}))))

(defn- train-with-kills
  "Returns the weights, and what `train-until` says of each process."
  []
  (let [file (File/createTempFile "training" ".checkpoint")]
    (.delete file)
    (try
      ;; A process may be further than what it has printed: the last third is left to the last one.
      (let [kills (sort (repeatedly num-kills #(+ 50 (rand-int (quot num-steps 2)))))
            runs (mapv #(train-until file %) (concat kills [nil]))]
        [(weights (kvstore/restore (kvstore/create) file)) runs])
      (finally
        (.delete file)))))

(defn- resumed?
  "Did each process but the first go on where a checkpoint was, not before the one before it?"
  [runs]
  (let [[begun & resumed] (map :from runs)]
    (and (zero? begun) (every? pos? resumed) (apply <= resumed))))

(defn -main
  ([file]
   (train-with-checkpoints file)
   (shutdown-agents))
  ([]
   (let [[found runs] (train-with-kills)
         same? (= (train-in-peace) found)]
     (println (format "killed %d times, %s, %s" (count (filter :killed? runs))
                      (if (resumed? runs) "went on from checkpoints" "DID NOT GO ON")
                      (if same? "the same weights" "OTHER WEIGHTS")))
     (shutdown-agents)
     (when-not (and same? (resumed? runs))
       (System/exit 1)))))
