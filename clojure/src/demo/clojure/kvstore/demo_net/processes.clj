(ns kvstore.demo-net.processes
  "The processes of the demo, and their messages.

  For the coordinator
    start            starts a process
    stop             stops processes and waits for them
    kill             kills a process
    check            fails if a process has ended by itself
  For the processes that it starts
    report           sends a map to the coordinator
    stop-requested   a promise that the coordinator delivers

  A process writes each report as a line of its standard output. It stops when its standard input
  ends. The operating system closes this input if the coordinator dies, so no process survives the
  coordinator."
  (:require [clojure.edn :as edn]
            [clojure.java.io :as io]
            [clojure.string :as string])
  (:import (java.lang ProcessBuilder$Redirect)
           (java.lang.management ManagementFactory)
           (java.util List)
           (java.util.concurrent TimeUnit)))

(set! *warn-on-reflection* true)

;; A stopped process exits by itself after this many seconds.
(def ^:private seconds-to-stop 10)

;; All processes that were started, by name: the :process, the :reader of its reports, and whether
;; it :may-end.
(defonce ^:private processes (atom {}))

(defn- daemon
  "Runs `f` in a thread that does not keep the JVM alive."
  ^Thread [f]
  (doto (Thread. ^Runnable f)
    (.setDaemon true)
    (.start)))

(defn- kill-all
  "Kills all processes and waits until they have ended."
  []
  ;; After Ctrl-C the processes end by themselves, because a terminal sends the signal to all.
  (swap! processes update-vals #(assoc % :may-end true))
  (let [all (map :process (vals @processes))]
    (run! #(.destroyForcibly ^Process %) all)
    (run! #(.waitFor ^Process % 5 TimeUnit/SECONDS) all)))

;; The hook runs at every end of this JVM, also after Ctrl-C and SIGTERM, but not after SIGKILL.
(defonce ^:private kills-all-at-exit
  (delay (.addShutdownHook (Runtime/getRuntime) (Thread. ^Runnable kill-all))))

(defn- command
  "Returns the command for the demo with these `arguments`, in a JVM with the options of this one."
  ^List [arguments]
  (concat [(str (io/file (System/getProperty "java.home") "bin" "java"))]
          (.getInputArguments (ManagementFactory/getRuntimeMXBean))
          ["-cp" (System/getProperty "java.class.path") "clojure.main" "-m" "kvstore.demo-net"]
          arguments))

(defn- read-reports
  "Calls `on-report` with each report of `process`, until its output ends."
  [^Process process on-report]
  (with-open [lines (io/reader (.getInputStream process))]
    (doseq [line (line-seq lines)]
      (if (string/starts-with? line "{")
        (on-report (edn/read-string line))
        (.println System/err ^String line)))))

(defn start
  "Starts a process under the name `process-name`, and returns its pid. The `arguments` are those of
  the demo's -main.

  A thread calls (on-report report) with each report. Errors of the process appear among those of
  this process."
  [process-name arguments on-report]
  @kills-all-at-exit
  (let [process (-> (ProcessBuilder. (command arguments))
                    (.redirectError ProcessBuilder$Redirect/INHERIT)
                    (.start))]
    (swap! processes assoc process-name
           {:process process
            :reader (daemon #(read-reports process on-report))})
    (.pid process)))

(defn- let-end
  "Returns the process `process-name`. From now on, `check` accepts that it ends."
  [process-name]
  (get (swap! processes assoc-in [process-name :may-end] true) process-name))

(defn kill
  "Kills the process `process-name` with SIGKILL."
  [process-name]
  (.destroyForcibly ^Process (:process (let-end process-name))))

(defn- wait-for-end
  [process-name {:keys [^Process process ^Thread reader]}]
  (when-not (.waitFor process (* 2 (long seconds-to-stop)) TimeUnit/SECONDS)
    (throw (ex-info (str process-name " does not stop") {})))
  (.join reader 5000)
  (when-not (zero? (.exitValue process))
    (throw (ex-info (str process-name " failed") {:status (.exitValue process)}))))

(defn stop
  "Stops the processes with these `names`, and waits until they have ended and their reports are
  read.

  Throws if a process does not end with status 0 in time."
  [names]
  (let [stopped (mapv let-end names)]
    (doseq [{:keys [^Process process]} stopped]
      (.close (.getOutputStream process)))
    (dorun (map wait-for-end names stopped))))

(defn check
  "Throws if a process has ended that was neither killed nor stopped."
  []
  (doseq [[process-name {:keys [^Process process may-end]}] @processes]
    (when-not (or may-end (.isAlive process))
      (throw (ex-info (str process-name " has ended") {:status (.exitValue process)})))))

(defn report
  "Sends the map `data` to the coordinator."
  [data]
  (prn data)
  (flush))

(defn stop-requested
  "Returns a promise that is delivered when the coordinator stops this process, or dies.

  If this process does not end soon after that, for example because it waits for a server that has
  died, it ends itself with status 1."
  []
  (let [requested (promise)]
    (daemon (fn []
              (while (not (neg? (.read System/in))))
              (deliver requested true)
              (Thread/sleep (* 1000 (long seconds-to-stop)))
              (.halt (Runtime/getRuntime) 1)))
    requested))
