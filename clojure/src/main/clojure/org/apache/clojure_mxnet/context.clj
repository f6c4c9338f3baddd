(ns org.apache.clojure-mxnet.context
  "Names of devices: where an array lives.

    cpu, gpu                      make a context
    cpu-context, default-context  cpu(0)
    device-type, device-id        its parts
    num-gpus, gpu-memory-info     the GPUs of this machine

  Contexts are values: equal when type and number are equal, and `(str (cpu 1))` is \"cpu(1)\"."
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.memory :as memory]
            [dev.kvstore.impl.printing])
  (:import (dev.kvstore Context)))

(set! *warn-on-reflection* true)

(defn- checked-id
  ^long [id]
  (if (and (int? id) (<= 0 (long id) Integer/MAX_VALUE))
    (long id)
    (errors/reject "device id" "an integer from 0 to 2147483647" id)))

(defn cpu
  "Returns the CPU context with the number `device-id`, 0 by default.

  Every number is valid, and all of them are the host: they tell apart the parts of a program that
  would use one device each. Throws \"Invalid device id\" for anything but an integer from 0 up.

      (str (cpu 1)) ;=> \"cpu(1)\""
  (^dev.kvstore.Context [] (Context/cpu))
  (^dev.kvstore.Context [device-id] (Context/cpu (int (checked-id device-id)))))

(defn gpu
  "Returns the GPU context with the number `device-id`, 0 by default.

  The context can be made on any machine; an array in it needs the device and otherwise fails with
  code `:device-unavailable`. Throws \"Invalid device id\" for anything but an integer from 0 up.

      (str (gpu 0)) ;=> \"gpu(0)\""
  (^dev.kvstore.Context [] (Context/gpu))
  (^dev.kvstore.Context [device-id] (Context/gpu (int (checked-id device-id)))))

(defn cpu-context
  "Returns cpu(0). Never throws.

      (= (cpu-context) (cpu 0)) ;=> true"
  ^dev.kvstore.Context []
  (Context/cpu))

(defn default-context
  "Returns the context of arrays that are made without one: cpu(0), always. Never throws.

      (str (default-context)) ;=> \"cpu(0)\""
  ^dev.kvstore.Context []
  (Context/cpu))

(defn device-type
  "Returns the type of `context`: \"cpu\" or \"gpu\". Throws ClassCastException for what is no context.

      (device-type (gpu 1)) ;=> \"gpu\""
  [^Context context]
  (.deviceType context))

(defn device-id
  "Returns the number of `context` among those of its type. Throws ClassCastException for what is no context.

      (device-id (gpu 1)) ;=> 1"
  [^Context context]
  (.deviceId context))

(defn num-gpus
  "Returns how many GPUs there are, `(gpu 0)` being the first. Never throws.

  It is 0 also where the native library cannot be loaded; `doctor` of the kvstore namespace says why there is none.

      (nat-int? (num-gpus)) ;=> true"
  []
  (Context/numGpus))

(defn gpu-memory-info
  "Returns a map of the memory of the GPU with the number `device-id`, 0 by default.

  `:live-bytes` are what arrays and stores use, `:pooled-bytes` what is kept for reuse, and `:total-bytes` all that
  the GPU has, whoever uses it. Throws \"Invalid device id\" for anything but an integer from 0 up, and
  code `:device-unavailable` when there is no such GPU.

      (when (pos? (num-gpus)) (:total-bytes (gpu-memory-info 0)))"
  ([] (gpu-memory-info 0))
  ([device-id]
   (let [ctx (gpu device-id)]
     (errors/guard (memory/of-device ctx)))))
