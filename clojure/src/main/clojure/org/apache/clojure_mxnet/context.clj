(ns org.apache.clojure-mxnet.context
  "Names of devices.

    cpu, gpu                      create a context
    cpu-context, default-context  cpu(0)
    device-type, device-id        the parts of a context
    num-gpus, gpu-memory-info     the GPUs of this machine

  Contexts are values: they are equal if type and number are equal, and `(str (cpu 1))` is
  \"cpu(1)\"."
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

  Every number is valid, and all CPU contexts are the same device, the host. Different numbers can
  represent the parts of a program that would each use one device. Throws \"Invalid device id\"
  unless `device-id` is an integer from 0 to 2147483647.

      (str (cpu 1)) ;=> \"cpu(1)\""
  (^dev.kvstore.Context [] (Context/cpu))
  (^dev.kvstore.Context [device-id] (Context/cpu (int (checked-id device-id)))))

(defn gpu
  "Returns the GPU context with the number `device-id`, 0 by default.

  The context can be created on any machine. Only creating an array in it needs the device and
  throws code `:device-unavailable` without it. Throws \"Invalid device id\" unless `device-id` is
  an integer from 0 to 2147483647.

      (str (gpu 0)) ;=> \"gpu(0)\""
  (^dev.kvstore.Context [] (Context/gpu))
  (^dev.kvstore.Context [device-id] (Context/gpu (int (checked-id device-id)))))

(defn cpu-context
  "Returns cpu(0). Never throws.

      (= (cpu-context) (cpu 0)) ;=> true"
  ^dev.kvstore.Context []
  (Context/cpu))

(defn default-context
  "Returns the default context of new arrays, which is always cpu(0). Never throws.

      (str (default-context)) ;=> \"cpu(0)\""
  ^dev.kvstore.Context []
  (Context/cpu))

(defn device-type
  "Returns the type of `context`: \"cpu\" or \"gpu\". Throws ClassCastException if it is not a
  context.

      (device-type (gpu 1)) ;=> \"gpu\""
  [^Context context]
  (.deviceType context))

(defn device-id
  "Returns the number of `context` among those of its type. Throws ClassCastException if it is not
  a context.

      (device-id (gpu 1)) ;=> 1"
  [^Context context]
  (.deviceId context))

(defn num-gpus
  "Returns the number of available GPUs; the first is `(gpu 0)`. Never throws.

  It is also 0 if the native library cannot be loaded. `doctor` of the kvstore namespace returns
  the reason.

      (nat-int? (num-gpus)) ;=> true"
  []
  (Context/numGpus))

(defn gpu-memory-info
  "Returns a map of the memory usage of the GPU with the number `device-id`, 0 by default.

  `:live-bytes` are used by arrays and stores, `:pooled-bytes` are kept for reuse, and
  `:total-bytes` is the total memory of the GPU, including what other processes use. Throws
  \"Invalid device id\" unless `device-id` is an integer from 0 to 2147483647, and code
  `:device-unavailable` if there is no such GPU.

      (when (pos? (num-gpus)) (:total-bytes (gpu-memory-info 0)))"
  ([] (gpu-memory-info 0))
  ([device-id]
   (let [ctx (gpu device-id)]
     (errors/guard (memory/of-device ctx)))))
