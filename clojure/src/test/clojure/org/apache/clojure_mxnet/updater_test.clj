(ns org.apache.clojure-mxnet.updater-test
  "Tests of what an updater may do, and of its failures."
  (:require [clojure.test :refer [deftest is testing]]
            [dev.kvstore.failures :refer [code]]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray])
  (:import (dev.kvstore KVStore KVStoreException KVStoreException$Code NDArray)))

(set! *warn-on-reflection* true)

(defn- store
  "Returns a new store with the value [1.0] for each of `ks` and the updater `f`."
  [ks f]
  (-> (kvstore/create)
      (kvstore/init ks (repeatedly (count ks) #(ndarray/ones [1])))
      (kvstore/set-updater f)))

(defn- value [kv k] (first (ndarray/->vec (kvstore/pull kv k))))

(defn- add [_ pushed stored] (ndarray/+= stored pushed))

(defn- thrown-by
  "Returns the object that `f` throws."
  [f]
  (try (f) nil (catch Throwable e e)))

(deftest an-updater-sees-each-key-once-with-its-sum-in-init-order
  (let [seen (atom [])
        kv (store ["z" "a" "m"] (fn [k pushed _] (swap! seen conj [k (ndarray/->vec pushed)])))]
    (kvstore/push kv ["m" "z" "m" "a"] (mapv #(ndarray/full [1] %) [1 10 100 1000]))
    (is (= [["z" [10.0]] ["a" [1000.0]] ["m" [101.0]]] @seen))))

(deftest an-updater-runs-only-for-push
  (let [calls (atom 0)
        kv (store ["w"] (fn [& _] (swap! calls inc)))]
    (kvstore/init kv "x" (ndarray/ones [1]))
    (kvstore/pull kv "w")
    (is (zero? @calls))
    (kvstore/pushpull kv "w" (ndarray/ones [1]))
    (is (= 1 @calls))))

(deftest nil-removes-the-updater
  (let [kv (store ["w"] add)]
    (kvstore/push kv "w" (ndarray/full [1] 4))
    (is (= 5.0 (value kv "w")))
    (kvstore/set-updater kv nil)
    (kvstore/push kv "w" (ndarray/full [1] 4))
    (is (= 4.0 (value kv "w")))))

(deftest push-throws-the-same-object-as-the-updater
  (doseq [thrown [(ex-info "mine" {:a 1})
                  (IllegalStateException. "mine")
                  (Exception. "checked")
                  (AssertionError. "an error")
                  (KVStoreException. KVStoreException$Code/TIMEOUT "mine")]]
    (let [kv (store ["w"] (fn [& _] (throw thrown)))]
      (is (identical? thrown (thrown-by #(kvstore/push kv "w" (ndarray/ones [1])))))
      (is (identical? thrown (thrown-by #(kvstore/pushpull kv "w" (ndarray/ones [1])))))
      (testing "and the store continues to work"
        (is (= 1.0 (value kv "w")))
        (kvstore/set-updater kv add)
        (kvstore/push kv "w" (ndarray/ones [1]))
        (is (= 2.0 (value kv "w")))))))

(deftest a-failed-updater-keeps-the-old-value
  (let [kv (store ["a" "b" "c"]
                  (fn [k pushed stored]
                    (ndarray/+= stored pushed)
                    (when (= "b" k)
                      (throw (ex-info "no" {})))))]
    (is (= "no" (ex-message (thrown-by #(kvstore/push kv ["a" "b" "c"]
                                                      (repeatedly 3 (fn [] (ndarray/ones [1]))))))))
    (is (= [2.0 1.0 1.0] (map #(value kv %) ["a" "b" "c"])))))

(deftest an-error-inside-an-updater-has-its-code
  (let [kv (store ["w"] (fn [_ _ stored] (ndarray/+= stored (ndarray/ones [2]))))]
    (is (= :spec-mismatch (code (kvstore/push kv "w" (ndarray/ones [1])))))
    (is (= 1.0 (value kv "w")))))

(deftest an-updater-may-pull-but-not-change-its-store
  (let [kv (kvstore/create)
        seen (atom nil)
        rejected (atom [])]
    (kvstore/init kv ["w" "x"] [(ndarray/ones [1]) (ndarray/full [1] 7)])
    (kvstore/set-updater kv
      (fn [_ _ stored]
        (ndarray/set stored 5)
        (reset! seen [(value kv "w") (value kv "x")])
        (doseq [change [#(kvstore/push kv "x" (ndarray/ones [1]))
                        #(kvstore/init kv "y" (ndarray/ones [1]))
                        #(kvstore/remove kv "x")
                        #(kvstore/set-updater kv nil)]]
          (swap! rejected conj (code (change))))))
    (kvstore/push kv "w" (ndarray/ones [1]))
    (is (= [1.0 7.0] @seen) "the last committed values")
    (is (= (repeat 4 :invalid-argument) @rejected))
    (is (= 5.0 (value kv "w")))))

(deftest arrays-are-closed-when-the-updater-returns
  (let [kept (atom nil)
        kv (store ["w"] (fn [_ pushed stored] (reset! kept [pushed stored])))]
    (kvstore/push kv "w" (ndarray/ones [1]))
    (is (every? ndarray/is-disposed @kept))
    (is (= :closed (code (ndarray/set (second @kept) 9))))
    (is (= 1.0 (value kv "w")))))

(deftest a-java-caller-receives-the-same-exception
  (let [thrown (atom nil)
        ^KVStore kv (store ["w"] (fn [_ _ ^NDArray stored]
                                   (try
                                     (.addInPlace stored ^NDArray (ndarray/ones [5]))
                                     (catch KVStoreException e
                                       (reset! thrown e)
                                       (throw e)))))]
    (is (identical? (try (.push kv "w" ^NDArray (ndarray/ones [1])) (catch Exception e e)) @thrown))
    (is (identical? (try (kvstore/push kv "w" (ndarray/ones [1])) (catch Exception e e)) @thrown))))

(deftest many-threads-push
  (let [kv (store ["w"] add)
        pushing (doall (for [_ (range 4)]
                         (future (dotimes [_ 50]
                                   (kvstore/push kv "w" (ndarray/ones [1]))))))]
    (run! deref pushing)
    (is (= 201.0 (value kv "w")))))

(deftest two-updaters-that-pull-each-others-keys-do-not-deadlock
  (let [kv (kvstore/create)
        other {"a" "b" "b" "a"}]
    (kvstore/init kv ["a" "b"] [(ndarray/zeros [1]) (ndarray/zeros [1])])
    (kvstore/set-updater kv (fn [k pushed stored]
                              (value kv (other k))
                              (ndarray/+= stored pushed)))
    (let [pushing (doall (for [k ["a" "b"]]
                           (future (dotimes [_ 200]
                                     (kvstore/push kv k (ndarray/ones [1]))))))]
      (is (not-any? #{:stuck} (map #(deref % 60000 :stuck) pushing)))
      (is (= [200.0 200.0] (map #(value kv %) ["a" "b"]))))))
