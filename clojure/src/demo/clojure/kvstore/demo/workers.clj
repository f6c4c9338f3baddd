(ns kvstore.demo.workers
  "Trains on several workers, each in its own process, and compares them with a single process.

    train         trains as a worker
    compare-all   trains in this process, and fails if a worker has other weights"
  (:require [clojure.java.io :as io]
            [kvstore.demo.screen :as screen]
            [kvstore.demo.training :as training]
            [org.apache.clojure-mxnet.context :as context]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray])
  (:import (java.io File Writer)
           (java.nio.file Files)))

(set! *warn-on-reflection* true)

(defn- weights-file
  "Returns the file in `folder` for the weights of `whom`."
  ^File [folder whom]
  (io/file folder (str whom ".params")))

(defn- save-weights
  "Writes all values of `kv` to `file`. Returns how many numbers they have."
  [kv file]
  (let [ks (kvstore/keys kv)
        weights (kvstore/pull kv ks)]
    (ndarray/save file (zipmap ks weights))
    (transduce (map ndarray/size) + weights)))

(defn train
  "Trains as one worker of the job of this process, and writes the weights to a file in `folder`.

  Each worker pushes one value per key. Rank 0 prints its progress."
  [folder]
  (with-open [kv (kvstore/create "dist_sync")]
    (let [rank (kvstore/rank kv)]
      (binding [*out* (if (zero? rank) *out* (Writer/nullWriter))]
        (screen/heading (format (str "Handwritten digits, read by a network trained by %d workers; "
                                     "rank 0 shows its part")
                                (kvstore/num-workers kv)))
        (training/show kv [(context/cpu)])
        (save-weights kv (weights-file folder rank))))))

(defn compare-all
  "Trains in this process only, which pushes `num-workers` values per key, in the order of the
  ranks.

  Throws if the weights in the file of a worker in `folder` are not equal bit for bit."
  [folder num-workers]
  (screen/heading (format "The same in one process that pushes %d values" num-workers))
  (with-open [kv (kvstore/create "local")]
    (training/show kv (mapv context/cpu (range num-workers)))
    (let [own (weights-file folder "one")
          num-weights (save-weights kv own)]
      (doseq [rank (range num-workers)
              :let [place (Files/mismatch (.toPath own) (.toPath (weights-file folder rank)))]]
        (when-not (neg? place)
          (throw (ex-info "a worker has other weights than one process"
                          {:rank rank :differs-at-byte place}))))
      (println (format (str "%d workers: the same %d weights, bit for bit, "
                            "as one process that pushes %d values")
                       num-workers num-weights num-workers)))))
