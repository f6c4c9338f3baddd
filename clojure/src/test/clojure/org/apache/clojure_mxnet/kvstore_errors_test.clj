(ns org.apache.clojure-mxnet.kvstore-errors-test
  "Tests that every invalid call throws an exception with a code and values, prints nothing and
  leaves a usable store."
  (:require [clojure.string :as string]
            [clojure.test :refer [deftest is testing]]
            [dev.kvstore.failures :refer [code failure]]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray]
            [org.apache.clojure-mxnet.optimizer :as optimizer])
  (:import (dev.kvstore KVStoreException NDArray)
           (java.io StringWriter)
           (java.util Locale)))

(set! *warn-on-reflection* true)

(defn- store
  ^dev.kvstore.KVStore []
  (kvstore/init (kvstore/create) "w" (ndarray/ones [2])))

(defn- works?
  "Returns whether the `kv` that `store` created still has its value and accepts a push."
  [kv]
  (and (= [1.0 1.0] (ndarray/->vec (kvstore/pull kv "w")))
       (= [2.0 2.0] (-> kv
                        (kvstore/push "w" (ndarray/full [2] 2))
                        (kvstore/pull "w")
                        ndarray/->vec))))

(defn- invalid?
  "Returns whether `failed` has the `message` and the offending `value`, and its text contains what
  was found."
  [failed message value]
  (and (= [:invalid-argument value]
          ((juxt :kvstore/code :kvstore/value) failed))
       (string/starts-with? (:message failed) message)
       (re-find #"(?s): expected .*, found |: two with the name `" (:message failed))))

(deftest one-invalid-value-among-many
  (let [kv (kvstore/create)
        ks (mapv #(str "w" %) (range 640))
        ones (vec (repeat 640 (ndarray/ones [1])))]
    (kvstore/init kv ks ones)
    (testing "an array for each key"
      (let [failed (failure (kvstore/push kv ks (assoc ones 637 nil)))]
        (is (= (str "Invalid values: expected an NDArray or RowSparse at position 637 "
                    "for key `w637`, found nil")
               (:message failed)))
        (is (= {:kvstore/code :invalid-argument :kvstore/key "w637" :kvstore/position 637
                :kvstore/expected "an NDArray or RowSparse" :kvstore/found "nil"}
               (dissoc failed :message :start :cause :kvstore/value)))))
    (testing "a list of arrays for each key"
      (let [failed (failure (kvstore/push kv ks (assoc (mapv vector ones) 638 [(ones 0) :x])))]
        (is (= ["w638" [638 1] ":x (clojure.lang.Keyword)"]
               ((juxt :kvstore/key :kvstore/position :kvstore/found) failed)))))
    (testing "a list of arrays for one key, and a map"
      (is (= ["w0" 1]
             ((juxt :kvstore/key :kvstore/position)
              (failure (kvstore/push kv "w0" [(ones 0) nil])))))
      (is (= ["Invalid outs: expected an NDArray for key `w7`, found 5 (java.lang.Long)" nil]
             ((juxt :message :kvstore/position)
              (failure (kvstore/pull kv (assoc (zipmap ks ones) "w7" 5))))))
      (is (= 1 (:kvstore/position (failure (kvstore/push kv {"w0" [(ones 0) nil]}))))
          "in the list of that key")
      (is (= "w0"
             (:kvstore/key
              (failure (kvstore/pull kv "w0" (ndarray/row-sparse-array (ones 0) [0] [1])))))))
    (testing "values that are outs, too"
      (let [rows (ndarray/row-sparse-array (ones 0) [0] [1])
            failed (failure (kvstore/pushpull kv {"w0" [(ones 0) (ones 1)] "w1" [rows]}))]
        (is (= ["w1" nil] ((juxt :kvstore/key :kvstore/position) failed)))
        (is (string/starts-with? (:message failed)
                                 "Invalid outs: expected an NDArray for key `w1`, found "))))
    (testing "keys"
      (is (= (str "Invalid keys: expected a string, keyword or symbol at position 3, "
                  "found 3.5 (java.lang.Double)")
             (:message (failure (kvstore/push kv (assoc ks 3 3.5) ones))))))
    (testing "an optimizer for weights that it cannot step"
      (kvstore/init kv "i" (ndarray/ones [1] {:dtype :int32}))
      (kvstore/set-optimizer kv (optimizer/sgd))
      (is (= "key `i`: an optimizer needs floating-point weights, not i32"
             (:message (failure (kvstore/push kv
                                              (conj ks "i")
                                              (conj ones (ndarray/ones [1] {:dtype :int32}))))))))
    (testing "found values are truncated, and may fail to print"
      (is (> 300 (count (:message (failure (kvstore/push kv "w0" (vec (range 1000))))))))
      (is (> 300
             (count (:message (failure (kvstore/push kv "w0" (apply str (repeat 100000 "x"))))))))
      (is (= "Invalid keys" (:start (failure (kvstore/pull kv (map #(/ 1 %) [1])))))))))

(deftest lengths-name-the-dtype-of-the-array
  (doseq [source [[1 2 3] [1.0 2.0 3.0] (int-array 3) (byte-array 3)
                  (java.nio.FloatBuffer/allocate 3)]
          [dtype shape] [[:float32 [2 2]] [:int8 [2]]]
          f [#(ndarray/array source shape {:dtype dtype})
             #(ndarray/set (ndarray/zeros shape {:dtype dtype}) source)]]
    (is (= [(str "elements for " (name dtype) " " (ndarray/shape (ndarray/zeros shape)))
            :length-mismatch "3"]
           ((juxt :start :kvstore/code :kvstore/found) (failure (f)))))))

(deftest lists-of-every-type
  (let [arrays (mapv #(ndarray/full [1] %) [1 2])
        expected [[1.0] [2.0]]]
    (doseq [as-list [identity
                     seq
                     #(map identity %)
                     #(eduction (map identity) %)
                     #(java.util.ArrayList. ^java.util.Collection %)
                     #(java.util.ArrayDeque. ^java.util.Collection %)
                     #(.values (java.util.TreeMap. ^java.util.Map (zipmap (range) %)))
                     object-array]]
      (let [kv (kvstore/init (kvstore/create) (as-list ["a" "b"]) (as-list arrays))
            pulled #(mapv ndarray/->vec (kvstore/pull kv (as-list ["a" "b"])))
            outs [(ndarray/zeros [1]) (ndarray/zeros [1])]]
        (is (= expected (pulled)))
        (kvstore/push kv (as-list ["a" "b"]) (as-list (mapv #(as-list [% %]) arrays)))
        (is (= [[2.0] [4.0]] (pulled)))
        (kvstore/push kv "a" (as-list arrays))
        (kvstore/pull kv (as-list ["a" "b"]) (as-list outs))
        (is (= [[3.0] [4.0]] (map ndarray/->vec outs)))
        (is (= [[0] [0]]
               (map ndarray/row-indices
                    (kvstore/row-sparse-pull kv
                                             (as-list ["a" "b"])
                                             (as-list [(as-list [0]) [0]])))))
        (kvstore/remove kv (as-list ["a" "b"]))
        (is (= [] (kvstore/keys kv))))
      (is (= [1.0 2.0] (ndarray/->vec (ndarray/concatenate (as-list arrays)))))
      (is (= [[1.0 2.0] [3.0 4.0]]
             (ndarray/->nd-vec (ndarray/->ndarray (as-list [(as-list [1 2]) [3 4]])))))
      (is (= [2 1]
             (ndarray/shape-vec (ndarray/reshape (ndarray/array (as-list [1 2]) (as-list [2]))
                                                 (as-list [2 1]))))))
    (testing "Java arrays of other types"
      (let [kv (kvstore/init (kvstore/create)
                             (into-array String ["a" "b"])
                             (into-array NDArray arrays))]
        (is (= expected (mapv ndarray/->vec (kvstore/pull kv (into-array Object ["a" "b"])))))))
    (testing "unordered collections are not lists"
      (doseq [unordered [#{"a"} {"a" 1} (java.util.HashSet. ["a"]) (java.util.HashMap. {"a" 1})]]
        (is (= "Invalid keys" (:start (failure (kvstore/remove (store) unordered)))))))))

(deftest updaters-are-functions
  (let [kv (store)]
    (doseq [wrong [:foo 'foo {:a 1} #{1} [1] '(1) "f" 5 (transient []) (promise)]]
      (let [failed (failure (kvstore/set-updater kv wrong))]
        (is (= ["Invalid updater" :invalid-argument] ((juxt :start :kvstore/code) failed)))))
    (is (works? kv) "no updater was set")
    (defmulti ^:private by-key (fn [k _ _] k))
    (defmethod by-key "w" [_ pushed stored] (ndarray/set stored pushed))
    (doseq [f [nil by-key #'by-key (fn [_ pushed stored] (ndarray/set stored pushed))
               (partial (fn [_ _ pushed stored] (ndarray/set stored pushed)) 1)
               (reify clojure.lang.IFn (invoke [_ _ pushed stored] (ndarray/set stored pushed)))]]
      (let [kv (kvstore/set-updater (store) f)]
        (is (works? kv))))))

(deftest invalid-keys
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

(deftest invalid-values-and-outs
  (let [kv (store)]
    (doseq [vs [1 nil "x" [1] [nil] {"w" 1} [[1.0]]]]
      (is (invalid? (failure (kvstore/init kv "v" vs)) "Invalid values" vs))
      (is (invalid? (failure (kvstore/push kv "w" vs)) "Invalid values" vs))
      (is (invalid? (failure (kvstore/push kv ["w"] vs)) "Invalid values" vs))
      (is (invalid? (failure (kvstore/pull kv "w" vs)) "Invalid outs" vs))
      (is (invalid? (failure (kvstore/broadcast kv "v" (ndarray/ones [2]) vs)) "Invalid outs" vs)))
    (is (works? kv))))

(deftest invalid-priorities
  (let [kv (store)
        a (ndarray/ones [2])]
    (doseq [priority [1.5 nil "1" 2147483648 1N]]
      (is (invalid? (failure (kvstore/push kv "w" a priority)) "Invalid priority" priority))
      (is (invalid? (failure (kvstore/pull kv "w" a priority)) "Invalid priority" priority)))
    (is (works? kv))))

(deftest other-invalid-arguments
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
             (dissoc (failure (f)) :message :start :cause))))
    (is (= :length-mismatch (code (kvstore/push kv ["w"] [[a] [a]]))))
    (is (= :length-mismatch (code (kvstore/push kv [] [a]))))
    (is (string/starts-with? (:message (failure (kvstore/init kv ["a" "b"] [a])))
                             "len(keys) != len(values)"))
    (is (works? kv))))

(deftest existing-and-missing-keys
  (let [kv (store)
        a (ndarray/ones [2])]
    (testing "init of an existing key"
      (is (= [:key-exists "w"]
             ((juxt :kvstore/code :kvstore/key) (failure (kvstore/init kv "w" a)))))
      (is (= :key-exists (code (kvstore/init kv ["x" "w"] [a a]))))
      (is (= :key-exists (code (kvstore/init kv ["x" "x"] [a a]))))
      (is (= :key-exists (code (kvstore/init kv "x" [a a])))))
    (testing "operations on a missing key"
      (is (= :key-not-found (code (kvstore/pull kv ["w" "x"] [a a]))))
      (is (= [:key-not-found "x"]
             ((juxt :kvstore/code :kvstore/key) (failure (kvstore/push kv ["w" "x"] [a a]))))))
    (is (= ["w"] (kvstore/keys kv)) "no call left a trace")
    (is (works? kv))
    (is (identical? kv (kvstore/init kv "x" a)) "the key can still be put in")))

(deftest mismatching-shapes-and-dtypes
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

(deftest unknown-store-types
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
