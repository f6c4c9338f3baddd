(ns org.apache.clojure-mxnet.kvstore-errors-test
  "Every mistake is an exception with its code and values, prints nothing and leaves a store that works."
  (:require [clojure.string :as string]
            [clojure.test :refer [deftest is testing]]
            [dev.kvstore.failures :refer [code failure]]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray])
  (:import (dev.kvstore KVStoreException)
           (java.io StringWriter)
           (java.util Locale)))

(set! *warn-on-reflection* true)

(defn- store
  ^dev.kvstore.KVStore []
  (kvstore/init (kvstore/create) "w" (ndarray/ones [2])))

(defn- works?
  "Does the `kv` that `store` made still hold its value and take another?"
  [kv]
  (and (= [1.0 1.0] (ndarray/->vec (kvstore/pull kv "w")))
       (= [2.0 2.0] (-> kv
                        (kvstore/push "w" (ndarray/full [2] 2))
                        (kvstore/pull "w")
                        ndarray/->vec))))

(defn- invalid?
  "Is `failed` the mistake `message` with the offending `value`?"
  [failed message value]
  (= [message :invalid-argument value]
     ((juxt :message :kvstore/code :kvstore/value) failed)))

(deftest bad-keys
  (let [kv (store)
        a (ndarray/ones [2])]
    (doseq [ks [3 nil 1.5 \w ["w" 3] [nil] #{"w"} [["w"]]]]
      (is (invalid? (failure (kvstore/init kv ks a)) "Invalid keys" ks))
      (is (invalid? (failure (kvstore/push kv ks a)) "Invalid keys" ks))
      (is (invalid? (failure (kvstore/pull kv ks a)) "Invalid keys" ks))
      (is (invalid? (failure (kvstore/pull kv ks)) "Invalid keys" ks))
      (is (invalid? (failure (kvstore/remove kv ks)) "Invalid keys" ks))
      (is (invalid? (failure (kvstore/contains? kv ks)) "Invalid keys" ks)))
    (is (= :invalid-argument (code (kvstore/init kv "a\u0000b" a))))
    (is (works? kv))))

(deftest two-keys-of-a-map-with-one-name
  (let [kv (store)
        a (ndarray/ones [2])
        m (array-map :x/w a :y/v a :y/w a)]
    (doseq [f [#(kvstore/init kv m)
               #(kvstore/push kv m)
               #(kvstore/pull kv m)
               #(kvstore/pushpull kv m)
               #(kvstore/pushpull kv {"w" a} m)
               #(kvstore/broadcast kv m {"w" a})]]
      (is (invalid? (failure (f)) "Invalid keys: two with the name `w`" [:x/w :y/w])))
    (is (works? kv))))

(deftest bad-values-and-outs
  (let [kv (store)]
    (doseq [vs [1 nil "x" [1] [nil] {"w" 1} [[1.0]]]]
      (is (invalid? (failure (kvstore/init kv "v" vs)) "Invalid values" vs))
      (is (invalid? (failure (kvstore/push kv "w" vs)) "Invalid values" vs))
      (is (invalid? (failure (kvstore/push kv ["w"] vs)) "Invalid values" vs))
      (is (invalid? (failure (kvstore/pull kv "w" vs)) "Invalid outs" vs))
      (is (invalid? (failure (kvstore/broadcast kv "v" (ndarray/ones [2]) vs)) "Invalid outs" vs)))
    (is (works? kv))))

(deftest bad-priorities
  (let [kv (store)
        a (ndarray/ones [2])]
    (doseq [priority [1.5 nil "1" 2147483648 1N]]
      (is (invalid? (failure (kvstore/push kv "w" a priority)) "Invalid priority" priority))
      (is (invalid? (failure (kvstore/pull kv "w" a priority)) "Invalid priority" priority)))
    (is (works? kv))))

(deftest bad-other-arguments
  (let [kv (store)]
    (is (invalid? (failure (kvstore/send-command-to-servers kv "7" "b")) "Invalid head" "7"))
    (is (invalid? (failure (kvstore/send-command-to-servers kv 7 nil)) "Invalid body" nil))
    (is (invalid? (failure (kvstore/save-optimizer-states kv 5)) "Invalid filename" 5))
    (is (invalid? (failure (kvstore/load-optimizer-states kv nil)) "Invalid filename" nil))
    (is (invalid? (failure (kvstore/set-barrier-before-exit kv 1)) "Invalid barrier-before-exit" 1))
    (is (invalid? (failure (kvstore/num-dead-node kv "4")) "Invalid node-id" "4"))
    (is (invalid? (failure (kvstore/set-updater kv "f")) "Invalid updater" "f"))
    (is (invalid? (failure (kvstore/create 5)) "Invalid name" 5))
    (is (works? kv))))

(deftest different-lengths
  (let [kv (store)
        a (ndarray/ones [2])]
    (doseq [f [#(kvstore/init kv ["a" "b"] [a])
               #(kvstore/push kv ["w" "w"] [a])
               #(kvstore/pull kv ["w" "w"] [a])
               #(kvstore/push kv ["w" "w"] a)]]
      (is (= {:kvstore/code :length-mismatch :kvstore/expected "2" :kvstore/found "1"}
             (dissoc (failure (f)) :message :cause))))
    (is (= :length-mismatch (code (kvstore/push kv ["w"] [[a] [a]]))))
    (is (= :length-mismatch (code (kvstore/push kv [] [a]))))
    (is (string/starts-with? (:message (failure (kvstore/init kv ["a" "b"] [a])))
                             "len(keys) != len(values)"))
    (is (works? kv))))

(deftest keys-that-are-there-or-not
  (let [kv (store)
        a (ndarray/ones [2])]
    (testing "init of a key that is there"
      (is (= [:key-exists "w"] ((juxt :kvstore/code :kvstore/key) (failure (kvstore/init kv "w" a)))))
      (is (= :key-exists (code (kvstore/init kv ["x" "w"] [a a]))))
      (is (= :key-exists (code (kvstore/init kv ["x" "x"] [a a]))))
      (is (= :key-exists (code (kvstore/init kv "x" [a a])))))
    (testing "verbs on a key that is not there"
      (is (= :key-not-found (code (kvstore/pull kv ["w" "x"] [a a]))))
      (is (= [:key-not-found "x"]
             ((juxt :kvstore/code :kvstore/key) (failure (kvstore/push kv ["w" "x"] [a a]))))))
    (is (= ["w"] (kvstore/keys kv)) "no call left a trace")
    (is (works? kv))
    (is (identical? kv (kvstore/init kv "x" a)) "the key can still be put in")))

(deftest shapes-and-dtypes-that-do-not-fit
  (let [kv (store)]
    (let [failed (failure (kvstore/push kv "w" (ndarray/ones [3])))]
      (is (= [:spec-mismatch "w"] ((juxt :kvstore/code :kvstore/key) failed)))
      (is (string/includes? (:kvstore/expected failed) "2"))
      (is (string/includes? (:kvstore/found failed) "3"))
      (is (instance? KVStoreException (:cause failed)))
      (is (= (:message failed) (ex-message (:cause failed)))))
    (is (= :spec-mismatch (code (kvstore/push kv "w" (ndarray/ones [1 2])))))
    (is (= :spec-mismatch (code (kvstore/push kv "w" (ndarray/ones [2] {:dtype :float64})))))
    (is (= :spec-mismatch (code (kvstore/push kv "w" [(ndarray/ones [2]) (ndarray/ones [3])]))))
    (is (= :spec-mismatch (code (kvstore/pull kv "w" (ndarray/ones [2 1])))))
    (is (= :invalid-argument (code (kvstore/init kv "empty" (ndarray/zeros [0 2])))))
    (is (works? kv))))

(deftest unknown-kinds-of-store
  (let [failed (failure (kvstore/create "locale"))]
    (is (= :invalid-argument (:kvstore/code failed)))
    (doseq [kind ["local" "device" "dist_sync"]]
      (is (string/includes? (:message failed) kind))))
  (is (= :invalid-argument (code (kvstore/create ""))))
  (is (= :unsupported (code (kvstore/create "nccl")))))

(deftest a-disposed-array
  (let [kv (store)
        gone (doto (ndarray/ones [2]) ndarray/dispose)]
    (is (= :closed (code (kvstore/init kv "x" gone))))
    (is (= :closed (code (kvstore/push kv "w" gone))))
    (is (= :closed (code (kvstore/pull kv "w" gone))))
    (is (= :closed (code (kvstore/push kv "w" [(ndarray/ones [2]) gone]))))
    (is (works? kv))))

(deftest a-disposed-store
  (let [kv (store)
        a (ndarray/ones [2])]
    (is (nil? (kvstore/dispose kv)))
    (is (nil? (kvstore/dispose kv)))
    (doseq [use [#(kvstore/init kv "x" a)
                 #(kvstore/push kv "w" a)
                 #(kvstore/push kv [] [])
                 #(kvstore/pull kv "w" a)
                 #(kvstore/pull kv "w")
                 #(kvstore/pushpull kv "w" a)
                 #(kvstore/broadcast kv "x" a a)
                 #(kvstore/keys kv)
                 #(kvstore/contains? kv "w")
                 #(kvstore/remove kv "w")
                 #(kvstore/set-updater kv nil)
                 #(kvstore/barrier kv)
                 #(kvstore/rank kv)
                 #(kvstore/num-workers kv)]]
      (is (= :closed (code (use)))))
    (is (= [1.0 1.0] (ndarray/->vec a)))))

(deftest nothing-is-printed
  (let [kv (store)
        out (StringWriter.)]
    (binding [*out* out
              *err* out]
      (code (kvstore/push kv 5 5))
      (code (kvstore/push kv "w" 5))
      (code (kvstore/push kv "x" (ndarray/ones [2])))
      (code (kvstore/create "nonsense")))
    (is (= "" (str out)))))

(deftest codes-are-the-same-in-every-language
  (let [usual (Locale/getDefault)]
    (try
      (Locale/setDefault (Locale. "tr" "TR"))
      (is (= :invalid-argument (code (kvstore/create "nothing"))))
      (is (every? #(re-matches #"[a-z0-9-]+" (name %)) (keys (kvstore/doctor))))
      (finally (Locale/setDefault usual)))))
