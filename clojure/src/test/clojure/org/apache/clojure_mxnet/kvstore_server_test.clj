(ns org.apache.clojure-mxnet.kvstore-server-test
  (:require [clojure.string :as str]
            [clojure.test :refer [deftest is testing]]
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

(defn- certificates
  "Returns the folder of the certificate with this role."
  ^File [role]
  (.getAbsoluteFile (File. (str (System/getProperty "basedir" ".")
                                "/../tests/certificates/" role))))

(defn- temporary-folder
  ^File []
  (.toFile (Files/createTempDirectory "kvstore" (make-array FileAttribute 0))))

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

(deftest metrics-and-the-status-page-are-on-http
  (with-open [server (server {:metrics "127.0.0.1:0" :status-page true})
              a (connect server {:name "a"})]
    (kvstore/init a "w" (ndarray/ones [2]))
    (let [answer #(slurp (str "http://" (kvstore-server/metrics-address server) %))]
      (is (str/includes? (answer "/metrics")
                         "kvstore_calls_total{verb=\"init\",outcome=\"ok\"} 1"))
      (is (= "serving\n" (answer "/healthz")))
      (is (str/includes? (answer "/status.json") "\"num_keys\":1"))))
  (with-open [server (server)]
    (is (nil? (kvstore-server/metrics-address server))))
  (is (= :invalid-argument (code (server {:status-page true}))))
  (is (= :invalid-argument (code (server {:metrics 9192})))))

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
  (let [folder (temporary-folder)]
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

(deftest the-role-in-a-certificate-limits-what-a-member-may-do
  (with-open [server (server {:certificates (certificates "server")})
              worker (connect server {:certificates (str (certificates "worker"))})
              reader (connect server {:certificates (.toPath (certificates "reader"))
                                      :reader true})]
    (kvstore/init worker "w" (ndarray/ones [2]))
    (kvstore/push worker "w" (ndarray/zeros [2]))
    (is (= [0.0 0.0] (ndarray/->vec (kvstore/pull reader "w"))))
    (let [{:keys [message] :as thrown} (failure (kvstore/push reader "w" (ndarray/ones [2])))]
      (is (= :unsupported (:kvstore/code thrown)))
      (is (re-find #"push needs a certificate with the role `worker`, found `reader`" message)))
    (is (= :unsupported (code (kvstore/send-command-to-servers worker 1 ""))))
    (is (= :unsupported (code (connect server {:certificates (certificates "reader")}))))))

(deftest certificates-that-cannot-be-read-are-named
  (let [folder (temporary-folder)]
    (doseq [start [#(server {:certificates folder})
                   #(kvstore/create "dist_async" {:servers "127.0.0.1:1" :certificates folder})]
            :let [{:keys [message] :as thrown} (failure (start))]]
      (is (= :invalid-argument (:kvstore/code thrown)))
      (is (.contains ^String message (str "cannot read `" (File. folder "ca.pem") "`"))))))

(deftest addresses-that-other-machines-reach-need-certificates
  (doseq [start [#(server {:address "0.0.0.0:0"})
                 #(server {:address "0.0.0.0:0" :insecure false})
                 #(kvstore/create "dist_async" {:servers "192.0.2.1:9" :timeout 1})]
          :let [{:keys [message] :as thrown} (failure (start))]]
    (is (= :invalid-argument (:kvstore/code thrown)))
    (is (re-find #"neither authenticated nor encrypted" message)))
  (with-open [open (server {:address "0.0.0.0:0" :insecure true})
              kv (kvstore/create "dist_async"
                                 {:servers (.replace ^String (kvstore-server/address open)
                                                     "0.0.0.0" "127.0.0.1")
                                  :insecure true})]
    (is (= [] (kvstore/keys kv))))
  (let [both {:certificates (certificates "server") :insecure true}]
    (doseq [start [#(server both)
                   #(kvstore/create "dist_async" (assoc both :servers "127.0.0.1:1"))]
            :let [{:keys [message] :as thrown} (failure (start))]]
      (is (= :invalid-argument (:kvstore/code thrown)))
      (is (re-find #"expected one of them, found both" message)))))

(deftest a-configuration-file-has-the-options-that-are-not-in-the-map
  (let [file (File. (temporary-folder) "server.toml")]
    (spit file "address = '127.0.0.1:0'\nstore = 'device'\nkeys = 1\n")
    (with-open [server (kvstore-server/start {:config file})
                kv (connect server)]
      (is (= "device" (kvstore/type (kvstore-server/store server))))
      (kvstore/init kv "a" (ndarray/ones [1]))
      (is (= :invalid-argument (code (kvstore/init kv "b" (ndarray/ones [1]))))))
    (with-open [server (kvstore-server/start {:config (str file) :store :local})]
      (is (= "local" (kvstore/type (kvstore-server/store server)))))
    (spit file "adress = '127.0.0.1:0'")
    (is (re-find #"configuration file `.*server.toml`: unknown option `adress`"
                 (:message (failure (kvstore-server/start {:config file})))))))

(deftest a-server-has-limits
  (with-open [server (server {:keys 1 :peer-bytes 65536 :peer-connections 2})
              kv (connect server)]
    (is (re-find #"at most 65536 bytes"
                 (:message (failure (kvstore/init kv "w" (ndarray/zeros [1000000]))))))
    (kvstore/init kv "w" (ndarray/zeros [1]))
    (is (re-find #"at most 1 keys"
                 (:message (failure (kvstore/init kv "v" (ndarray/zeros [1]))))))))

(deftest a-server-has-a-journal
  (let [file (File. (temporary-folder) "journal")
        train (fn [opts]
                (with-open [server (server (assoc opts :journal file))
                            kv (connect server)]
                  (kvstore/init kv "w" (ndarray/zeros [100]))
                  (kvstore/push kv "w" (ndarray/ones [100]))))]
    (train {:journal-mode :order :journal-required true})
    (let [length (.length file)]
      (is (< 100 length 1000))
      (train {})
      (is (< (+ length 800) (.length file))))))

(deftest a-server-continues-from-its-recovery-point
  (let [folder (File. (temporary-folder) "points")
        rewound (promise)
        address (with-open [server (server {:recovery folder :save-every 0.05})
                            kv (connect server)]
                  (kvstore/init kv "w" (ndarray/zeros [2]))
                  (kvstore/push kv "w" (ndarray/ones [2]))
                  (kvstore-server/address server))
        continue #(kvstore-server/start {:address address :recovery folder})
        server ^KVStoreServer (continue)]
    (with-open [kv (kvstore/create "dist_async" {:servers address})]
      (is (= [1.0 1.0] (ndarray/->vec (kvstore/pull kv "w"))))
      (kvstore/on-rewind kv #(deliver rewound %))
      (.close server)
      (with-open [_server ^KVStoreServer (continue)]
        (is (= {:server address :version 1} (deref rewound 20000 :late)))
        (is (= 1 (kvstore/version kv "w")))))
    (is (= "Invalid function" (:start (failure (kvstore/on-rewind (kvstore/create) 1)))))
    (is (= :unsupported (code (kvstore/on-rewind (kvstore/create) identity))))))

(deftest wrong-options-are-rejected
  (testing "of stores"
    (doseq [[opts start] {{:staleness -1} "Invalid staleness"
                          {:timeout 0} "Invalid timeout"
                          {:servers []} "Invalid servers"
                          {:reader "yes"} "Invalid reader"
                          {:insecure 1} "Invalid insecure"
                          {:certificates 1} "Invalid filename"
                          {:quorum 0} "Invalid quorum"
                          {:quorum 2.0} "Invalid quorum"
                          {:grace -0.5} "Invalid grace: expected a number of seconds, from 0 to 1e9"
                          {:grace "1"} "Invalid grace"
                          {:late :drop} "Invalid late: expected :reject or :next, found :drop"
                          {:weight 0} "Invalid weight: expected a finite number above 0, found 0"
                          {:weight ##NaN} "Invalid weight"
                          {:weight ##Inf} "Invalid weight"
                          {:weight "1"} "Invalid weight"
                          {:coordinator 1} "Invalid coordinator"
                          {:coordinator "etcd://a:1" :servers "b:1"} "Invalid servers"
                          {:coordinator-certificates 1} "Invalid filename"
                          {:stalenes 1} "Unknown option `:stalenes`"}]
      (is (.startsWith (str (ex-message (try (kvstore/create "dist_async" opts)
                                             (catch clojure.lang.ExceptionInfo e e))))
                       ^String start)))
    (is (= :invalid-argument (code (kvstore/create "local" {:staleness 1}))))
    (is (= :timeout
           (code (kvstore/create "dist_async" {:servers "127.0.0.1:1" :timeout 0.1})))))
  (testing "of servers"
    (doseq [[opts start] {{:lease 0} "Invalid lease"
                          {:store 1} "Invalid store"
                          {:config 1} "Invalid filename"
                          {:insecure "yes"} "Invalid insecure"
                          {:peer-connections 0} "Invalid peer-connections"
                          {:peer-bytes 0.5} "Invalid peer-bytes"
                          {:keys 0} "Invalid keys"
                          {:journal 1} "Invalid filename"
                          {:recovery 1} "Invalid filename"
                          {:save-every 0} "Invalid save-every"
                          {:journal-mode 1} "Invalid journal-mode"
                          {:journal-required 1} "Invalid journal-required"
                          {:coordinator 1} "Invalid coordinator"
                          {:coordinator-certificates 1} "Invalid filename"
                          {:server-index -1} "Invalid server-index"
                          {:num-servers 0} "Invalid num-servers"
                          {:advertise 1} "Invalid advertise"
                          {:updater :w} "Invalid updater"}]
      (is (= start (:start (failure (server opts))))))
    (is (re-find #"Unknown option `:key`" (:message (failure (server {:key 1})))))
    (is (nil? (kvstore-server/stop (server {:store nil :keys nil :insecure nil}))))
    (is (= :invalid-argument (code (server {:store "remote"}))))
    (is (= :invalid-argument (code (server {:journal-required true}))))
    (is (= :invalid-argument (code (server {:server-index 0}))))
    (is (= :invalid-argument (code (server {:coordinator "127.0.0.1:2379"}))))
    (is (= :invalid-argument
           (code (server {:coordinator "etcd://127.0.0.1:1" :server-index 2 :num-servers 2}))))
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

(defn- join-job
  "Joins a job of one server and one worker, with a store of a type and these options of stores and
  servers."
  [store-type opts ^ServerOptions server-options]
  (let [port (with-open [socket (ServerSocket. 0)]
               (.getLocalPort socket))
        job (fn [role]
              {"DMLC_ROLE" role "DMLC_PS_ROOT_URI" "127.0.0.1"
               "DMLC_PS_ROOT_PORT" (str port) "DMLC_NUM_SERVER" "1" "DMLC_NUM_WORKER" "1"})
        run (fn [role]
              (future (KVStoreServer/runLaunched (job role) server-options
                                                 (reify Consumer (accept [_ _])))))
        processes (mapv run ["scheduler" "server"])]
    (kvstore-server/init (job "worker"))
    (try
      (with-open [kv (kvstore/create store-type (merge {:timeout 30} opts))]
        (kvstore/init kv "w" (ndarray/zeros [1]))
        (kvstore/push kv "w" (ndarray/ones [1]))
        (kvstore/init kv "w" (ndarray/zeros [1]))
        (is (= [1.0] (ndarray/->vec (kvstore/pull kv "w")))))
      (finally
        (kvstore-server/init {})))
    (doseq [process processes]
      (is (nil? (deref process 30000 :running))))))

(deftest a-worker-joins-the-job-of-init
  (join-job "dist_async" {} (ServerOptions/defaults)))

(deftest a-worker-of-rounds-joins-the-job-of-init
  (join-job :Dist_Quorum {:quorum 1 :grace 60} (ServerOptions/defaults)))

(deftest a-worker-joins-a-job-with-certificates
  (join-job "dist_async"
            {:certificates (certificates "worker")}
            (.certificates (ServerOptions/defaults) (.toPath (certificates "server")))))
