(ns require
  "Prints how many milliseconds it takes to `require` all namespaces of the library in a new JVM.")

(let [start (System/nanoTime)]
  (require '(org.apache.clojure-mxnet base context dtype kvstore kvstore-server lr-scheduler ndarray
                                      optimizer random resource-scope shape))
  (println (quot (- (System/nanoTime) start) 1000000)))
