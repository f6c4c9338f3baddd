(ns org.apache.clojure-mxnet.snapshot-test
  "Tests of snapshots, rollbacks, checkpoints and optimizer state files."
  (:require [clojure.datafy :as datafy]
            [clojure.string :as string]
            [clojure.test :refer [deftest is testing]]
            [dev.kvstore.failures :refer [code failure]]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.lr-scheduler :as lr-scheduler]
            [org.apache.clojure-mxnet.ndarray :as ndarray]
            [org.apache.clojure-mxnet.optimizer :as optimizer])
  (:import (java.io File)))

(set! *warn-on-reflection* true)

(defn- temporary-file
  "Returns the name of a new file, which is deleted when the JVM exits."
  []
  (str (doto (File/createTempFile "snapshot" ".checkpoint") .deleteOnExit)))

(defn- store
  "Returns a store with two keys and an optimizer with a schedule and other options."
  []
  (-> (kvstore/create)
      (kvstore/init [:w :b] [(ndarray/ones [3]) (ndarray/zeros [2])])
      (kvstore/set-optimizer (optimizer/sgd {:learning-rate 0.1
                                             :momentum 0.9
                                             :wd 0.01
                                             :lr-scheduler
                                             (lr-scheduler/factor-scheduler 2 0.5)}))))

(defn- step
  "Pushes values derived from `n`, and returns all values of the store."
  [kv n]
  (kvstore/push kv [:w :b] [(ndarray/array [n 1 -1] [3]) (ndarray/array [1 n] [2])])
  (mapv ndarray/->vec (kvstore/pull kv [:w :b])))

(deftest a-rollback-restores-the-earlier-results
  (let [kv (store)]
    (step kv 1)
    (with-open [before (kvstore/snapshot kv)]
      (let [expected (mapv #(step kv %) [2 3 4])]
        (kvstore/init kv "new" (ndarray/ones [1]))
        (kvstore/remove kv :b)
        (kvstore/set-hyper-parameters kv {:momentum 0})
        (is (identical? kv (kvstore/rollback kv before)))
        (is (= ["w" "b"] (kvstore/keys kv) (kvstore/snapshot-keys before)))
        (is (= expected (mapv #(step kv %) [2 3 4])))
        (with-open [after (kvstore/snapshot kv)]
          (is (= ["w" "b"] (kvstore/snapshot-diff before after)))
          (is (not (kvstore/snapshot= before after)))
          (is (kvstore/snapshot= before (kvstore/snapshot (kvstore/rollback kv before)))))))))

(deftest a-snapshot-returns-its-contents
  (let [kv (kvstore/init (store) "rows"
                         (ndarray/row-sparse-array (ndarray/ones [2 3]) [1 5] [9 3]))]
    (step kv 1)
    (with-open [s (kvstore/snapshot kv)]
      (let [expected (kvstore/stats kv)
            rates (kvstore/hyper-parameters kv)]
        (step kv 2)
        (kvstore/set-hyper-parameters kv {:momentum 0})
        (is (= expected (kvstore/stats s)))
        (is (= rates (kvstore/hyper-parameters s)))
        (is (= (:keys expected) (datafy/datafy s)))
        ;; Two rows of three numbers, and their row indices.
        (is (= (+ 24 16) (get-in expected [:keys "rows" :bytes])))
        (is (= [1.0 1.0]
               (take 2 (drop 3 (ndarray/->vec (datafy/nav (datafy/datafy s) "rows" nil)))))))
      (let [{:keys [num-updates arrays]} (kvstore/snapshot-state s :w)]
        (is (= 1 num-updates))
        (is (= [[3]] (mapv ndarray/shape-vec arrays))))
      (is (nil? (kvstore/snapshot-state s "rows")))
      (is (= :key-not-found (code (kvstore/snapshot-state s "none")))))
    (with-open [s (kvstore/snapshot (kvstore/create))]
      (is (= {:type "local" :bytes 0 :state-bytes 0 :keys {}} (kvstore/stats s)))
      (is (= :invalid-argument (code (kvstore/hyper-parameters s)))))))

(deftest a-restored-checkpoint-continues-with-the-same-values
  (let [kv (store)
        f (temporary-file)]
    (step kv 1)
    (let [writing (kvstore/checkpoint kv f)
          expected (mapv #(step kv %) [2 3 4])]
      (is (= f @writing (deref writing 1000 :late)))
      (is (realized? writing))
      (is (= {:bytes-written (.length (File. ^String f))
              :bytes (.length (File. ^String f))
              :done? true}
             (kvstore/progress writing)))
      (is (re-matches #"#kv/Checkpoint\[.* bytes\]" (pr-str writing)))
      (let [other (kvstore/restore (kvstore/create "device") f)]
        (is (= expected (mapv #(step other %) [2 3 4]))))
      (is (= ["w" "b"] (kvstore/snapshot-keys (kvstore/read-snapshot (File. ^String f))))))))

(deftest a-delta-has-the-changes-since-a-snapshot
  (let [kv (kvstore/init (store) "large" (ndarray/zeros [10000]))
        [f g h] (repeatedly 3 temporary-file)
        size (fn [f] (.length (File. ^String f)))]
    (with-open [base (kvstore/snapshot kv)]
      (is (= [] (kvstore/snapshot-files base)))
      (is (= :invalid-argument (code (kvstore/checkpoint kv g {:since base}))))
      @(kvstore/checkpoint base f)
      (step kv 1)
      (with-open [now (kvstore/snapshot kv)]
        (is (= g @(kvstore/checkpoint now g {:since base})))
        (is (= [g f] (kvstore/snapshot-files now)))
        (step kv 2)
        @(kvstore/checkpoint kv h {:since now})
        (is (= :invalid-argument (code (kvstore/checkpoint kv f {:since now})))))
      (is (< (size h) 10000 40000 (size f)))
      (let [other (kvstore/restore (kvstore/create) h)]
        (is (= (step kv 3) (step other 3))))
      (is (= 3 (count (kvstore/snapshot-files (kvstore/read-snapshot h)))))
      (is (= "Invalid since" (:start (failure (kvstore/checkpoint kv h {:since 1})))))
      (is (= :invalid-argument (code (kvstore/checkpoint kv h {:sinse base}))))
      (.delete (File. ^String g))
      (let [failed (failure (kvstore/restore kv h))]
        (is (= :io (:kvstore/code failed)))
        (is (string/includes? (:message failed) (str g ": reading the base of " h)))))))

(deftest closing-a-store-throws-the-failure-of-a-checkpoint
  (let [nowhere (str (temporary-file) "/none/model")]
    (testing "that the program did not deref"
      (let [kv (store)]
        (kvstore/checkpoint kv nowhere)
        (let [failed (failure (kvstore/dispose kv))]
          (is (= :io (:kvstore/code failed)))
          (is (string/starts-with? (:message failed) (str nowhere ": writing: "))))
        (is (= :closed (code (kvstore/keys kv))))
        (is (nil? (kvstore/dispose kv)))))
    (testing "only once"
      (let [kv (store)]
        (is (= :io (code @(kvstore/checkpoint kv nowhere))))
        (is (nil? (kvstore/dispose kv)))))))

(deftest a-snapshot-can-be-written-to-a-file
  (let [kv (store)
        f (temporary-file)]
    (with-open [before (kvstore/snapshot kv)]
      (step kv 5)
      @(kvstore/checkpoint before f)
      (is (kvstore/snapshot= before (kvstore/read-snapshot f))))))

(deftest optimizer-states-only
  (let [[kv other] [(store) (store)]
        f (temporary-file)]
    (step kv 1)
    (kvstore/save-optimizer-states kv f true)
    (kvstore/set-optimizer other (optimizer/adam))
    (is (= :invalid-argument
           (code (kvstore/save-optimizer-states (kvstore/create) (temporary-file)))))
    (is (= :key-not-found (code (kvstore/load-optimizer-states (kvstore/create) f))))
    (kvstore/load-optimizer-states other f)
    (is (= (kvstore/hyper-parameters kv) (kvstore/hyper-parameters other)))
    (with-open [a (kvstore/snapshot kv)]
      (let [values [(kvstore/snapshot-value a :w) (kvstore/snapshot-value a :b)]
            again (-> (kvstore/create)
                      (kvstore/init [:w :b] values)
                      (kvstore/set-optimizer (optimizer/sgd))
                      (kvstore/load-optimizer-states f))]
        (is (= (mapv #(step kv %) [2 3]) (mapv #(step again %) [2 3])))))))

(deftest failures-name-the-file
  (let [kv (store)
        before (kvstore/snapshot kv)
        nowhere (str (temporary-file) "/none/model")
        damaged (doto (temporary-file) (spit "no checkpoint at all"))]
    (doseq [[expected f thrown] [[:io nowhere (failure @(kvstore/checkpoint kv nowhere))]
                                 [:io nowhere (failure (kvstore/restore kv nowhere))]
                                 [:corrupt damaged (failure (kvstore/restore kv damaged))]
                                 [:corrupt damaged (failure (kvstore/read-snapshot damaged))]]]
      (is (= expected (:kvstore/code thrown)))
      (is (string/includes? (:message thrown) f)))
    (is (kvstore/snapshot= before (kvstore/snapshot kv)))))

(deftest invalid-arguments
  (let [kv (store)
        s (kvstore/snapshot kv)]
    (is (= "Invalid snapshot" (:start (failure (kvstore/rollback kv kv)))))
    (is (= "Invalid checkpoint" (:start (failure (kvstore/progress (future 1))))))
    (doseq [f [nil 5]]
      (is (= "Invalid filename" (:start (failure (kvstore/checkpoint kv f)))))
      (is (= "Invalid filename" (:start (failure (kvstore/restore kv f)))))
      (is (= "Invalid filename" (:start (failure (kvstore/read-snapshot f))))))
    (is (= :key-not-found (code (kvstore/snapshot-value s "none"))))
    (is (= "#kv/Snapshot [local, keys [\"w\" \"b\"]]" (pr-str s)))
    (kvstore/dispose s)
    (is (= "#kv/Snapshot [closed]" (pr-str s)))
    (is (= :closed (code (kvstore/snapshot-keys s))))))

(deftest an-updater-cannot-take-a-snapshot
  (let [kv (kvstore/init (kvstore/create) "w" (ndarray/ones [1]))
        seen (atom nil)]
    (kvstore/set-updater kv (fn [_ _ _] (reset! seen (code (kvstore/snapshot kv)))))
    (kvstore/push kv "w" (ndarray/ones [1]))
    (is (= :invalid-argument @seen))
    (kvstore/dispose kv)))
