(ns kvstore.demo
  "The store at work: `make demo`.

    -main   follows the tutorial, then trains a network to read digits; fails when a result is wrong"
  (:require [kvstore.demo.screen :as screen]
            [kvstore.demo.training :as training]
            [kvstore.demo.tutorial :as tutorial]))

(set! *warn-on-reflection* true)

(defn- show-tutorial
  []
  (screen/heading "1. The tutorial, expression by expression")
  (tutorial/follow "tutorial/kvstore.clj" 5)
  (screen/heading "2. A function of your own as the updater")
  (tutorial/follow "tutorial/updater.clj" 2))

(defn- show-training
  []
  (screen/heading "3. Handwritten digits, read by a network trained on four devices")
  (let [{:keys [accuracy mistakes num-tested]} (training/run)]
    (screen/facts {"accuracy" (format "%.1f %% of %d digits that it never saw" (* 100.0 accuracy) num-tested)
                   "wrong" (format "%d, some of them:" (count mistakes))})
    (screen/pictures (take 5 mistakes))
    (when (< accuracy 0.95)
      (throw (ex-info "the network reads too few digits" {:accuracy accuracy :expected 0.95})))))

(defn -main
  "Runs the demo. The process ends with status 1 when something in it is not as it must be."
  [& _]
  (try
    (screen/in-unicode
      (fn []
        (show-tutorial)
        (show-training)))
    (shutdown-agents)
    (catch Throwable e
      (binding [*out* *err*]
        (println "The demo failed.")
        (.printStackTrace e))
      (System/exit 1))))
