(ns org.apache.clojure-mxnet.optimizer-test
  (:require [clojure.string :as string]
            [clojure.test :refer [deftest is testing]]
            [dev.kvstore.failures :refer [code failure]]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray]
            [org.apache.clojure-mxnet.optimizer :as optimizer]))

(set! *warn-on-reflection* true)

(def ^:private gradients
  [[0.1 -0.2 0.3 0.4]
   [-0.5 0.25 1.5 -2]
   [0.05 0.6 -0.7 0.8]])

(defn- path
  "The weights after each of the `gradients`, with `optimizer` on the store."
  [optimizer]
  (let [kv (-> (kvstore/create)
               (kvstore/init "w" (ndarray/array [1 -2 0.5 3] [2 2]))
               (kvstore/set-optimizer optimizer))]
    (mapv (fn [g]
            (kvstore/push kv "w" (ndarray/array g [2 2]))
            (ndarray/->double-vec (kvstore/pull kv "w")))
          gradients)))

(defn- close?
  "Do the numbers agree to 2e-5 of their size?"
  [expected found]
  (every? true? (map #(<= (abs (- %1 %2)) (* 2e-5 (abs %1))) (flatten expected) (flatten found))))

(deftest sgd-takes-the-recorded-path
  (testing "with the defaults"
    (is (close? [[0.998999 -1.997998 0.4969995 2.995997]
                 [1.003998 -2.000496 0.481999 3.015994]
                 [1.003497 -2.006494 0.4889985 3.007991]]
                (path (optimizer/sgd)))))
  (testing "with every option"
    (is (close? [[0.989 -1.978 0.4695 2.967]
                 [1.008111 -1.981222 0.4115805 2.964333]
                 [1.019303 -2.012141 0.3890414 2.928968]]
                (path (optimizer/sgd {:learning-rate 0.1 :wd 0.01 :momentum 0.9 :clip-gradient 0.3
                                      :lr-scheduler nil}))))))

(deftest sgd-refuses-what-it-cannot-honour
  (doseq [opts [{:wd 'a} {:learning-rate "0.1"} {:momentum nil} {:clip-gradient :off}]]
    (is (= ["Incorrect sgd optimizer options" :invalid-argument opts]
           ((juxt :message :kvstore/code :kvstore/value) (failure (optimizer/sgd opts))))))
  (testing "an option that it does not know is named"
    (is (string/includes? (:message (failure (optimizer/sgd {:learnig-rate 0.1}))) ":learnig-rate")))
  (is (= :invalid-argument (code (optimizer/sgd [0.1]))))
  (is (= :unsupported (code (optimizer/sgd {:lr-scheduler (Object.)})))))
