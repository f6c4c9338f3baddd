(ns deps
  "Prints the arguments that `clojure -M:ALIAS` would pass to Java in this folder, one per line.

  For machines without the Clojure CLI, whose resolver is a library."
  (:require [clojure.string :as string]
            [clojure.tools.deps :as deps]))

(set! *warn-on-reflection* true)

(let [{:keys [argmap classpath-roots]} (deps/create-basis {:user nil
                                                          :aliases [(keyword (first *command-line-args*))]})]
  (run! println (concat (:jvm-opts argmap)
                        ["-cp" (string/join java.io.File/pathSeparator classpath-roots) "clojure.main"]
                        (:main-opts argmap)))
  (shutdown-agents))
