(ns org.apache.clojure-mxnet.updater-test
  "What a function given to set-updater may do, and what its failure does."
  (:require [clojure.test :refer [deftest is testing]]
            [dev.kvstore.failures :refer [code]]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray])
  (:import (dev.kvstore KVStore KVStoreException KVStoreException$Code NDArray)))

(set! *warn-on-reflection* true)

(defn- store
  "A new store that holds [1.0] under each of `ks`, with the updater `f`."
  [ks f]
  (-> (kvstore/create)
      (kvstore/init ks (repeatedly (count ks) #(ndarray/ones [1])))
      (kvstore/set-updater f)))

(defn- value [kv k] (first (ndarray/->vec (kvstore/pull kv k))))

(defn- add [_ pushed stored] (ndarray/+= stored pushed))

(defn- thrown-by
  "The object that `f` throws."
  [f]
  (try (f) nil (catch Throwable e e)))

(deftest sees-each-key-once-with-its-sum-in-init-order
  (let [seen (atom [])
        kv (store ["z" "a" "m"] (fn [k pushed _] (swap! seen conj [k (ndarray/->vec pushed)])))]
    (kvstore/push kv ["m" "z" "m" "a"] (mapv #(ndarray/full [1] %) [1 10 100 1000]))
    (is (= [["z" [10.0]] ["a" [1000.0]] ["m" [101.0]]] @seen))))

(deftest runs-only-for-push
  (let [calls (atom 0)
        kv (store ["w"] (fn [& _] (swap! calls inc)))]
    (kvstore/init kv "x" (ndarray/ones [1]))
    (kvstore/pull kv "w")
    (is (zero? @calls))
    (kvstore/pushpull kv "w" (ndarray/ones [1]))
    (is (= 1 @calls))))

(deftest nil-brings-replacing-back
  (let [kv (store ["w"] add)]
    (kvstore/push kv "w" (ndarray/full [1] 4))
    (is (= 5.0 (value kv "w")))
    (kvstore/set-updater kv nil)
    (kvstore/push kv "w" (ndarray/full [1] 4))
    (is (= 4.0 (value kv "w")))))

(deftest its-exception-comes-out-as-the-same-object
  (doseq [thrown [(ex-info "mine" {:a 1})
                  (IllegalStateException. "mine")
                  (Exception. "checked")
                  (AssertionError. "an error")
                  (KVStoreException. KVStoreException$Code/TIMEOUT "mine")]]
    (let [kv (store ["w"] (fn [& _] (throw thrown)))]
      (is (identical? thrown (thrown-by #(kvstore/push kv "w" (ndarray/ones [1])))))
      (is (identical? thrown (thrown-by #(kvstore/pushpull kv "w" (ndarray/ones [1])))))
      (testing "and the store goes on"
        (is (= 1.0 (value kv "w")))
        (kvstore/set-updater kv add)
        (kvstore/push kv "w" (ndarray/ones [1]))
        (is (= 2.0 (value kv "w")))))))

(deftest its-failure-keeps-the-old-value
  (let [kv (store ["a" "b" "c"]
                  (fn [k pushed stored]
                    (ndarray/+= stored pushed)
                    (when (= "b" k)
                      (throw (ex-info "no" {})))))]
    (is (= "no" (ex-message (thrown-by #(kvstore/push kv ["a" "b" "c"]
                                                      (repeatedly 3 (fn [] (ndarray/ones [1]))))))))
    (is (= [2.0 1.0 1.0] (map #(value kv %) ["a" "b" "c"])))))

(deftest a-mistake-inside-it-has-its-code
  (let [kv (store ["w"] (fn [_ _ stored] (ndarray/+= stored (ndarray/ones [2]))))]
    (is (= :spec-mismatch (code (kvstore/push kv "w" (ndarray/ones [1])))))
    (is (= 1.0 (value kv "w")))))

(deftest may-pull-but-not-change-its-store
  (let [kv (kvstore/create)
        seen (atom nil)
        refused (atom [])]
    (kvstore/init kv ["w" "x"] [(ndarray/ones [1]) (ndarray/full [1] 7)])
    (kvstore/set-updater kv
      (fn [_ _ stored]
        (ndarray/set stored 5)
        (reset! seen [(value kv "w") (value kv "x")])
        (doseq [change [#(kvstore/push kv "x" (ndarray/ones [1]))
                        #(kvstore/init kv "y" (ndarray/ones [1]))
                        #(kvstore/remove kv "x")
                        #(kvstore/set-updater kv nil)]]
          (swap! refused conj (code (change))))))
    (kvstore/push kv "w" (ndarray/ones [1]))
    (is (= [1.0 7.0] @seen) "the last committed values")
    (is (= (repeat 4 :invalid-argument) @refused))
    (is (= 5.0 (value kv "w")))))

(deftest its-arrays-end-with-the-call
  (let [kept (atom nil)
        kv (store ["w"] (fn [_ pushed stored] (reset! kept [pushed stored])))]
    (kvstore/push kv "w" (ndarray/ones [1]))
    (is (every? ndarray/is-disposed @kept))
    (is (= :closed (code (ndarray/set (second @kept) 9))))
    (is (= 1.0 (value kv "w")))))

(deftest what-it-throws-reaches-a-caller-in-java-as-it-was
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

(deftest two-updaters-that-pull-each-others-keys-do-not-wait
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
