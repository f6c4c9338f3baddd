(ns org.apache.clojure-mxnet.kvstore-test
  (:require [clojure.test :refer [deftest is testing]]
            [dev.kvstore.failures :refer [code failure]]
            [org.apache.clojure-mxnet.context :as context]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray]
            [org.apache.clojure-mxnet.optimizer :as optimizer]))

(set! *warn-on-reflection* true)

(defn- with-key
  "Returns a new store with zeros [2 2] for the key \"w\"."
  ^dev.kvstore.KVStore []
  (kvstore/init (kvstore/create) "w" (ndarray/zeros [2 2])))

(defn- filled [value] (ndarray/full [2 2] value))

(defn- stored [kv k] (ndarray/->vec (kvstore/pull kv k)))

(defn- all [value] (vec (repeat 4 value)))

(deftest init-and-pull
  (let [kv (kvstore/create "local")
        out (ndarray/zeros [2 1])]
    (is (identical? kv (-> kv (kvstore/init "3" (ndarray/ones [2 1])) (kvstore/pull "3" out))))
    (is (= [1.0 1.0] (ndarray/->vec out)))))

(deftest push-and-pull
  (let [kv (with-key)
        out (filled 0)]
    (is (identical? kv (kvstore/push kv "w" (filled 4))))
    (is (identical? kv (kvstore/pull kv "w" out)))
    (is (= (all 4.0) (ndarray/->vec out)))
    (testing "with a priority"
      (is (identical? kv (-> kv (kvstore/push "w" (filled 5) 3) (kvstore/pull "w" out -3))))
      (is (= (all 5.0) (ndarray/->vec out))))))

(deftest aggregation-over-devices
  (let [kv (kvstore/create)
        devices (mapv context/cpu (range 4))
        on-each (fn [value] (mapv #(ndarray/full [4 4] value {:ctx %}) devices))
        ks ["b" "c" "d"]]
    (kvstore/init kv "a" (ndarray/zeros [4 4]))
    (kvstore/init kv ks (repeatedly 3 #(ndarray/zeros [4 4])))
    (testing "one key"
      (let [values (on-each 1)]
        (-> kv (kvstore/push "a" values) (kvstore/pull "a" values))
        (is (every? #{4.0} (mapcat ndarray/->double-vec values)))))
    (testing "several keys"
      (let [values (vec (repeatedly 3 #(on-each 2)))]
        (-> kv (kvstore/push ks values) (kvstore/pull ks values))
        (is (every? #{8.0} (mapcat ndarray/->double-vec (apply concat values))))))))

(deftest type-rank-and-workers
  (with-open [kv (kvstore/create "local")]
    (is (= "local" (kvstore/type kv)))
    (is (= 1 (kvstore/num-workers kv)))
    (is (= 0 (kvstore/rank kv)))
    (is (= 0 (kvstore/num-dead-node kv 4))))
  (is (= "local" (kvstore/type (kvstore/create))))
  (is (= "device" (kvstore/type (kvstore/create :device))))
  (is (= "local_update_cpu" (kvstore/type (kvstore/create "LOCAL_UPDATE_CPU")))))

(deftest calls-to-other-workers-return-the-store
  (let [kv (kvstore/create)]
    (is (identical? kv (kvstore/barrier kv)))
    (is (identical? kv (kvstore/set-barrier-before-exit kv false)))
    (is (identical? kv (kvstore/send-command-to-servers kv 7 "hello")))))

(deftest keys-are-strings-keywords-and-symbols
  (let [kv (kvstore/create)]
    (kvstore/init kv [:a 'b "c" ""] (mapv filled [1 2 3 4]))
    (is (= ["a" "b" "c" ""] (kvstore/keys kv)))
    (is (= [(all 1.0) (all 2.0) (all 3.0) (all 4.0)]
           (map #(stored kv %) ["a" :b 'c (keyword "")])))
    (is (= (all 1.0) (stored kv :some.namespace/a)))
    (is (kvstore/contains? kv :a))
    (is (not (kvstore/contains? kv "d")))))

(deftest any-sequential-is-a-list
  (let [kv (kvstore/init (kvstore/create) (list "a" "b") (map filled [1 2]))]
    (kvstore/push kv (map str "ab") (list (filled 5) (map filled [1 1])))
    (is (= [(all 5.0) (all 2.0)] (map ndarray/->vec (kvstore/pull kv (seq ["a" "b"])))))))

(deftest a-map-is-keys-and-values
  (let [kv (kvstore/create)
        a (filled 0)
        b (filled 0)]
    (is (identical? kv (kvstore/init kv {:a (filled 1) "b" (filled 2)})))
    (is (identical? kv (kvstore/push kv {:a [(filled 1) (filled 2)]})))
    (is (identical? kv (kvstore/pull kv {:a a "b" [b]})))
    (is (= [(all 3.0) (all 2.0)] (map ndarray/->vec [a b])))
    (is (identical? kv (kvstore/pushpull kv {:a [a a]})))
    (is (= (all 6.0) (ndarray/->vec a)))
    (is (identical? kv (kvstore/push kv {})))
    (is (= "Invalid keys" (:start (failure (kvstore/push kv "a")))))
    (is (= "Invalid keys" (:start (failure (kvstore/push kv {1 a})))))
    (is (= "Invalid values" (:start (failure (kvstore/push kv {:a 1})))))))

(deftest a-repeated-key-sums-and-receives
  (let [kv (with-key)
        outs (repeatedly 3 #(filled 0))]
    (kvstore/push kv ["w" "w" "w"] [(filled 1) (filled 2) (filled 4)])
    (kvstore/pull kv ["w" "w" "w"] outs)
    (is (= (repeat 3 (all 7.0)) (map ndarray/->vec outs)))))

(deftest one-array-given-three-times
  (let [kv (with-key)
        a (filled 1)]
    (kvstore/init kv ["x" "y"] [a a])
    (testing "as values and outs of one key"
      (kvstore/push kv ["w" "w" "w"] [a a a])
      (kvstore/pull kv "w" [a a a])
      (is (= (all 3.0) (ndarray/->vec a))))
    (testing "for three keys"
      (kvstore/push kv ["w" "x" "y"] [a a a])
      (is (= [(all 3.0) (all 3.0) (all 3.0)] (map ndarray/->vec (kvstore/pull kv ["w" "x" "y"]))))
      (kvstore/push kv "y" (filled 9))
      (kvstore/pull kv ["y" "x" "w"] [a a a])
      (is (= (all 9.0) (ndarray/->vec a)) "the key that was put in last is pulled last"))
    (testing "as value and out of one call"
      (kvstore/pushpull kv "w" [a a] [a])
      (is (= (all 18.0) (ndarray/->vec a))))))

(deftest pull-without-outs-returns-new-arrays
  (let [kv (kvstore/init (kvstore/create) ["a" "b"] [(filled 1) (filled 2)])]
    (is (= (all 1.0) (ndarray/->vec (kvstore/pull kv "a"))))
    (is (= [(all 2.0) (all 1.0)] (mapv ndarray/->vec (kvstore/pull kv ["b" "a"]))))
    (is (= [] (kvstore/pull kv [])))
    (is (= :key-not-found (code (kvstore/pull kv "c"))))))

(deftest pushpull-and-broadcast
  (let [kv (kvstore/create)
        outs (repeatedly 2 #(filled 0))
        values [(filled 1) (filled 2)]]
    (is (identical? kv (kvstore/broadcast kv "w" (filled 5) outs)))
    (is (= [(all 5.0) (all 5.0)] (map ndarray/->vec outs)))
    (is (= :key-exists (code (kvstore/broadcast kv "w" (filled 6) outs))))
    (is (identical? kv (kvstore/pushpull kv "w" values outs)))
    (is (= [(all 3.0) (all 3.0)] (map ndarray/->vec outs)))
    (kvstore/pushpull kv "w" values)
    (is (= [(all 3.0) (all 3.0)] (map ndarray/->vec values)))
    (is (= "Invalid priority" (:start (failure (kvstore/pushpull kv "w" values outs 0.5)))))))

(deftest keys-and-remove
  (let [kv (kvstore/init (kvstore/create) ["b" "a" "c"] (repeatedly 3 #(filled 1)))]
    (is (= ["b" "a" "c"] (kvstore/keys kv)))
    (is (identical? kv (kvstore/remove kv "a")))
    (is (= ["b" "c"] (kvstore/keys kv)))
    (is (= :key-not-found (code (kvstore/remove kv ["b" "a"]))))
    (is (= ["b" "c"] (kvstore/keys kv)) "nothing changed")
    (kvstore/remove kv [:b :c])
    (is (= [] (kvstore/keys kv)))
    (kvstore/init kv "a" (filled 7))
    (is (= (all 7.0) (stored kv "a")))))

(deftest empty-lists-do-nothing
  (let [kv (with-key)]
    (is (identical? kv (kvstore/init kv [] [])))
    (is (identical? kv (kvstore/push kv [] [])))
    (is (identical? kv (kvstore/pull kv [] [])))
    (is (identical? kv (kvstore/push kv "w" [])))
    (is (= (all 0.0) (stored kv "w")))))

(deftest values-are-copies
  (let [kv (kvstore/create)
        a (filled 1)]
    (kvstore/init kv "w" a)
    (ndarray/set a 9)
    (is (= (all 1.0) (stored kv "w")))
    (kvstore/push kv "w" a)
    (ndarray/set a 7)
    (is (= (all 9.0) (stored kv "w")))
    (let [pulled (kvstore/pull kv "w")]
      (ndarray/set pulled 5)
      (is (= (all 9.0) (stored kv "w"))))))

(deftest nan-and-infinity-are-kept
  (let [kv (with-key)]
    (kvstore/push kv "w" [(ndarray/array [##NaN ##Inf ##-Inf 1] [2 2]) (filled 1)])
    (let [[a b c d] (stored kv "w")]
      (is (Float/isNaN a))
      (is (= [##Inf ##-Inf 2.0] [b c d])))))

(deftest pull-converts-the-dtype
  (let [kv (kvstore/init (kvstore/create) "w" (ndarray/array [1.5 -1.5] [2]))
        out (ndarray/zeros [2] {:dtype :int32 :ctx (context/cpu 1)})]
    (kvstore/pull kv "w" out)
    (is (= [1 -1] (ndarray/->int-vec out)))
    (is (= "int32" (str (ndarray/dtype out))))
    (is (= (context/cpu 1) (ndarray/context out)))))

(deftest an-optimizer-runs-on-the-store
  (let [kv (kvstore/init (kvstore/create) "w" (ndarray/ones [2]))]
    (is (identical? kv (kvstore/set-optimizer kv (optimizer/sgd {:learning-rate 0.5 :wd 0}))))
    (kvstore/push kv "w" [(ndarray/ones [2]) (ndarray/ones [2])])
    (is (= [0.0 0.0] (stored kv "w")))
    (testing "after the updater is removed"
      (kvstore/set-updater kv nil)
      (kvstore/push kv "w" (ndarray/full [2] 8))
      (is (= [8.0 8.0] (stored kv "w"))))
    (is (= "Invalid optimizer" (:start (failure (kvstore/set-optimizer kv :sgd)))))))

(deftest the-doctor-reports
  (let [report (kvstore/doctor)]
    (is (every? keyword? (keys report)))
    (is (every? string? (vals report)))
    (is (string? (:platform report)))
    (is (string? (:arrays-held-by-java report)))
    (is (string? (:native-memory-in-use report)))
    (testing "each fact once"
      (is (not-any? report [:live-bytes :pooled-bytes])))))

(deftest existing-keys
  (let [kv (-> (kvstore/create)
               (kvstore/init ["a" "b"] [(ndarray/ones [2]) (ndarray/ones [2])])
               (kvstore/set-optimizer (optimizer/sgd {:learning-rate 1 :wd 0 :momentum 0.5})))
        values #(mapv (comp vec ndarray/->vec) (kvstore/pull kv %))]
    (kvstore/push kv "b" (ndarray/ones [2]))
    (is (= :key-exists (code (kvstore/init kv ["c" "a"] [(ndarray/ones [1]) (ndarray/ones [1])]))))
    (is (not (kvstore/contains? kv "c")))
    (kvstore/init kv ["c" "a"] [(ndarray/ones [1]) (ndarray/zeros [3])] {:on-existing :keep})
    (kvstore/init kv {:a (ndarray/zeros [3])} {:on-existing :keep})
    (is (= [[1.0 1.0] [1.0]] (values ["a" "c"])))
    (kvstore/init kv ["b" "d"] [(ndarray/ones [1]) (ndarray/zeros [1])] {:on-existing :replace})
    (is (= ["a" "c" "b" "d"] (kvstore/keys kv)) "as if it had been removed")
    (kvstore/push kv "b" (ndarray/ones [1]))
    (is (= [[0.0]] (values ["b"])) "its momentum is gone")
    (doseq [on-existing [:reject :keep :replace]]
      (is (= :key-exists
             (code (kvstore/init kv "e" [(ndarray/ones [1]) (ndarray/ones [1])]
                                 {:on-existing on-existing})))))
    (is (= "Invalid on-existing"
           (:start (failure (kvstore/init kv "e" (ndarray/ones [1]) {:on-existing 1})))))
    (is (= :invalid-argument (code (kvstore/init kv "e" (ndarray/ones [1]) {:exists :keep}))))))

(deftest maps-replace-keys-and-values
  (let [kv (kvstore/create)
        ones #(ndarray/ones [2])
        [a b c] (repeatedly ones)
        values #(mapv ndarray/->vec (kvstore/pull kv ["a" "b"]))]
    (kvstore/broadcast kv {:a (ones) "b" (ones)} {"a" [a b] "b" c})
    (kvstore/push kv {"a" [(ones) (ones)] 'b (ones)} 1)
    (is (= [[2.0 2.0] [1.0 1.0]] (values)))
    (kvstore/pull kv {"a" a} -1)
    (is (= [2.0 2.0] (ndarray/->vec a)))
    (kvstore/pushpull kv {"a" [a a] "b" b} {"a" c})
    (is (= [4.0 4.0] (ndarray/->vec c)))
    (kvstore/pushpull kv {"b" [c c]})
    (is (= [8.0 8.0] (ndarray/->vec c)))
    (kvstore/pushpull kv {"b" [c c]} 1)
    (is (= [16.0 16.0] (ndarray/->vec c)))
    (kvstore/pushpull kv {"b" (ones)} {"b" c} -1)
    (is (= [1.0 1.0] (ndarray/->vec c)))
    (is (= "Invalid priority" (:start (failure (kvstore/pushpull kv {"a" a} {"a" a} 1.5)))))
    (is (= "Invalid priority" (:start (failure (kvstore/pushpull kv {"a" a} nil)))))
    (is (= "Invalid priority" (:start (failure (kvstore/push kv {"a" a} 1.5)))))
    (is (= "Invalid priority" (:start (failure (kvstore/pull kv {"a" a} a)))))
    (is (= "Invalid outs" (:start (failure (kvstore/pushpull kv {"a" a} {"a" 1})))))
    (is (= "Invalid keys" (:start (failure (kvstore/broadcast kv {"c" a} a)))))
    (is (not (kvstore/contains? kv "c")))))
