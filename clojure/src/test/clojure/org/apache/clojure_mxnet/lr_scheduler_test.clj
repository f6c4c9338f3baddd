(ns org.apache.clojure-mxnet.lr-scheduler-test
  (:require [clojure.test :refer [deftest is testing]]
            [dev.kvstore.failures :refer [code failure]]
            [dev.kvstore.recorded :refer [close?]]
            [org.apache.clojure-mxnet.lr-scheduler :as lr-scheduler]))

(set! *warn-on-reflection* true)

(defn- rates
  "Returns the learning rates of the schedule for the base 1 and the updates 1 to 6."
  [scheduler]
  (mapv #(lr-scheduler/learning-rate scheduler 1 %) (range 1 7)))

(defn- all-close?
  [expected found]
  (every? true? (map (partial close? 1e-12) expected found)))

(deftest schedules-follow-their-formulas
  (is (= [1.0 1.0 0.5 0.5 0.25 0.25] (rates (lr-scheduler/factor-scheduler 2 0.5))))
  (is (= [1.0 1.0 0.5 0.5 0.4 0.4]
         (rates (lr-scheduler/factor-scheduler 2 0.5 {:stop-factor-lr 0.4}))))
  (is (= [1.0 0.5 0.5 0.25 0.25 0.25] (rates (lr-scheduler/multi-factor-scheduler [1 3] 0.5))))
  (is (all-close? [0.5625 0.25 0.0625 0 0 0] (rates (lr-scheduler/poly-scheduler 4))))
  (is (all-close? [0.8 0.6 0.4 0.2 0.2 0.2]
                  (rates (lr-scheduler/poly-scheduler 4 {:power 1 :final-lr 0.2}))))
  (is (all-close? [(/ (+ 2 (Math/sqrt 2)) 4) 0.5] (rates (lr-scheduler/cosine-scheduler 4))))
  (testing "after a warm-up"
    (is (all-close? [0.25 0.5 0.75 1 0.5 0.25]
                    (rates (lr-scheduler/multi-factor-scheduler [4 5] 0.5 {:warmup-steps 4}))))
    (is (all-close? [0.1 0.1 0.1 0.5]
                    (rates (lr-scheduler/multi-factor-scheduler
                             [3]
                             0.5
                             {:warmup-steps 4 :warmup-begin-lr 0.1 :warmup-mode :constant}))))))

(deftest schedules-are-values
  (is (= (lr-scheduler/factor-scheduler 2 0.5) (lr-scheduler/factor-scheduler 2 0.5)))
  (is (= "#kv/LrScheduler [factor[2, 0.5, 1.0E-8]]"
         (pr-str (lr-scheduler/factor-scheduler 2 0.5)))))

(deftest invalid-schedules
  (is (= "Invalid step" (:start (failure (lr-scheduler/factor-scheduler 0.5 0.5)))))
  (is (= "Invalid factor" (:start (failure (lr-scheduler/factor-scheduler 1 "half")))))
  (is (= "Invalid steps" (:start (failure (lr-scheduler/multi-factor-scheduler 3 0.5)))))
  (is (= "Invalid max-update" (:start (failure (lr-scheduler/poly-scheduler nil)))))
  (is (= "Invalid warmup-mode"
         (:start (failure (lr-scheduler/cosine-scheduler 9 {:warmup-steps 2 :warmup-mode :slow})))))
  (doseq [bad [false true "1"]]
    (is (= "Invalid warmup-begin-lr"
           (:start (failure (lr-scheduler/factor-scheduler
                              1 0.5 {:warmup-steps 2 :warmup-begin-lr bad})))))
    (is (= "Invalid stop-factor-lr"
           (:start (failure (lr-scheduler/factor-scheduler 1 0.5 {:stop-factor-lr bad})))))
    (is (= "Invalid final-lr" (:start (failure (lr-scheduler/cosine-scheduler 9 {:final-lr bad})))))
    (is (= "Invalid base"
           (:start (failure (lr-scheduler/learning-rate (lr-scheduler/poly-scheduler 4) bad 1))))))
  (is (= (lr-scheduler/multi-factor-scheduler [1 2] 0.5)
         (lr-scheduler/multi-factor-scheduler (eduction (map inc) [0 1]) 0.5)))
  (is (= "step: expected at least 1, found 0"
         (:message (failure (lr-scheduler/factor-scheduler 0 0.5)))))
  (is (= "steps: expected ascending numbers of at least 1, found 3 after 3"
         (:message (failure (lr-scheduler/multi-factor-scheduler [1 3 3] 0.5)))))
  (is (= "max-update: expected more than the 4 steps of the warm-up, found 3"
         (:message (failure (lr-scheduler/poly-scheduler 3 {:warmup-steps 4})))))
  (is (= "stop-factor-lr: expected a number of at least 0, found -1"
         (:message (failure (lr-scheduler/factor-scheduler 1 0.5 {:stop-factor-lr -1})))))
  (is (= :invalid-argument (code (lr-scheduler/factor-scheduler 1 2))))
  (is (= :invalid-argument (code (lr-scheduler/multi-factor-scheduler [3 2] 0.5))))
  (is (= :invalid-argument (code (lr-scheduler/cosine-scheduler 2 {:warmup-steps 3}))))
  (is (= :invalid-argument (code (lr-scheduler/factor-scheduler 1 0.5 {:floor 1})))))
