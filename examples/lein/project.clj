(defproject example/average "0.1.0"
  :dependencies [[org.clojure/clojure "1.12.6"]
                 [dev.kvstore/kvstore "0.1.0"]]
  ;; Allows native access. Without this option, JDK 24 and later print a warning.
  :jvm-opts ["--enable-native-access=ALL-UNNAMED"]
  :main example.average)
