(ns org.apache.clojure-mxnet.resource-scope-test
  (:require [clojure.test :refer [deftest is testing]]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray]
            [org.apache.clojure-mxnet.resource-scope :as resource-scope]))

(set! *warn-on-reflection* true)

(defn- disposed
  [& arrays]
  (mapv ndarray/is-disposed arrays))

(deftest temporaries-are-closed-and-the-result-is-not
  (let [made (atom [])
        outside (ndarray/ones [2])
        result (resource-scope/using
                 (let [a (ndarray/ones [2])
                       b (ndarray/+ a outside)]
                   (reset! made [a b])
                   (ndarray/* b b)))]
    (is (= [true true] (apply disposed @made)))
    (is (= [false false] (disposed outside result)))
    (is (= [4.0 4.0] (ndarray/->vec result)))))

(deftest results-in-collections-are-kept
  (let [made (atom [])
        note (fn [a] (swap! made conj a) a)
        result (resource-scope/with-let [a (note (ndarray/ones [1]))
                                         b (note (ndarray/zeros [1]))
                                         c (note (ndarray/full [1] 3))]
                 {:list (list a [b]) :none nil :text "x" 5 #{}}
                 {:deep [[(list a)] {:b b}] "text" 7 c 1})]
    (is (= [false false false] (apply disposed @made)) "keys of maps count")
    (is (map? result)))
  (testing "lazy sequences are realised"
    (let [result (resource-scope/with-do (map #(ndarray/full [1] %) (range 3)))]
      (is (= [[0.0] [1.0] [2.0]] (map ndarray/->vec result)))))
  (testing "only the returned element of a sequence is kept"
    (let [made (atom [])
          kept (resource-scope/using
                 (first (doall (repeatedly
                                 3 #(let [a (ndarray/ones [2])] (swap! made conj a) a)))))]
      (is (= [false true true] (apply disposed @made)))
      (is (identical? kept (first @made)))))
  (testing "Java arrays"
    (let [^objects result (resource-scope/using (object-array [(ndarray/ones [1])]))]
      (is (= [false] (disposed (aget result 0)))))))

(deftest scopes-nest
  (let [made (atom {})
        note (fn [k a] (swap! made assoc k a) a)
        result (resource-scope/using
                 (let [inner (resource-scope/using
                               (note :temporary (ndarray/ones [1]))
                               (note :inner (ndarray/ones [1])))]
                   (is (= [true false] (disposed (:temporary @made) inner)))
                   (note :result (ndarray/+ inner 1))))]
    (is (= [true false] (disposed (:inner @made) result)))))

(deftest swap-and-reset-keep-no-arrays
  (let [state (atom {})
        note (fn [k] (swap! state assoc k (ndarray/ones [1])))
        freed? (fn [& ks] (every? ndarray/is-disposed (map @state ks)))]
    (testing "swap! and reset! as the last form"
      (resource-scope/using (swap! state assoc :a (ndarray/ones [1])))
      (resource-scope/with-do (note :x) (reset! state {:b (ndarray/ones [1])}))
      (is (freed? :b))
      (resource-scope/with-let [c (ndarray/ones [1])] (swap! state assoc :c c))
      (resource-scope/using (swap-vals! state assoc :d (ndarray/ones [1])))
      (resource-scope/using (let [[old] (reset-vals! state (assoc @state :e (ndarray/ones [1])))]
                              old nil))
      (is (freed? :c :d :e)))
    (testing "inside of let, do, when and if"
      (resource-scope/using
        (let [f (ndarray/ones [1])]
          (when f
            (do (if f
                  (swap! state assoc :f f)
                  nil)))))
      (is (freed? :f)))
    (testing "symbols on the right-hand side of a binding are not locals"
      (resource-scope/with-let [n (swap! (atom 0) inc)]
        (swap! state assoc :n n :p (ndarray/ones [1])))
      (resource-scope/using
        (let [x (if @state (ndarray/ones [1]) (ndarray/zeros [1]))]
          (if x (swap! state assoc :q x) nil)))
      (is (freed? :p :q)))
    (testing "in a scope that is the last form of another scope"
      (resource-scope/using
        (let [outer (ndarray/ones [1])]
          (swap! state assoc :outer outer)
          (resource-scope/using
            (let [inner (ndarray/ones [1])]
              (swap! state assoc :inner inner)))))
      (is (freed? :outer :inner))
      (resource-scope/using
        (resource-scope/with-let [inner (ndarray/ones [1])]
          (swap! state assoc :inner inner)))
      (is (freed? :inner)))
    (testing "a value that is an array itself is a result"
      (let [only (atom nil)
            kept (resource-scope/using (reset! only (ndarray/ones [1])))]
        (is (identical? @only kept))
        (is (= [false] (disposed kept)))))
    (testing "other last forms keep their arrays"
      (let [kept (resource-scope/using (swap! state assoc :g (ndarray/ones [1])) @state)]
        (is (= [false] (disposed (:g kept)))))
      (let [swap! (fn [_ a] {:mine a})
            kept (resource-scope/using (swap! nil (ndarray/ones [1])))]
        (is (= [false] (disposed (:mine kept))) "a local of that name"))
      (let [kept (resource-scope/using (let [reset! vector] (reset! (ndarray/ones [1]))))]
        (is (= [false] (disposed (first kept)))))
      (is (= [[1.0]]
             (map ndarray/->vec
                  (resource-scope/using
                    (if-let [a (ndarray/ones [1])] [a] (swap! state identity)))))))
    (testing "the value is returned"
      (is (= 3 (resource-scope/using (swap! (atom 2) inc))))
      (is (nil? (resource-scope/using))))))

(deftest last-forms-of-every-kind
  (let [x 2.0]
    (is (= 1.0 (resource-scope/using (if (pos? x) 1.0 nil))))
    (is (= [1.5 x :k "s" nil \c]
           [(resource-scope/using 1.5)
            (resource-scope/using (when x x))
            (resource-scope/using (let [y :k] y))
            (resource-scope/using (if-not x 1 "s"))
            (resource-scope/using)
            (resource-scope/with-let [] \c)]))
    (is (= [{:a x} #{x}] (resource-scope/with-do (do [{:a x} #{x}]))))))

(deftest an-exception-is-rethrown-after-everything-is-closed
  (let [made (atom nil)
        thrown (ex-info "mine" {})]
    (is (identical? thrown
                    (try
                      (resource-scope/using
                        (reset! made (ndarray/ones [1]))
                        (throw thrown))
                      (catch Exception e e))))
    (is (ndarray/is-disposed @made))
    (is (= [false] (disposed (ndarray/ones [1]))) "the scope is over")))

(deftest stores-and-pulled-arrays-belong-to-scopes-too
  (let [made (atom [])
        value (resource-scope/using
                (let [kv (kvstore/init (kvstore/create) "w" (ndarray/ones [2]))
                      pulled (kvstore/pull kv ["w" "w"])]
                  (reset! made (cons kv pulled))
                  (second pulled)))
        [^dev.kvstore.KVStore kv a b] @made]
    (is (.isClosed kv))
    (is (= [true false] (disposed a b)))
    (is (= [1.0 1.0] (ndarray/->vec value)))))

(deftest a-scope-belongs-to-its-thread
  (let [other (atom nil)]
    (resource-scope/using
      @(future (reset! other (ndarray/ones [1])))
      nil)
    (is (= [false] (disposed @other)))))
