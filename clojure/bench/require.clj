(ns require
  "How many milliseconds `require` of all namespaces of the library takes, in a JVM that has done nothing else.")

(let [start (System/nanoTime)]
  (require '(org.apache.clojure-mxnet base context dtype kvstore kvstore-server lr-scheduler ndarray
                                      optimizer random resource-scope shape))
  (println (quot (- (System/nanoTime) start) 1000000)))
