(ns dev.kvstore.impl.datafy-test
  (:require [clojure.datafy :refer [datafy nav]]
            [clojure.test :refer [deftest is]]
            [org.apache.clojure-mxnet.context :as context]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray]
            [org.apache.clojure-mxnet.optimizer :as optimizer]))

(set! *warn-on-reflection* true)

(deftest arrays
  (is (= {:shape [2 2] :dtype :int32 :context "cpu(1)" :bytes 16 :elements [[1 2] [3 4]]}
         (datafy (ndarray/->ndarray [[1 2] [3 4]] {:dtype :int32 :ctx (context/cpu 1)}))))
  (doseq [[dtype x] [[:int32 16777217] [:int64 9007199254740993] [:float64 0.1]]]
    (is (= [x] (:elements (datafy (ndarray/full [1] x {:dtype dtype})))))
    (is (= x (peek (nav (datafy (ndarray/full [2000] x {:dtype dtype})) :elements '...)))))
  (let [data (datafy (ndarray/ones [2000]))]
    (is (= '... (:elements data)))
    (is (= 2000 (count (nav data :elements '...))))
    (is (= 8000 (nav data :bytes 8000))))
  (doseq [size [2 2000]]
    (is (= {:closed true} (datafy (doto (ndarray/ones [size]) ndarray/dispose))))))

(deftest ^:host stores
  (let [kv (kvstore/init (kvstore/create) ["b" "a"] [(ndarray/ones [2]) (ndarray/zeros [3 1])])]
    (kvstore/push kv "a" (ndarray/ones [3 1]))
    (let [data (datafy kv)]
      (is (= ["b" "a"] (keys data)))
      (is (= {:shape [3 1] :dtype :float32 :context "cpu(0)" :bytes 12 :state-bytes 0 :pushes 1}
             (get data "a")))
      (is (= [1.0 1.0] (ndarray/->vec (nav data "b" (get data "b")))))
      (kvstore/dispose kv)
      (is (= {:closed true} (datafy kv)))
      (is (thrown-with-msg? clojure.lang.ExceptionInfo #"closed" (nav data "b" nil))))))

(deftest statistics-of-a-store
  (let [kv (-> (kvstore/create "device")
               (kvstore/init ["w" "b"]
                             [(ndarray/ones [4]) (ndarray/ones [2] {:ctx (context/cpu 3)})])
               (kvstore/set-optimizer (optimizer/adam)))
        ones (ndarray/ones [4])]
    (is (= {:type "device" :bytes 24 :state-bytes 0} (dissoc (kvstore/stats kv) :keys)))
    (kvstore/push kv ["w" "w"] [ones ones])
    (kvstore/push kv "w" ones)
    (is (= {:type "device" :bytes 24 :state-bytes 32} (dissoc (kvstore/stats kv) :keys)))
    (is (= {:shape [4] :dtype :float32 :context "cpu(0)" :bytes 16 :state-bytes 32 :pushes 2}
           (get-in (kvstore/stats kv) [:keys "w"])))
    (is (= ["cpu(3)" 0] ((juxt :context :pushes) (get-in (kvstore/stats kv) [:keys "b"]))))
    (is (thrown-with-msg? clojure.lang.ExceptionInfo #"shape|expected"
                          (kvstore/push kv "w" (ndarray/ones [3]))))
    (is (= 2 (get-in (kvstore/stats kv) [:keys "w" :pushes])) "a call that fails does not count")
    (let [seen (atom nil)]
      (kvstore/set-updater
        kv (fn [_ _ _] (reset! seen (get-in (kvstore/stats kv) [:keys "w" :pushes]))))
      (kvstore/push kv "w" ones)
      (is (= 2 @seen))
      (is (= 3 (get-in (kvstore/stats kv) [:keys "w" :pushes]))))))

(deftest keys-are-in-the-order-of-initialization
  (let [ks (mapv str (range 40 0 -1))
        kv (kvstore/init (kvstore/create) ks (repeat 40 (ndarray/ones [1])))]
    (is (= ks (keys (datafy kv)) (keys (:keys (kvstore/stats kv)))))))

(deftest ^:host statistics-of-memory
  (let [before (kvstore/stats)
        array (ndarray/zeros [1000])
        during (kvstore/stats)]
    (is (= #{:live-bytes :pooled-bytes :soft-cap :open :collected-unclosed :devices}
           (set (keys during))))
    (is (every? nat-int? (vals (dissoc before :devices))))
    (is (= (cons "cpu(0)" (map #(str "gpu(" % ")") (range (context/num-gpus))))
           (keys (:devices during))))
    (is (every? nat-int? (mapcat vals (vals (:devices during)))))
    (is (>= (:live-bytes during) 4000))
    (is (pos? (:open during)))
    (is (= (:soft-cap during) (kvstore/soft-cap)))
    (ndarray/dispose array)))
