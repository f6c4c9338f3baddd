(ns example.resume
  "Shows that training which is killed several times ends with the same weights as undisturbed
  training.

  Without arguments, this program starts another process that trains, kills it at random steps and
  restarts it each time. Then it trains once without interruption and compares the weights. With a
  file as argument, this program is that other process: it continues from the checkpoint in the
  file, or starts from the beginning."
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
  "Returns a new store with weights and an optimizer, whose states must survive, too."
  []
  (-> (kvstore/create)
      (kvstore/init "w" (ndarray/zeros [64 10]))
      (kvstore/set-optimizer
        (optimizer/adam {:learning-rate 0.01
                         :lr-scheduler (lr-scheduler/factor-scheduler 750 0.5)}))))

(defn- num-done
  "Returns the number of steps so far. The store counts them, and a checkpoint contains the count."
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
  "Trains from the checkpoint in `file`, if there is one. Each checkpoint is written in the
  background during the next steps."
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
  "Starts this program as another process that trains with checkpoints in `file`."
  ^Process [file]
  (-> (ProcessBuilder. ^"[Ljava.lang.String;"
                       (into-array String
                                   [(str (io/file (System/getProperty "java.home") "bin" "java"))
                                    "--enable-native-access=ALL-UNNAMED"
                                    "-cp" (System/getProperty "java.class.path")
                                    "clojure.main" "-m" "example.resume" (str file)]))
      (.redirectError java.lang.ProcessBuilder$Redirect/INHERIT)
      .start))

(defn- train-until
  "Trains in another process, and kills it when it has reached the step `last-step`, unless that is
  nil. Returns the step `:from` which it continued, and whether it was `:killed?`."
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
        ;; The exit value is 128 plus the number of the signal, SIGKILL.
        {:from (parse-long (subs start (count "from ")))
         :killed? (= 137 (.exitValue process))}))))

(defn- train-with-kills
  "Returns the final weights, and the results of `train-until` for each process."
  []
  (let [file (File/createTempFile "training" ".checkpoint")]
    (.delete file)
    (try
      ;; A process may be ahead of its output, so the kills are in the first part of the training.
      (let [kills (sort (repeatedly num-kills #(+ 50 (rand-int (quot num-steps 2)))))
            runs (mapv #(train-until file %) (concat kills [nil]))]
        [(weights (kvstore/restore (kvstore/create) file)) runs])
      (finally
        (.delete file)))))

(defn- resumed?
  "Returns whether each process except the first continued from a checkpoint that is not older than
  the previous one."
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
