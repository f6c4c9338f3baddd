(ns org.apache.clojure-mxnet.optimizer-test
  "Tests of optimizers: their recorded weights, their options, and steps without a store."
  (:require [clojure.string :as string]
            [clojure.test :refer [deftest is testing]]
            [dev.kvstore.failures :refer [code failure]]
            [dev.kvstore.recorded :refer [close? recorded]]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.lr-scheduler :as lr-scheduler]
            [org.apache.clojure-mxnet.ndarray :as ndarray]
            [org.apache.clojure-mxnet.optimizer :as optimizer]))

(set! *warn-on-reflection* true)

(def ^:private constructors
  {"scala_sgd" optimizer/sgd
   "scala_dcasgd" optimizer/dcasgd
   "scala_nag" optimizer/nag
   "scala_adam" optimizer/adam
   "scala_adagrad" optimizer/ada-grad
   "scala_adadelta" optimizer/ada-delta
   "scala_rmsprop" optimizer/rms-prop})

(def ^:private others
  [optimizer/sgld optimizer/adamw optimizer/ftrl optimizer/ada-max optimizer/nadam optimizer/signum
   optimizer/ftml])

(defn- option
  "Returns the option of a constructor for an argument of the recorded constructor."
  [argument]
  (case argument
    "lr" :learning-rate
    "lamda" :lambda
    "rescale" :rescale-gradient
    (keyword (string/replace argument "_" "-"))))

(defn- ->array
  [numbers]
  (ndarray/array numbers [2 2]))

(defn- path-on-a-store
  "Returns the weights after each of the gradients, with `opt` as the optimizer of a store."
  [opt start gradients]
  (let [kv (-> (kvstore/create)
               (kvstore/init "w" (->array start))
               (kvstore/set-optimizer opt))]
    (mapv (fn [g]
            (kvstore/push kv "w" (->array g))
            (ndarray/->double-vec (kvstore/pull kv "w")))
          gradients)))

(defn- path-without-a-store
  [opt start gradients]
  (let [weight (->array start)]
    (with-open [state (optimizer/create-state opt 0 weight)]
      (mapv (fn [g]
              (is (identical? opt (optimizer/update opt 0 weight (->array g) state)))
              (ndarray/->double-vec weight))
            gradients))))

(deftest constructors-follow-the-recorded-weights
  (let [{:strs [weight0 grads scala]} (get @recorded "optimizers")]
    (is (<= 14 (count scala)))
    (is (= (set (keys constructors)) (set (map #(get % "optimizer") scala))))
    (doseq [{:strs [optimizer kwargs weights]} scala
            :let [opt ((constructors optimizer) (into {} (map (fn [[k v]] [(option k) v])) kwargs))]
            path [path-on-a-store path-without-a-store]
            :let [found (path opt weight0 grads)]]
      (is (= 12 (count (flatten weights)) (count (flatten found))))
      (is (every? true? (map (partial close? 2e-5) (flatten weights) (flatten found)))
          (str optimizer " " kwargs ": expected " weights ", found " found)))))

(deftest every-constructor-runs-on-a-store
  (doseq [constructor (concat (vals constructors) others)
          opt [(constructor) (constructor {}) (constructor nil)]]
    (is (not= [[1.0 -2.0 0.5 3.0]] (path-on-a-store opt [1 -2 0.5 3] [[1 1 1 1]]))))
  (testing "a gradient that is rescaled to 0 changes nothing"
    (is (= [[1.0 -2.0 0.5 3.0]]
           (path-on-a-store (optimizer/ftml {:learning-rate 0.1 :rescale-grad 0})
                            [1 -2 0.5 3] [[1 1 1 1]])))))

(deftest multipliers-apply-to-their-key
  (let [kv (-> (kvstore/create)
               (kvstore/init ["a" "b"] [(ndarray/ones [1]) (ndarray/ones [1])])
               (kvstore/set-optimizer (optimizer/sgd {:learning-rate 0.5 :wd 0.5
                                                      :lr-mult {:a 0} :wd-mult {"b" 0}})))]
    (kvstore/push kv ["a" "b"] (repeat 2 (ndarray/ones [1])))
    (is (= [[1.0] [0.5]] (mapv ndarray/->vec (kvstore/pull kv ["a" "b"]))))))

(deftest a-scheduler-uses-the-count-of-the-current-update
  (let [opt (optimizer/sgd {:learning-rate 0.1 :wd 0
                            :lr-scheduler (lr-scheduler/factor-scheduler 2 0.5)})
        path (path-on-a-store opt [0 0 0 0] (repeat 8 [-1 -1 -1 -1]))
        rates (map - (map first path) (cons 0.0 (map first path)))
        expected (get-in @recorded ["lr_schedule" "factor_step2_0.5_base0.1"
                                    "python_effective_lr_per_update"])]
    (is (= 8 (count expected) (count rates)))
    (is (every? true? (map (partial close? 1e-5) expected rates)))))

(deftest hyper-parameters-of-a-store-can-be-changed
  (let [kv (-> (kvstore/create)
               (kvstore/init "w" (ndarray/ones [1]))
               (kvstore/set-optimizer (optimizer/sgd {:wd 0})))]
    (is (= 0.01 (:learning-rate (kvstore/hyper-parameters kv))))
    (is (identical? kv (kvstore/set-hyper-parameters kv {:learning-rate 0.25 :rescale-gradient 2})))
    (is (= [0.25 2.0] ((juxt :learning-rate :rescale-grad) (kvstore/hyper-parameters kv))))
    (kvstore/push kv "w" (ndarray/ones [1]))
    (is (= [0.5] (ndarray/->vec (kvstore/pull kv "w"))))
    (is (= (str "optimizer `sgd` has no hyper-parameter `:rho`: expected one of "
                ":learning-rate, :wd, :rescale-grad, :clip-gradient, :begin-num-update, "
                ":staleness-power, :momentum, :lazy-update")
           (:message (failure (kvstore/set-hyper-parameters kv {:learning-rate 1 :rho 1})))))
    (is (= (str "hyper-parameter `:learning-rate` of optimizer `sgd` cannot be -1: expected a "
                "number of at least 0")
           (:message (failure (kvstore/set-hyper-parameters kv {:learning-rate -1})))))
    (is (= "Invalid hyper-parameters"
           (:start (failure (kvstore/set-hyper-parameters kv {:learning-rate "fast"})))))
    (is (= 0.25 (:learning-rate (kvstore/hyper-parameters kv))) "all or none")
    (is (= :invalid-argument (code (kvstore/hyper-parameters (kvstore/create)))))))

(deftest options-with-two-names
  (let [kv (kvstore/create)
        rate #(:learning-rate (kvstore/hyper-parameters kv))]
    (kvstore/set-optimizer kv (optimizer/adam {:lr 0.5 :weight-decay 0.25 :eps 1 :num-update 3}))
    (is (= [0.5 0.25 1.0 3.0]
           ((juxt :learning-rate :wd :epsilon :begin-num-update) (kvstore/hyper-parameters kv))))
    (kvstore/set-hyper-parameters kv {:lr 0.125 :weight-decay 0.5 :eps 2 :num-update 4})
    (is (= [0.125 0.5 2.0 4.0]
           ((juxt :learning-rate :wd :epsilon :begin-num-update) (kvstore/hyper-parameters kv))))
    (doseq [both [#(optimizer/sgd {:lr 0.5 :learning-rate 1})
                  #(kvstore/set-hyper-parameters kv {:lr 0.5 :learning-rate 1})]
            :let [failed (failure (both))]]
      (is (= :invalid-argument (:kvstore/code failed)))
      (is (= (str "`:lr` and `:learning-rate` name the same hyper-parameter: "
                  "expected one of them, found both")
             (:message failed))))
    (is (= 0.125 (rate)))))

(deftest only-boolean-options-take-booleans
  (let [kv (kvstore/create)
        lazy-of #(:lazy-update (kvstore/hyper-parameters kv))]
    (doseq [[lazy expected] [[true 1.0] [false 0.0] [1 1.0] [0 0.0]]]
      (kvstore/set-optimizer kv (optimizer/sgd {:lazy-update lazy}))
      (is (= expected (lazy-of)))
      (kvstore/set-hyper-parameters kv {:lazy-update (not (pos? expected))})
      (is (= (- 1.0 expected) (lazy-of)))
      (kvstore/set-hyper-parameters kv {:lazy-update lazy})
      (is (= expected (lazy-of))))
    (kvstore/set-optimizer kv (optimizer/rms-prop {:centered false :decoupled-wd true}))
    (is (= [0.0 1.0] ((juxt :centered :decoupled-wd) (kvstore/hyper-parameters kv))))
    (doseq [value [true false]
            option [:lr :learning-rate :wd :momentum :begin-num-update]]
      (is (= (str "Incorrect sgd optimizer options: hyper-parameter `" option
                  "`: expected a number, found " value " (java.lang.Boolean)")
             (:message (failure (optimizer/sgd {option value})))))
      (is (= (str "Invalid hyper-parameters: hyper-parameter `" option
                  "`: expected a number, found " value " (java.lang.Boolean)")
             (:message (failure (kvstore/set-hyper-parameters kv {option value}))))))
    (is (= (str "Incorrect sgd optimizer options: hyper-parameter `:lazy-update`: "
                "expected true, false, 0 or 1, found \"on\" (java.lang.String)")
           (:message (failure (optimizer/sgd {:lazy-update "on"})))))
    (is (string/includes? (:message (failure (kvstore/set-optimizer
                                               kv (optimizer/sgd {:lazy-update 0.5}))))
                          "`:lazy-update`"))))

(deftest invalid-steps
  (let [opt (optimizer/adam)
        w (ndarray/ones [2])
        state (optimizer/create-state opt "w" w)]
    (is (= :spec-mismatch (code (optimizer/update opt "w" w (ndarray/ones [3]) state))))
    (is (= [1.0 1.0] (ndarray/->vec w)))
    (is (= :invalid-argument
           (code (optimizer/create-state opt 0 (ndarray/ones [2] {:dtype :int32})))))
    (.close state)
    (is (= :closed (code (optimizer/update opt "w" w w state))))))

(deftest sgd-rejects-invalid-options
  (doseq [opts [{:wd 'a} {:learning-rate "0.1"} {:momentum nil} {:clip-gradient :off}]]
    (is (= ["Incorrect sgd optimizer options" :invalid-argument opts]
           ((juxt :start :kvstore/code :kvstore/value) (failure (optimizer/sgd opts))))))
  (testing "the error names an unknown option"
    (is (string/includes? (:message (failure (optimizer/sgd {:learnig-rate 0.1})))
                          ":learnig-rate")))
  (is (= :invalid-argument (code (optimizer/sgd [0.1]))))
  (testing "of the wrong type"
    (doseq [opts [{:lr-scheduler (Object.)} {:lr-mult [1]} {:wd-mult {"a" "b"}}]]
      (is (= "Incorrect sgd optimizer options" (:start (failure (optimizer/sgd opts)))))))
  (testing "out of range"
    (is (= :invalid-argument (code (optimizer/sgd {:learning-rate -1}))))
    (is (= :invalid-argument (code (optimizer/adam {:beta1 1.5}))))))

(deftest options-have-names-of-their-own
  (let [kv (kvstore/set-optimizer (kvstore/create)
                                  (optimizer/dcasgd {:lambda 0.5 :rescale-gradient 2}))]
    (is (= [0.5 2.0] ((juxt :lambda :rescale-grad) (kvstore/hyper-parameters kv))))
    (kvstore/set-hyper-parameters kv (kvstore/hyper-parameters kv))
    (is (= :invalid-argument
           (code (kvstore/set-hyper-parameters kv {:rescale-grad 1 :rescale-gradient 1})))))
  (is (= 0.5 (:lambda1 (kvstore/hyper-parameters
                         (kvstore/set-optimizer (kvstore/create)
                                                (optimizer/ftrl {:lambda1 0.5}))))))
  (is (= :invalid-argument (code (optimizer/sgd {:rescale-grad 1 :rescale-gradient 1}))))
  (is (= :invalid-argument (code (optimizer/sgd {:lr-mult {"w" ##NaN}}))))
  (is (= "Invalid keys: two with the name `w`"
         (:message (failure (optimizer/sgd {:lr-mult {:a/w 1 :b/w 2}})))))
  (is (= :invalid-argument (code (optimizer/sgd {:wd-mult {"w" ##Inf}})))))
