(ns org.apache.clojure-mxnet.lr-scheduler
  "Learning rate schedules: the learning rate as a function of the update count of a key.

    factor-scheduler         multiplied by a factor at regular intervals
    multi-factor-scheduler   multiplied by a factor at given update counts
    poly-scheduler           polynomial decay
    cosine-scheduler         decay along half a cosine wave
    learning-rate            the learning rate of a schedule

  A schedule is the `:lr-scheduler` of an optimizer, whose learning rate is its base. A schedule
  is a value and a pure function, so any number of optimizers may share it.

  Every schedule has the options `:warmup-steps`, the number of updates of the warm-up,
  `:warmup-begin-lr`, the first learning rate (0 by default), and `:warmup-mode`. With `:linear`,
  the default, the learning rate rises to the base in equal steps. With `:constant`, it keeps its
  first value until the warm-up ends.

      (learning-rate (factor-scheduler 2 0.5) 0.1 3) ;=> 0.05"
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.lists :as lists]
            [dev.kvstore.impl.options :as options]
            [dev.kvstore.impl.printing])
  (:import (dev.kvstore LrScheduler LrScheduler$Warmup)))

(set! *warn-on-reflection* true)

(def ^:private warmup-options [:warmup-steps :warmup-begin-lr :warmup-mode])

(defn- checked-count
  ^long [x what]
  (errors/check int? x what "an integer")
  (long x))

(defn- checked-number
  ^double [x what]
  (errors/check number? x what "a number")
  (double x))

(defn- warmed-up
  ^LrScheduler [^LrScheduler scheduler {:keys [warmup-steps warmup-begin-lr warmup-mode]}]
  (let [mode (case warmup-mode
               (nil :linear) LrScheduler$Warmup/LINEAR
               :constant LrScheduler$Warmup/CONSTANT
               (errors/reject "warmup-mode" ":linear or :constant" warmup-mode))]
    (if (some? warmup-steps)
      (.warmup scheduler
               (checked-count warmup-steps "warmup-steps")
               (checked-number (if (nil? warmup-begin-lr) 0 warmup-begin-lr) "warmup-begin-lr")
               mode)
      scheduler)))

(defn factor-scheduler
  "Returns a schedule that multiplies the learning rate by `factor` after every `step` updates.

  It never goes below `:stop-factor-lr` of `opts`, 1e-8 by default. The other options are those of
  the namespace. Throws \"Invalid step\", \"Invalid factor\", and code `:invalid-argument` if the
  step is below 1 or the factor is not in the range from 0 to 1.

      (mapv #(learning-rate (factor-scheduler 1 0.5) 1 %) [1 2 3]) ;=> [1.0 0.5 0.25]"
  (^dev.kvstore.LrScheduler [step factor] (factor-scheduler step factor nil))
  (^dev.kvstore.LrScheduler [step factor opts]
   (options/check opts (conj warmup-options :stop-factor-lr))
   (let [step (checked-count step "step")
         factor (checked-number factor "factor")]
     (errors/guard
       (-> (cond-> (LrScheduler/factor step factor)
             (some? (:stop-factor-lr opts))
             (.stop (checked-number (:stop-factor-lr opts) "stop-factor-lr")))
           (warmed-up opts))))))

(defn multi-factor-scheduler
  "Returns a schedule that multiplies the learning rate by `factor` after each of the update counts
  `steps`.

  `steps` are in ascending order and at least 1. `opts` are those of the namespace. Throws
  \"Invalid steps\", \"Invalid factor\", and code `:invalid-argument` if a step or the factor is
  out of range.

      (mapv #(learning-rate (multi-factor-scheduler [1 2] 0.5) 1 %)
            [1 2 3 4]) ;=> [1.0 0.5 0.25 0.25]"
  (^dev.kvstore.LrScheduler [steps factor] (multi-factor-scheduler steps factor nil))
  (^dev.kvstore.LrScheduler [steps factor opts]
   (options/check opts warmup-options)
   (let [steps (or (lists/as-list steps) (errors/reject "steps" "a list of integers" steps))
         factor (checked-number factor "factor")]
     (errors/check #(every? int? %) steps "steps" "a list of integers")
     (errors/guard
       (warmed-up (LrScheduler/multiFactor (long-array steps) factor) opts)))))

(defn poly-scheduler
  "Returns a schedule that decays polynomially and ends at the update count `max-update`.

  The learning rate is final + (base - final) * (1 - n / N) ^ power, where n is the update count
  and N is `max-update`, both counted from the end of the warm-up. `opts` are `:power`, 2 by
  default, `:final-lr`, 0 by default, and those of the namespace. Throws \"Invalid max-update\",
  and code `:invalid-argument` if a number is out of range.

      (learning-rate (poly-scheduler 4) 1 2) ;=> 0.25"
  (^dev.kvstore.LrScheduler [max-update] (poly-scheduler max-update nil))
  (^dev.kvstore.LrScheduler [max-update opts]
   (options/check opts (conj warmup-options :power :final-lr))
   (let [{:keys [power final-lr] :or {power 2 final-lr 0}} opts
         max-update (checked-count max-update "max-update")
         power (checked-number power "power")
         final-lr (checked-number final-lr "final-lr")]
     (errors/guard (warmed-up (LrScheduler/poly max-update power final-lr) opts)))))

(defn cosine-scheduler
  "Returns a schedule that decays along half a cosine wave and ends at the update count
  `max-update`.

  The learning rate is final + (base - final) * (1 + cos(pi * n / N)) / 2, where n is the update
  count and N is `max-update`, both counted from the end of the warm-up. `opts` are `:final-lr`, 0
  by default, and those of the namespace. Throws \"Invalid max-update\", and code
  `:invalid-argument` if a number is out of range.

      (learning-rate (cosine-scheduler 4) 1 4) ;=> 0.0"
  (^dev.kvstore.LrScheduler [max-update] (cosine-scheduler max-update nil))
  (^dev.kvstore.LrScheduler [max-update opts]
   (options/check opts (conj warmup-options :final-lr))
   (let [max-update (checked-count max-update "max-update")
         final-lr (checked-number (:final-lr opts 0) "final-lr")]
     (errors/guard (warmed-up (LrScheduler/cosine max-update final-lr) opts)))))

(defn learning-rate
  "Returns the learning rate of `scheduler` for the update count `num-update`, which starts at 1.
  `base` is the learning rate of the optimizer.

  Throws \"Invalid base\" and \"Invalid num-update\", and code `:invalid-argument` if one is
  negative.

      (learning-rate (factor-scheduler 10 0.1) 0.5 1) ;=> 0.5"
  [^LrScheduler scheduler base num-update]
  (let [base (checked-number base "base")
        num-update (checked-count num-update "num-update")]
    (errors/guard (.learningRate scheduler base num-update))))
