(ns dev.kvstore.programs
  "Replays random programs that Python recorded, and compares every result bit for bit.

    differences   the steps of a program that differ from its record
    replay        the counts over a file of records
    -main         the same from the command line

  A record is a line of JSON, written by `kvstore-python/tests/record_programs.py`: a program and
  the outcomes of creating its store and of each of its steps. Values must be equal to the last
  bit, and the same calls must fail."
  (:require [clojure.data.json :as json]
            [clojure.java.io :as io]
            [clojure.set :as set]
            [dev.kvstore.recorded :refer [->number]]
            [org.apache.clojure-mxnet.context :as context]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.lr-scheduler :as lr-scheduler]
            [org.apache.clojure-mxnet.ndarray :as ndarray]
            [org.apache.clojure-mxnet.resource-scope :as resource-scope])
  (:import (dev.kvstore Optimizer)
           (java.io File)
           (java.nio.file Files)
           (java.nio.file.attribute FileAttribute)))

(set! *warn-on-reflection* true)

;; Arguments.

(defn- ->array
  "Creates an array on a CPU device that depends on its position. A view is a slice of a larger
  array."
  [{:strs [shape dtype data view]} position]
  (let [data (map ->number (or data (repeat (apply * shape) 0)))
        opts {:dtype dtype :ctx (context/cpu (mod position 4))}
        row (apply * (rest shape))]
    (if view
      (let [larger (concat (take row data) data (take row data))
            a (ndarray/array (vec larger) (update shape 0 + 2) opts)]
        (ndarray/slice a 1 (inc (first shape))))
      (ndarray/array (vec data) shape opts))))

(defn- ->row-sparse
  [{:strs [shape rows] :as given} position]
  (let [rows-of (->array (assoc given "shape" (assoc shape 0 (count rows))) position)]
    (ndarray/row-sparse-array rows-of rows shape)))

(defn- ->value
  "Creates the array that `given` describes. Returns other values unchanged. `slots` contains
  arrays that are used repeatedly."
  [slots given position]
  (let [{:strs [slot rows data]} (when (map? given) given)]
    (cond
      (not (map? given)) given
      (and slot (@slots slot)) (@slots slot)
      slot (let [a (->array given position)] (swap! slots assoc slot a) a)
      (and rows data) (->row-sparse given position)
      ;; A row-sparse output becomes dense, because Clojure pulls only into dense arrays.
      :else (->array given position))))

(defn- ->values
  ([slots given]
   (->values slots given 0))
  ([slots given position]
   (if (vector? given)
     (into [] (map-indexed #(->values slots %2 %1)) given)
     (->value slots given position))))

(defn- ->key
  "Returns an integer key as a string if all keys are integers; otherwise `k`, which is then
  invalid."
  [{:keys [int-keys?]} k]
  (if (and int-keys? (integer? k)) (str k) k))

(defn- ->keys
  [player {:strs [keys tuples]}]
  (cond
    (not (vector? keys)) (->key player keys)
    tuples (apply list (map #(->key player %) keys))
    :else (mapv #(->key player %) keys)))

;; Results.

(defn- facts
  [a]
  {"shape" (ndarray/shape-vec a)
   "dtype" (str (ndarray/dtype a))
   "data" (ndarray/->double-vec a)})

(defn- row-facts
  [value]
  (assoc (facts (ndarray/row-data value))
         "shape" (ndarray/shape-vec (ndarray/to-dense value))
         "rows" (ndarray/row-indices value)))

(defn- arrays
  [outs]
  (if (sequential? outs) (mapcat arrays outs) [outs]))

(defn- dense
  "Returns the dense form of an expected row-sparse value."
  [{:strs [shape rows data] :as value}]
  (let [width (apply * (rest shape))
        row->data (zipmap rows (partition width data))
        zeros (repeat width 0.0)]
    (-> (dissoc value "rows")
        (assoc "data" (mapcat #(row->data % zeros) (range (first shape)))))))

(defn- same-bits?
  [x y]
  (let [bits #(Double/doubleToLongBits (double (->number %)))]
    (= (bits x) (bits y))))

(defn- same-value?
  [expected found]
  (and (= (dissoc expected "data") (dissoc found "data"))
       (= (count (expected "data")) (count (found "data")))
       (every? true? (map same-bits? (expected "data") (found "data")))))

(defn- same?
  [expected found]
  (if (and (vector? expected) (map? (first expected)))
    (and (= (count expected) (count found))
         (every? true? (map same-value? expected found)))
    (= expected found)))

;; Optimizers and updaters.

(def ^:private rules
  {"assign" (fn [s i] (ndarray/set s i))
   "add" (fn [s i] (ndarray/set s (ndarray/+ s i)))
   "sub" (fn [s i] (ndarray/set s (ndarray/- s i)))
   "add2x" (fn [s i] (ndarray/set s (ndarray/+ s (ndarray/* i 2))))
   "decay_add" (fn [s i] (ndarray/set s (ndarray/+ (ndarray/div s 2) i)))
   "noop" (fn [_ _])
   "in_place" (fn [s i] (ndarray/+= s i) (ndarray/*= s 2))
   "failing" (fn [_ _] (throw (ex-info "an updater that fails" {})))})

(defn- updater
  [log rule-name]
  (let [rule (rules rule-name)]
    (fn [k pushed stored]
      (swap! log conj k)
      (rule stored pushed))))

(defn- scheduler
  [[schedule-name {:strs [step factor stop_factor_lr max_update pwr final_lr
                          warmup_steps warmup_begin_lr warmup_mode]}]]
  (let [warmup (cond-> {:warmup-steps (or warmup_steps 0)}
                 warmup_begin_lr (assoc :warmup-begin-lr warmup_begin_lr)
                 warmup_mode (assoc :warmup-mode (keyword warmup_mode)))]
    (case schedule-name
      "FactorScheduler" (lr-scheduler/factor-scheduler
                          step (or factor 1)
                          (cond-> warmup stop_factor_lr (assoc :stop-factor-lr stop_factor_lr)))
      "MultiFactorScheduler" (lr-scheduler/multi-factor-scheduler step (or factor 1) warmup)
      "PolyScheduler" (lr-scheduler/poly-scheduler
                        max_update (assoc warmup :power (or pwr 2) :final-lr (or final_lr 0)))
      "CosineScheduler" (lr-scheduler/cosine-scheduler
                          max_update (assoc warmup :final-lr (or final_lr 0))))))

(defn- base-rate
  "Returns the base learning rate of a Python schedule."
  [[_ {:strs [base_lr]}]]
  (or base_lr 0.01))

(defn- ->number-of-option
  [value]
  (case value true 1 false 0 value))

(defn- optimizer
  "Creates the optimizer from Python's options."
  ^Optimizer [player {:strs [name kwargs lr_mult wd_mult]}]
  (let [schedule (kwargs "lr_scheduler")
        options (cond-> (set/rename-keys (dissoc kwargs "lr_scheduler" "multi_precision")
                                         {"eps" "epsilon"})
                  (and schedule (not (kwargs "learning_rate")))
                  (assoc "learning_rate" (base-rate schedule)))
        made (reduce-kv (fn [^Optimizer o option value]
                          (if (nil? value)
                            o
                            (.with o ^String option (double (->number-of-option value)))))
                        (Optimizer/of name)
                        options)
        made (if schedule (.scheduler ^Optimizer made (scheduler schedule)) made)
        made (reduce (fn [^Optimizer o [k factor]]
                       (.learningRateMultiplier o (->key player k) factor))
                     made lr_mult)]
    (reduce (fn [^Optimizer o [k factor]]
              (.weightDecayMultiplier o (->key player k) factor))
            made wd_mult)))

;; Steps.

(defmulti ^:private play
  "Makes a call and returns its result in the form of the record."
  (fn [_ step] (step "op")))

(defmethod play "init"
  [{:keys [kv slots] :as player} {:strs [values] :as step}]
  (kvstore/init kv (->keys player step) (->values slots values))
  nil)

(defmethod play "push"
  [{:keys [kv slots] :as player} {:strs [values priority] :as step}]
  (kvstore/push kv (->keys player step) (->values slots values) (or priority 0))
  nil)

(defmethod play "pull"
  [{:keys [kv slots] :as player} {:strs [outs priority] :as step}]
  (if outs
    (let [into-these (->values slots outs)]
      (kvstore/pull kv (->keys player step) into-these (or priority 0))
      (mapv facts (arrays into-these)))
    (mapv facts (arrays (kvstore/pull kv (->keys player step))))))

(defmethod play "pushpull"
  [{:keys [kv slots] :as player} {:strs [values outs priority] :as step}]
  (let [values (->values slots values)
        into-these (if outs (->values slots outs) values)]
    (kvstore/pushpull kv (->keys player step) values into-these (or priority 0))
    (mapv facts (arrays into-these))))

(defmethod play "broadcast"
  [{:keys [kv slots] :as player} {:strs [values outs] :as step}]
  (let [into-these (->values slots outs)]
    (kvstore/broadcast kv (->keys player step) (->values slots values) into-these)
    (mapv facts (arrays into-these))))

(defmethod play "row_sparse_pull"
  [{:keys [kv] :as player} {:strs [outs row_ids] :as step}]
  (let [num-outs (count (arrays outs))
        ids (if (vector? (first row_ids)) row_ids (repeat num-outs row_ids))]
    (mapv #(row-facts (kvstore/row-sparse-pull kv (->keys player step) %)) ids)))

(defmethod play "set_updater"
  [{:keys [kv log]} {:strs [name]}]
  (kvstore/set-updater kv (updater log name))
  nil)

(defmethod play "set_optimizer"
  [{:keys [kv] :as player} step]
  (kvstore/set-optimizer kv (optimizer player step))
  nil)

(defmethod play "set_gradient_compression"
  [{:keys [kv]} {:strs [params]}]
  (kvstore/set-gradient-compression kv (update-keys params keyword))
  nil)

(defn- file
  ^File [folder {:strs [file]}]
  (io/file folder file))

(defmethod play "save_optimizer_states"
  [{:keys [kv folder]} {:strs [dump_optimizer] :as step}]
  (kvstore/save-optimizer-states kv (file folder step) (boolean dump_optimizer))
  nil)

(defmethod play "load_optimizer_states"
  [{:keys [kv folder]} step]
  (kvstore/load-optimizer-states kv (file folder step))
  nil)

(defmethod play "updater_log"
  [{:keys [log]} _]
  (let [[keys-so-far] (reset-vals! log [])]
    keys-so-far))

(defmethod play "info"
  [{:keys [kv]} _]
  {"type" (kvstore/type kv) "rank" (kvstore/rank kv) "num_workers" (kvstore/num-workers kv)})

(defmethod play "barrier"
  [{:keys [kv]} _]
  (kvstore/barrier kv)
  nil)

;; Programs.

(defn- only-in-python
  "Returns why Clojure cannot replay a step, or nil. Such a step has failed in Python."
  [{:strs [int_keys]} {:strs [op keys outs row_ids kwargs]}]
  (cond
    (= op "is_capable") "capabilities"
    (and int_keys (some string? (if (vector? keys) keys [keys]))) "a string beside integers as keys"
    (and (= op "row_sparse_pull") (vector? (first row_ids))
         (not= (count row_ids) (count (arrays outs)))) "outputs of rows"
    (when-let [[_ {:strs [warmup_begin_lr]} :as schedule] (get kwargs "lr_scheduler")]
      (< (base-rate schedule) (or warmup_begin_lr 0))) "a schedule that knows its base"))

(defn- expected-results
  "Converts a recorded result to Clojure's form."
  [player {:strs [op]} given]
  (case op
    "updater_log" (mapv #(->key player %) given)
    "row_sparse_pull" given
    (if (and (vector? given) (map? (first given)))
      (mapv #(if (% "rows") (dense %) %) given)
      given)))

(defn- ignores-rows?
  "Returns whether Python leaves outputs of this step unchanged, as MXNet does for row-sparse
  outputs."
  [{:strs [op outs ignore_sparse]}]
  (and (= op "pull") (not (false? ignore_sparse)) (some #(get % "rows") (arrays outs))))

(defn- without-ignored
  [{:strs [outs] :as step} results]
  (if (ignores-rows? step)
    (into [] (keep-indexed (fn [i result] (when-not (get (nth (arrays outs) i) "rows") result)))
          results)
    results))

(defn- outcome
  [player step]
  (try
    {:given (play player step)}
    (catch Exception e
      {:error e})))

(defn- difference
  "Compares a step with its record: nil if equal, a string if not, a keyword if not comparable."
  [player program step {:strs [error given]}]
  (if-let [reason (only-in-python program step)]
    (if (or error (= reason "capabilities")) ::skipped (str "worked in Python: " reason))
    (let [{found :given e :error} (outcome player step)]
      (cond
        (and error e) ::failed-alike
        error (str "Python failed: " error "; here it gave " (pr-str found))
        e (str "Python gave " (pr-str given) "; here it failed: " (ex-message e))
        :else (let [expected (without-ignored step (expected-results player step given))
                    found (without-ignored step found)]
                (when-not (same? expected found)
                  (str "Python gave " (pr-str expected) ", here it is " (pr-str found))))))))

(defn- temporary-folder
  ^File []
  (.toFile (Files/createTempDirectory "programs" (make-array FileAttribute 0))))

(defn- delete
  [^File folder]
  (run! io/delete-file (reverse (file-seq folder))))

(defn- create
  [{:strs [store]}]
  (try
    (kvstore/create store)
    (catch clojure.lang.ExceptionInfo _ nil)))

(defn differences
  "Replays the program of a record and returns the outcome of each step: nil, ::failed-alike,
  ::skipped, or a sentence that describes the difference."
  [{:strs [program outcomes]}]
  (resource-scope/using
    (let [[created & outcomes] outcomes
          folder (temporary-folder)
          kv (create program)
          player {:kv kv
                  :folder folder
                  :int-keys? (program "int_keys")
                  :slots (atom {})
                  :log (atom [])}]
      (try
        (if (= (nil? kv) (contains? created "error"))
          (if kv
            (mapv #(difference player program %1 %2) (program "steps") outcomes)
            [::failed-alike])
          [(str "making the store: Python " (pr-str created) ", here it is " kv)])
        (finally
          (delete folder))))))

(defn- add
  "Adds a record to the counts."
  [counts record]
  (let [steps (differences record)
        found (keep-indexed (fn [i d] (when (string? d) (str "step " i ": " d))) steps)]
    (doseq [d (take 1 found)]
      (println "program" (get-in record ["program" "seed"]) d))
    (-> counts
        (update (if (seq found) :failed :passed) inc)
        (update :calls + (count steps))
        (update :failed-alike + (count (filter #{::failed-alike} steps)))
        (update :skipped + (count (filter #{::skipped} steps))))))

(defn replay
  "Replays every record in a file and returns the counts. Prints the first difference of each
  program that differs."
  [file]
  (with-open [reader (io/reader file)]
    (transduce (map json/read-str)
               (completing add)
               {:passed 0 :failed 0 :calls 0 :failed-alike 0 :skipped 0}
               (line-seq reader))))

(defn write-report
  "Writes the number of passed and failed programs as JSON for scripts/tally.py."
  [file counts]
  (spit file (json/write-str (select-keys counts [:passed :failed]))))

(defn -main
  "Replays a file of records and writes a report. Exits with status 1 if a program differs or there
  are no programs."
  [file report]
  (let [{:keys [passed failed calls failed-alike skipped] :as counts} (replay file)]
    (println (str "replayed from Python: " (+ passed failed) " programs, "
                  failed " of them differ, " calls " calls, "
                  failed-alike " failed alike, " skipped " calls that only Python has"))
    (write-report report counts)
    (System/exit (if (and (pos? passed) (zero? failed)) 0 1))))
