(ns org.apache.clojure-mxnet.kvstore-server-test
  (:require [clojure.test :refer [deftest is]]
            [dev.kvstore.failures :refer [code failure]]
            [org.apache.clojure-mxnet.kvstore-server :as kvstore-server]))

(set! *warn-on-reflection* true)

(deftest servers-are-not-supported
  (is (nil? (kvstore-server/init {"DMLC_ROLE" "server"})))
  (is (= "Invalid environment map" (:start (failure (kvstore-server/init {:role "server"})))))
  (is (= :unsupported (code (kvstore-server/start))))
  (is (= :unsupported (code (kvstore-server/start 5))))
  (is (= "Invalid setting" (:start (failure (kvstore-server/start "5"))))))
