(ns org.apache.clojure-mxnet.rounds-test
  "Rounds: pushes of several workers that become one push."
  (:require [clojure.test :refer [deftest is]]
            [dev.kvstore.failures :refer [code failure]]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.kvstore-server :as kvstore-server]
            [org.apache.clojure-mxnet.ndarray :as ndarray]
            [org.apache.clojure-mxnet.optimizer :as optimizer]))

(set! *warn-on-reflection* true)

(defn- server
  ^dev.kvstore.KVStoreServer []
  (kvstore-server/start {:address "127.0.0.1:0"}))

(defn- connect
  ^dev.kvstore.KVStore [server member opts]
  (kvstore/create "dist_quorum" (merge {:servers [(kvstore-server/address server)]
                                        :name member
                                        :timeout 30
                                        :grace 30}
                                       opts)))

(defn- push-both
  "Pushes the numbers `a` and `b` to two stores at the same time."
  [kv-a a kv-b b]
  (let [push (future (kvstore/push kv-a "w" (ndarray/full [2] a)))]
    (kvstore/push kv-b "w" (ndarray/full [2] b))
    (is (identical? kv-a (deref push 30000 :running)))))

(defn- stored
  [kv]
  (ndarray/->vec (kvstore/pull kv "w")))

(deftest a-round-is-one-push-with-the-sum
  (with-open [server (server)
              a (connect server "a" {:quorum 2})
              ;; Closing it does not wait for `a`, which is open.
              b (connect server "b" {:quorum 2})]
    (is (= "dist_quorum" (kvstore/type a)))
    (kvstore/init a "w" (ndarray/zeros [2]))
    (kvstore/set-optimizer a (optimizer/sgd {:learning-rate 0.5}))
    (push-both a 1 b 2)
    (is (= [-1.5 -1.5] (stored a)))
    (is (= 1 (kvstore/version b "w")))))

(deftest several-servers-commit-the-same-rounds
  (with-open [follower (server)
              leader (kvstore-server/start {:address "127.0.0.1:0"
                                            :followers [(kvstore-server/address follower)]})]
    (let [servers (mapv kvstore-server/address [leader follower])]
      (with-open [a (connect leader "a" {:quorum 2 :servers servers})
                  b (connect leader "b" {:quorum 2 :servers servers})]
        (kvstore/init a "w" (ndarray/zeros [2]))
        (push-both a 1 b 2)
        (is (= [3.0 3.0] (stored a))))))
  (is (= :invalid-argument (code (kvstore-server/start {:address "127.0.0.1:0" :followers []}))))
  (is (= :invalid-argument (code (kvstore-server/start {:address "127.0.0.1:0"
                                                        :followers "nowhere"})))))

(deftest weights-make-means
  (with-open [server (server)
              a (connect server "a" {:quorum 2 :weight 1})
              b (connect server "b" {:quorum 2 :weight 1/2})]
    (kvstore/init a "w" (ndarray/zeros [2]))
    (is (identical? b (kvstore/set-weight b 3)))
    (push-both a 1 b 5)
    (is (= [4.0 4.0] (stored a)))
    (doseq [wrong [0 -1 ##NaN ##Inf "1" nil]]
      (is (= ["Invalid weight" :invalid-argument]
             ((juxt :start :kvstore/code) (failure (kvstore/set-weight b wrong))))))
    (push-both a 2 b 6)
    (is (= [5.0 5.0] (stored a)))
    (with-open [sums (connect server "c" {:quorum 1})]
      (is (= :unsupported (code (kvstore/set-weight sums 1)))))
    (is (= :unsupported (code (kvstore/set-weight (kvstore/create) 1))))))

(deftest late-pushes-are-rejected-or-kept
  (with-open [server (server)
              fast (connect server "a" {:quorum 1 :grace 0 :late :reject})
              slow (connect server "b" {:quorum 1 :grace 0})
              keeping (connect server "c" {:quorum 1 :grace 0 :late :next})]
    (kvstore/init fast "w" (ndarray/ones [2]))
    (is (= [[1.0 1.0] [1.0 1.0]] (map stored [slow keeping])))
    (kvstore/push fast "w" (ndarray/ones [2]))
    (is (= {:kvstore/code :late-push
            :kvstore/key "w"
            :kvstore/expected "2"
            :kvstore/found "1"
            :message "push of `w` for round 1: the current round is 2"}
           (dissoc (failure (kvstore/push slow "w" (ndarray/zeros [2]))) :start :cause)))
    (is (= [1.0 1.0] (stored slow)))
    (kvstore/push slow "w" (ndarray/zeros [2]))
    (is (= [0.0 0.0] (stored fast)))
    (kvstore/push keeping "w" (ndarray/ones [2]))
    (is (= [1.0 1.0] (stored fast)))
    (is (= 3 (kvstore/version fast "w")))))

(deftest options-that-do-not-fit-are-rejected
  (doseq [[opts part] {{} #"`dist_quorum`: expected the option `quorum`, the least number"
                       {:grace 1} #"quorum: expected the least number of members of a round"
                       {:late :next} #"quorum: expected the least number of members of a round"
                       {:weight 1} #"quorum: expected the least number of members of a round"}
          :let [opts (merge {:servers "127.0.0.1:1"} opts)
                {:keys [message] :as thrown} (failure (kvstore/create "dist_quorum" opts))]]
    (is (= :invalid-argument (:kvstore/code thrown)))
    (is (re-find part (str message))))
  (is (= :invalid-argument (code (kvstore/create "local" {:quorum 2})))))
