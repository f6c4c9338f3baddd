(ns org.apache.clojure-mxnet.gpu-test
  "Tests of arrays on GPUs. Skipped if there is no GPU, with the reason that the doctor reports."
  (:require [clojure.datafy :refer [datafy]]
            [clojure.test :refer [deftest is]]
            [dev.kvstore.failures :refer [code]]
            [org.apache.clojure-mxnet.context :as context]
            [org.apache.clojure-mxnet.kvstore :as kvstore]
            [org.apache.clojure-mxnet.ndarray :as ndarray]
            [org.apache.clojure-mxnet.optimizer :as optimizer]
            [org.apache.clojure-mxnet.random :as random])
  (:import (java.io File)
           (java.nio ByteBuffer)))

(set! *warn-on-reflection* true)

(defn reason-to-skip
  "Returns why these tests cannot run here, or nil."
  []
  (when (zero? (long (context/num-gpus)))
    (str "backend gpu " (:backend-gpu (kvstore/doctor)))))

(defn- gpu
  "Returns the GPU `n`, or the last GPU if there are fewer."
  [n]
  (context/gpu (min (long n) (dec (long (context/num-gpus))))))

(def ^:private on-gpu {:ctx (context/gpu 0)})

(defn- temporary-file
  []
  (str (doto (File/createTempFile "gpu-test" ".arrays") .deleteOnExit)))

(deftest ^:host arrays-are-created-and-read
  (doseq [nd [(ndarray/array [1 2] [2] on-gpu)
              (ndarray/->ndarray [1 2] on-gpu)
              (ndarray/arange 1 3 on-gpu)
              (ndarray/+ (ndarray/ones [2] on-gpu) (ndarray/arange 0 2 on-gpu))
              (ndarray/as-in-context (ndarray/array [1 2] [2]) (context/gpu 0))
              (ndarray/set (ndarray/empty [2] on-gpu) [1 2])
              (ndarray/slice (ndarray/->ndarray [[0 0] [1 2]] on-gpu) 1 2)]]
    (is (= (context/gpu 0) (ndarray/context nd)))
    (is (= [1.0 2.0] (ndarray/->vec (ndarray/wait-to-read nd))))
    (is (= [1 2] (ndarray/->int-vec nd) (ndarray/->long-vec nd)))
    (is (= 8 (alength (ndarray/->raw nd))))
    (is (= 2.0 (.get (.asFloatBuffer ^ByteBuffer (ndarray/as-buffer nd)) 1)))
    (is (= [2.0] (vec (ndarray/read-into nd (float-array 1) 1)))))
  (is (= (context/cpu)
         (ndarray/context (ndarray/as-in-context (ndarray/ones [1] on-gpu) (context/cpu)))))
  (is (= "gpu(0)" (:context (datafy (ndarray/full [2] 0.5 on-gpu)))))
  (is (ndarray/= (ndarray/ones [2]) (ndarray/ones [2] on-gpu)))
  (is (= 6.0 (ndarray/to-scalar (ndarray/sum (ndarray/ones [2 3] on-gpu))))))

(deftest ^:host random-numbers-and-files
  (random/seed 3)
  (let [host (random/normal 0 1 [4])
        f (temporary-file)]
    (random/seed 3)
    (let [there (random/normal 0 1 [4] on-gpu)]
      (is (= (context/gpu 0) (ndarray/context there)))
      (is (= (ndarray/->vec host) (ndarray/->vec there)))
      (ndarray/save f {"w" there})
      (is (= (ndarray/->vec host) (ndarray/->vec (get (ndarray/load f) "w")))))))

(deftest ^:host values-of-several-devices-are-summed
  (doseq [kind ["local" "device"]]
    (with-open [kv (kvstore/create kind)]
      (let [out (ndarray/zeros [2] {:ctx (gpu 1)})]
        (kvstore/init kv "w" (ndarray/zeros [2] on-gpu))
        (kvstore/push kv "w" [(ndarray/ones [2] on-gpu)
                              (ndarray/full [2] 2 {:ctx (gpu 1)})
                              (ndarray/full [2] 4)])
        (kvstore/pull kv "w" out)
        (is (= [7.0 7.0] (ndarray/->vec out) (ndarray/->vec (kvstore/pull kv "w"))))
        (is (= (gpu 1) (ndarray/context out)))
        (is (= (if (= "local" kind) "cpu(0)" "gpu(0)")
               (get-in (kvstore/stats kv) [:keys "w" :context])))))))

(deftest ^:host optimizers-and-updaters
  (let [steps (for [ctx [(context/cpu) (context/gpu 0)]]
                (with-open [kv (kvstore/create "device")]
                  (kvstore/init kv "w" (ndarray/ones [3] {:ctx ctx}))
                  (kvstore/set-optimizer kv (optimizer/adam {:learning-rate 0.1}))
                  (dotimes [i 3]
                    (kvstore/push kv "w" (ndarray/array [i 1 -1] [3] {:ctx ctx})))
                  (ndarray/->vec (kvstore/pull kv "w"))))]
    (is (apply = (doall steps))))
  (with-open [kv (kvstore/create "device")]
    (let [seen (atom nil)]
      (kvstore/init kv "w" (ndarray/ones [2] on-gpu))
      (kvstore/set-updater kv (fn [k pushed stored]
                                (reset! seen [k (ndarray/context pushed) (ndarray/context stored)])
                                (ndarray/+= stored (ndarray/* pushed 10))))
      (kvstore/push kv "w" [(ndarray/ones [2] on-gpu) (ndarray/ones [2] {:ctx (gpu 1)})])
      (is (= ["w" (context/gpu 0) (context/gpu 0)] @seen))
      (is (= [21.0 21.0] (ndarray/->vec (kvstore/pull kv "w")))))))

(deftest ^:host row-sparse-values-compression-and-snapshots
  (let [f (temporary-file)]
    (with-open [kv (kvstore/create "device")]
      (kvstore/init kv "r" (ndarray/zeros [4 2] on-gpu))
      (kvstore/push kv "r" (ndarray/row-sparse-array (ndarray/ones [1 2] on-gpu) [2] [4 2]))
      (is (= [1.0 1.0] (ndarray/->vec (ndarray/row-data (kvstore/row-sparse-pull kv "r" [2]))))))
    (with-open [kv (kvstore/create "device")]
      (kvstore/set-gradient-compression kv {:type "2bit" :threshold 0.5})
      (kvstore/init kv "w" (ndarray/zeros [2] on-gpu))
      (kvstore/push kv "w" [(ndarray/array [0.7 0.1] [2] on-gpu)
                            (ndarray/array [0.9 -0.8] [2] {:ctx (gpu 1)})])
      (is (= [1.0 -0.5] (ndarray/->vec (kvstore/pull kv "w"))))
      (with-open [before (kvstore/snapshot kv)]
        @(kvstore/checkpoint kv f)
        (kvstore/push kv "w" (ndarray/ones [2] on-gpu))
        (kvstore/rollback kv before)
        (is (= [1.0 -0.5] (ndarray/->vec (kvstore/pull kv "w"))))
        (is (kvstore/snapshot= before (kvstore/read-snapshot f)))))))

(deftest ^:host memory-is-counted-per-device
  (let [before (context/gpu-memory-info)
        nd (ndarray/zeros [1000] on-gpu)
        during (context/gpu-memory-info 0)]
    (is (= #{:live-bytes :pooled-bytes :total-bytes} (set (keys during))))
    (is (<= 4000 (- (long (:live-bytes during)) (long (:live-bytes before)))))
    (is (= during (get-in (kvstore/stats) [:devices "gpu(0)"])))
    (is (string? (:memory-of-gpu-0 (kvstore/doctor))))
    (ndarray/dispose nd)
    (is (= :device-unavailable (code (context/gpu-memory-info (context/num-gpus)))))))
