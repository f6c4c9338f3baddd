(defproject example/average "0.1.0"
  :dependencies [[org.clojure/clojure "1.12.6"]
                 [dev.kvstore/kvstore "0.1.0"]]
  ;; From JDK 24 on a program says that it wants native code.
  :jvm-opts ["--enable-native-access=ALL-UNNAMED"]
  :main example.average)
