(ns dev.kvstore.recorded
  "The results that were recorded from MXNet, as data."
  (:require [clojure.data.json :as json]
            [clojure.java.io :as io]))

(set! *warn-on-reflection* true)

(def recorded
  "The contents of the file, which is read on first use."
  (delay
    (with-open [reader (io/reader (io/file (System/getProperty "basedir" ".")
                                           "../tests/data/store_cases.json"))]
      (json/read reader))))

(defn ->number
  "Returns a number of the file. NaN and infinities are strings there."
  [x]
  (case x
    "nan" ##NaN
    "inf" ##Inf
    "-inf" ##-Inf
    x))

(defn close?
  "Returns whether both numbers are equal, both are NaN, or they differ by at most `tolerance`
  times the first."
  [tolerance x y]
  (let [x (double (->number x))
        y (double y)]
    (or (== x y)
        (and (Double/isNaN x) (Double/isNaN y))
        (<= (Math/abs (- x y)) (* (double tolerance) (Math/abs x))))))
