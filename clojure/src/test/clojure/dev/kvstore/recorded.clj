(ns dev.kvstore.recorded
  "The results that were recorded from MXNet, as data."
  (:require [clojure.data.json :as json]
            [clojure.java.io :as io]))

(set! *warn-on-reflection* true)

(def recorded
  "The whole file, once somebody needs it."
  (delay
    (with-open [reader (io/reader (io/file (System/getProperty "basedir" ".")
                                           "../tests/data/store_cases.json"))]
      (json/read reader))))

(defn ->number
  "The number that stands in the file: some are texts there."
  [x]
  (case x
    "nan" ##NaN
    "inf" ##Inf
    "-inf" ##-Inf
    x))

(defn close?
  "Are both numbers equal, both NaN, or apart by no more than `tolerance` times the first?"
  [tolerance x y]
  (let [x (double (->number x))
        y (double y)]
    (or (== x y)
        (and (Double/isNaN x) (Double/isNaN y))
        (<= (Math/abs (- x y)) (* (double tolerance) (Math/abs x))))))
