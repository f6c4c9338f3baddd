(ns table
  "Prints the results of `bench/run` as a table and writes them to `target/bench-jvm.json`.

  The arguments are the results file of JMH, the results folder of criterion and the file to
  write."
  (:require [clojure.data.json :as json]
            [clojure.java.io :as io]
            [clojure.string :as string]))

(set! *warn-on-reflection* true)

(defn- median
  [numbers]
  (let [sorted (vec (sort numbers))
        half (quot (count sorted) 2)]
    (if (odd? (count sorted))
      (sorted half)
      (/ (+ (sorted half) (sorted (dec half))) 2.0))))

(defn- jmh
  "Returns the nanoseconds of every JMH benchmark by name: the median of the iterations of all
  forks."
  [file]
  (with-open [reader (io/reader file)]
    (into {}
          (for [{:strs [benchmark primaryMetric]} (json/read reader)]
            [(string/replace benchmark "dev.kvstore.bench." "")
             (median (flatten (primaryMetric "rawData")))]))))

(defn- criterion
  "Returns the nanoseconds of a benchmark of `kvstore/benches/jvm_calls.rs`: criterion's median."
  [folder bench]
  (with-open [reader (io/reader (io/file folder "jvm_calls" bench "new" "estimates.json"))]
    (get-in (json/read reader) ["median" "point_estimate"])))

(def ^:private calls
  "The benchmarks of calls: a title, the benchmarks in Rust and Java, the number of keys, and the
  maximum overhead per key of Java and of Clojure over Rust in nanoseconds.

  A call with a thousand keys crosses into native code once. The line below the tables compares it
  with a thousand calls."
  [["push one key"            "push"         "OneKey.push"       1    1500 3000]
   ["pull one key"            "pull"         "OneKey.pull"       1    1500 3000]
   ["push 1000 keys, each"    "push_1000"    "ManyKeys.push"     1000 nil  nil]
   ["pull 1000 keys, each"    "pull_1000"    "ManyKeys.pull"     1000 nil  nil]
   ["empty updater, each key" "updater_1000" "EmptyUpdater.push" 1000 nil  3000]])

(def ^:private copies
  "The benchmarks of copies: a title, the benchmark, and its minimum speed as a fraction of the
  speed of `System.arraycopy`."
  [["read 16 Mi floats"  "Bulk.read"     0.8]
   ["array of 16 Mi"     "Bulk.make"     0.8]
   ["fresh array"        "Bulk.toFloats" 0.6]
   ["Java's own, cloned" "Bulk.cloned"   nil]])

(defn- call-row
  [found folder [workload rust java num-keys java-bar clojure-bar]]
  (let [each #(when % (/ (double %) num-keys))
        rust (each (criterion folder rust))
        clojure (each (found (str java "FromClojure")))
        java (each (found java))]
    {:workload workload
     :base_ns rust :java_ns java :clojure_ns clojure
     :java (- java rust) :java_bar java-bar
     :clojure (- clojure rust) :clojure_bar clojure-bar
     :passed (and (or (nil? java-bar) (<= (- java rust) java-bar))
                  (or (nil? clojure-bar) (<= (- clojure rust) clojure-bar)))}))

(defn- copy-row
  [found [workload java bar]]
  (let [base (found "Bulk.arraycopy")
        clojure (found (str java "FromClojure"))
        java (found java)
        part #(when % (/ base %))]
    {:workload workload
     :base_ns base :java_ns java :clojure_ns clojure
     :java (part java) :java_bar bar
     :clojure (part clojure) :clojure_bar (when clojure bar)
     :passed (or (nil? bar) (and (>= (part java) bar) (>= (part clojure) bar)))}))

(defn- cell
  [x]
  (cond
    (nil? x) ""
    (< x 10) (format "%.2f" (double x))
    :else (format "%.0f" (double x))))

(defn- print-rows
  [base beyond rows]
  (printf "%-25s %11s %11s %11s %9s %6s %9s %6s%n"
          "workload" base "Java ns" "Clojure ns" (str "Java " beyond) "bar" (str "Clj " beyond)
          "bar")
  (doseq [{:keys [workload passed] :as row} rows]
    (printf "%-25s %11s %11s %11s %9s %6s %9s %6s  %s%n"
            workload (cell (:base_ns row)) (cell (:java_ns row)) (cell (:clojure_ns row))
            (cell (:java row)) (cell (:java_bar row)) (cell (:clojure row))
            (cell (:clojure_bar row))
            (cond
              (not passed) "missed"
              (or (:java_bar row) (:clojure_bar row)) "passed"
              :else ""))))

(let [[results folder target] *command-line-args*
      found (jmh results)
      calls (mapv #(call-row found folder %) calls)
      copies (mapv #(copy-row found %) copies)]
  (print-rows "Rust ns" "over" calls)
  (println)
  (print-rows "arraycopy" "part" copies)
  (printf "%n1000 pushes of one key take %.0f us, one push of 1000 keys takes %.0f us.%n"
          (/ (found "ManyKeys.pushOneByOne") 1000) (/ (found "ManyKeys.push") 1000))
  (flush)
  (with-open [writer (io/writer target)]
    (json/write (into calls copies) writer)))
