(ns dev.kvstore.impl.memory
  "Native memory as Clojure data.

    of-process   all of it
    of-device    that of one device"
  (:import (dev.kvstore Context DeviceMemory NativeMemory)))

(set! *warn-on-reflection* true)

(defn- device-data
  [^DeviceMemory memory]
  (cond-> {:live-bytes (.liveBytes memory)
           :pooled-bytes (.pooledBytes memory)}
    (nat-int? (.totalBytes memory)) (assoc :total-bytes (.totalBytes memory))))

(defn of-device
  "Returns a map of the memory of the device `ctx`. Throws a KVStoreException when there is no such device."
  [^Context ctx]
  (device-data (NativeMemory/device ctx)))

(defn of-process
  "Returns a map of all native memory, with that of each device under `:devices`, by its name."
  []
  {:live-bytes (NativeMemory/liveBytes)
   :pooled-bytes (NativeMemory/pooledBytes)
   :soft-cap (NativeMemory/softCap)
   :open (NativeMemory/open)
   :collected-unclosed (NativeMemory/collectedUnclosed)
   :devices (apply array-map
                   (mapcat (fn [^DeviceMemory memory] [(str (.context memory)) (device-data memory)])
                           (NativeMemory/devices)))})
