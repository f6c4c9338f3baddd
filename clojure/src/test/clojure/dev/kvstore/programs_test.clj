(ns dev.kvstore.programs-test
  "Tests that a replay reports every result that differs from the record."
  (:require [clojure.data.json :as json]
            [clojure.java.io :as io]
            [clojure.test :refer [deftest is testing]]
            [dev.kvstore.programs :as programs])
  (:import (java.io File)))

(set! *warn-on-reflection* true)

(def ^:private record
  {"program" {"seed" 0
              "store" "local"
              "int_keys" true
              "steps" [{"op" "init" "keys" 9
                        "values" {"shape" [2] "dtype" "float32" "data" [1.0 2.0] "view" true}}
                       {"op" "init" "keys" 9
                        "values" {"shape" [2] "dtype" "float32" "data" [1.0 2.0]}}
                       {"op" "push" "keys" "9"
                        "values" {"shape" [2] "dtype" "float32" "data" [1.0 2.0]}}
                       {"op" "set_updater" "name" "add"}
                       {"op" "push" "keys" [9 9] "tuples" true
                        "values" [{"shape" [2] "dtype" "float32" "data" [0.125 -2.0]}
                                  {"shape" [2] "dtype" "float32" "data" [0.0 -0.0]}]}
                       {"op" "updater_log"}
                       {"op" "pull" "keys" 9 "outs" {"shape" [2] "dtype" "float64"}}]}
   "outcomes" [{"given" nil}
               {"given" nil}
               {"error" "KeyExistsError: the key is there"}
               {"error" "InvalidArgumentError: the store has integers as keys"}
               {"given" nil}
               {"given" nil}
               {"given" [9]}
               {"given" [{"shape" [2] "dtype" "float64" "data" [1.125 0.0]}]}]})

(defn- found
  [changed]
  (filter string? (programs/differences changed)))

(deftest a-replayed-program-gives-the-recorded-results
  (is (= [nil ::programs/failed-alike ::programs/skipped nil nil nil nil]
         (programs/differences record))))

(deftest every-difference-is-reported
  (doseq [[what path value] [["a number" [7 "given" 0 "data" 0] 1.1250001]
                             ["the sign of a zero" [7 "given" 0 "data" 1] -0.0]
                             ["a missing number" [7 "given" 0 "data"] [1.125]]
                             ["a dtype" [7 "given" 0 "dtype"] "float32"]
                             ["a shape" [7 "given" 0 "shape"] [2 1]]
                             ["a missing value" [7 "given"] []]
                             ["the keys of an updater" [6 "given"] [9 9]]
                             ["a call that works" [2] {"given" nil}]
                             ["a call that fails" [7] {"error" "KeyNotFoundError"}]
                             ["a call that only Python rejects" [3] {"given" nil}]
                             ["a store that cannot be made" [0] {"error" "InvalidArgumentError"}]]]
    (testing what
      (is (= 1 (count (found (assoc-in record (into ["outcomes"] path) value))))))))

(deftest the-report-contains-the-counts-of-programs
  (let [file (File/createTempFile "programs" ".json")]
    (try
      (programs/write-report file {:passed 12 :failed 3 :calls 40 :failed-alike 2 :skipped 1})
      (is (= {"passed" 12 "failed" 3} (json/read-str (slurp file))))
      (finally
        (io/delete-file file)))))
