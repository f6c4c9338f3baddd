(ns dev.kvstore.impl.memory
  "The usage of native memory as Clojure data.

    of-process   the usage of the process
    of-device    the usage of one device"
  (:import (dev.kvstore Context DeviceMemory NativeMemory)))

(set! *warn-on-reflection* true)

(defn- device-data
  [^DeviceMemory memory]
  (cond-> {:live-bytes (.liveBytes memory)
           :pooled-bytes (.pooledBytes memory)}
    (nat-int? (.totalBytes memory)) (assoc :total-bytes (.totalBytes memory))))

(defn of-device
  "Returns a map of the memory usage of the device `ctx`. Throws a KVStoreException if this machine
  has no such device."
  [^Context ctx]
  (device-data (NativeMemory/device ctx)))

(defn of-process
  "Returns a map of the native memory usage of the process. `:devices` maps the name of each device
  to its usage."
  []
  {:live-bytes (NativeMemory/liveBytes)
   :pooled-bytes (NativeMemory/pooledBytes)
   :soft-cap (NativeMemory/softCap)
   :open (NativeMemory/open)
   :collected-unclosed (NativeMemory/collectedUnclosed)
   :devices (apply array-map
                   (mapcat (fn [^DeviceMemory memory]
                             [(str (.context memory)) (device-data memory)])
                           (NativeMemory/devices)))})
