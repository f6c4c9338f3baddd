(ns deps
  "Prints the arguments that `clojure -M:ALIAS` would pass to Java in this folder, one per line.

  For machines without the Clojure CLI, whose resolver is a library."
  (:require [clojure.string :as string]
            [clojure.tools.deps :as deps]))

(set! *warn-on-reflection* true)

(let [aliases [(keyword (first *command-line-args*))]
      {:keys [argmap classpath-roots]} (deps/create-basis {:user nil :aliases aliases})
      class-path (string/join java.io.File/pathSeparator classpath-roots)]
  (run! println (concat (:jvm-opts argmap) ["-cp" class-path "clojure.main"] (:main-opts argmap)))
  (shutdown-agents))
