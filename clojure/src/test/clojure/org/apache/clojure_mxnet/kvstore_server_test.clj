(ns org.apache.clojure-mxnet.kvstore-server-test
  (:require [clojure.test :refer [deftest is testing]]
            [dev.kvstore.failures :refer [code failure]]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.kvstore-server :as kvstore-server]
            [org.apache.clojure-mxnet.ndarray :as ndarray])
  (:import (dev.kvstore KVStoreServer ServerOptions)
           (java.io File)
           (java.net ServerSocket)
           (java.nio.file Files)
           (java.nio.file.attribute FileAttribute)
           (java.util.function Consumer)))

(set! *warn-on-reflection* true)

(defn- server
  (^dev.kvstore.KVStoreServer [] (server {}))
  (^dev.kvstore.KVStoreServer [opts] (kvstore-server/start (merge {:address "127.0.0.1:0"} opts))))

(defn- connect
  (^dev.kvstore.KVStore [server] (connect server {}))
  (^dev.kvstore.KVStore [server opts]
   (kvstore/create "dist_async" (merge {:servers [(kvstore-server/address server)]} opts))))

(defn- eventually
  "Returns whether (f) becomes true in 20 seconds."
  [f]
  (let [end (+ (System/nanoTime) 20000000000)]
    (loop []
      (cond
        (f) true
        (< end (System/nanoTime)) false
        :else (do (Thread/sleep 10) (recur))))))

(deftest workers-share-the-values-of-a-server
  (with-open [server (server)
              a (connect server {:name "a" :timeout 30 :connections 2})
              b (connect server {:name "b"})
              reader (connect server {:name "c" :reader true})]
    (kvstore/init a "w" (ndarray/ones [2]))
    (kvstore/push b "w" [(ndarray/ones [2]) (ndarray/ones [2])])
    (is (= [2.0 2.0] (ndarray/->vec (kvstore/pull reader "w"))))
    (is (= [2.0 2.0] (ndarray/->vec (kvstore/pull (kvstore-server/store server) "w"))))
    (is (= 1 (kvstore/version a "w")))
    (is (= [{:name "a" :rank 0 :reader false}
            {:name "b" :rank 1 :reader false}
            {:name "c" :rank 0 :reader true}]
           (kvstore-server/members server)))
    (is (eventually #(= (kvstore-server/members server) (kvstore/members a))))
    (let [seen (promise)]
      (kvstore/on-member a (fn [members] (when (= 2 (count members)) (deliver seen members))))
      (kvstore/leave b)
      (is (= ["a" "c"] (map :name (deref seen 20000 nil)))))
    (is (= :closed (code (kvstore/pull b "w"))))
    (is (= :invalid-argument (code (kvstore/push reader "w" (ndarray/ones [2])))))))

(deftest an-updater-runs-in-the-process-of-the-server
  (let [staleness (atom [])
        updater (fn [k pushed stored]
                  (swap! staleness conj (kvstore/push-staleness k))
                  (ndarray/+= stored pushed))]
    (with-open [server (server {:updater updater})
                a (connect server)
                b (connect server)]
      (kvstore/init a "w" (ndarray/zeros [1]))
      (kvstore/pull a "w")
      (kvstore/push b "w" (ndarray/ones [1]))
      (kvstore/push a "w" (ndarray/ones [1]))
      (is (= [2.0] (ndarray/->vec (kvstore/pull a "w"))))
      (is (= 1 (last @staleness)))
      (is (nil? (kvstore/push-staleness "w")))
      (is (= :unsupported (code (kvstore/set-updater a updater)))))))

(deftest an-exception-of-an-updater-reaches-the-worker
  (let [thrown (IllegalStateException. "no")]
    (with-open [server (server {:updater (fn [_ _ _] (throw thrown))})
                kv (connect server)]
      (kvstore/init kv "w" (ndarray/ones [1]))
      (is (identical? thrown (try
                               (kvstore/push kv "w" (ndarray/ones [1]))
                               (catch IllegalStateException e e))))
      (is (= [1.0] (ndarray/->vec (kvstore/pull kv "w")))))))

(deftest commands-reach-the-server
  (let [found (promise)]
    (with-open [server (server {:on-command (fn [head body]
                                              (deliver found [head body])
                                              (when (neg? (long head))
                                                (throw (ex-info "below 0" {}))))})
                kv (connect server)]
      (kvstore/send-command-to-servers kv 7 "hello")
      (is (= [7 "hello"] (deref found 20000 nil)))
      (let [{:keys [message]} (failure (kvstore/send-command-to-servers kv -1 ""))]
        (is (re-find #"clojure.lang.ExceptionInfo: below 0" (str message)))))))

(deftest servers-write-checkpoints-and-keep-snapshots
  (let [^File folder (.toFile (Files/createTempDirectory "kvstore" (make-array FileAttribute 0)))]
    (with-open [server (server {:checkpoints folder})
                kv (connect server)]
      (kvstore/init kv "w" (ndarray/ones [2]))
      (kvstore/checkpoint-on-servers kv "first")
      (with-open [before (kvstore/snapshot kv)
                  loaded (kvstore/snapshot-load before)]
        (kvstore/push kv "w" (ndarray/zeros [2]))
        (is (= [1.0 1.0] (ndarray/->vec (kvstore/snapshot-value before "w"))))
        (kvstore-server/stop server)
        (is (= [1.0 1.0] (ndarray/->vec (kvstore/snapshot-value loaded "w"))))))
    (with-open [kv (kvstore/create)]
      (kvstore/restore kv (File. folder "first"))
      (is (= [1.0 1.0] (ndarray/->vec (kvstore/pull kv "w")))))))

(deftest wrong-options-are-rejected
  (testing "of stores"
    (doseq [[opts start] {{:staleness -1} "Invalid staleness"
                          {:timeout 0} "Invalid timeout"
                          {:servers []} "Invalid servers"
                          {:reader "yes"} "Invalid reader"
                          {:stalenes 1} "Unknown option `:stalenes`"}]
      (is (.startsWith (str (ex-message (try (kvstore/create "dist_async" opts)
                                             (catch clojure.lang.ExceptionInfo e e))))
                       ^String start)))
    (is (= :invalid-argument (code (kvstore/create "local" {:staleness 1}))))
    (is (= :timeout
           (code (kvstore/create "dist_async" {:servers "127.0.0.1:1" :timeout 0.1})))))
  (testing "of servers"
    (is (= "Invalid lease" (:start (failure (server {:lease 0})))))
    (is (= "Invalid updater" (:start (failure (server {:updater :w})))))
    (is (= :invalid-argument (code (server {:store "remote"}))))
    (with-open [server (server)]
      (is (= :backend (code (kvstore-server/start
                              {:address (kvstore-server/address server)})))))))

(deftest a-server-can-be-stopped-twice
  (let [server (server)]
    (is (nil? (kvstore-server/stop server)))
    (is (nil? (kvstore-server/stop server)))
    (is (= "#kv/KVStoreServer [closed]" (pr-str server)))
    (is (= :closed (code (kvstore/keys (kvstore-server/store server)))))))

(deftest jobs-need-their-environment
  (is (= "Invalid environment map" (:start (failure (kvstore-server/init {:role "server"})))))
  (is (= "Invalid setting" (:start (failure (kvstore-server/start "5")))))
  (is (nil? (kvstore-server/init {"DMLC_ROLE" "worker"})))
  (is (= :invalid-argument (code (kvstore-server/start))))
  (kvstore-server/init {"DMLC_ROLE" "worker" "DMLC_PS_ROOT_URI" "127.0.0.1"
                        "DMLC_PS_ROOT_PORT" "9" "DMLC_NUM_SERVER" "1" "DMLC_NUM_WORKER" "1"})
  (is (re-find #"only servers and schedulers serve a job"
               (ex-message (try (kvstore-server/start 5)
                                (catch clojure.lang.ExceptionInfo e e)))))
  (kvstore-server/init {}))

(deftest a-worker-joins-the-job-of-init
  (let [port (with-open [socket (ServerSocket. 0)]
               (.getLocalPort socket))
        job (fn [role]
              {"DMLC_ROLE" role "DMLC_PS_ROOT_URI" "127.0.0.1"
               "DMLC_PS_ROOT_PORT" (str port) "DMLC_NUM_SERVER" "1" "DMLC_NUM_WORKER" "1"})
        run (fn [role]
              (future (KVStoreServer/runLaunched (job role) (ServerOptions/defaults)
                                                 (reify Consumer (accept [_ _])))))
        processes (mapv run ["scheduler" "server"])]
    (kvstore-server/init (job "worker"))
    (try
      (with-open [kv (kvstore/create "dist_async" {:timeout 30})]
        (kvstore/init kv "w" (ndarray/ones [1]))
        (kvstore/init kv "w" (ndarray/zeros [1]))
        (is (= [1.0] (ndarray/->vec (kvstore/pull kv "w")))))
      (finally
        (kvstore-server/init {})))
    (doseq [process processes]
      (is (nil? (deref process 30000 :running))))))
