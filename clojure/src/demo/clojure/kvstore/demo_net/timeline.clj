(ns kvstore.demo-net.timeline
  "A record of what happens during the demo, in an atom. Any thread may add to it; the main thread
  prints it.

    begin                      returns an empty timeline
    now                        the time since then
    note note-kill             add an event
    note-members note-report note-progress  add what servers, processes and measurements show
    show-new-events show-table  print new events, or all events
    percent                    a share as text

  Its fields:
    :began             in nanoseconds
    :events            maps of :at (seconds) and :text, with :workers :epoch :accuracy at that time
    :num-shown         the number of events that have been printed
    :live              a map from the name of each live worker to its rank
    :workers           a map from the name of each worker to its :rank, the times :joined :killed
                       :ended (seconds), and its :end
    :reports           a map from the name of each process to its last report
    :epoch :accuracy   the progress of all workers together
    :tested            the epoch of the last test"
  (:require [kvstore.demo.screen :as screen]))

(set! *warn-on-reflection* true)

(defn begin
  "Returns an empty timeline that begins now."
  []
  (atom {:began (System/nanoTime)
         :events []
         :num-shown 0
         :live {}
         :workers {}
         :reports {}}))

(defn- seconds
  "Returns the number of seconds since the beginning."
  [{:keys [began]}]
  (/ (- (System/nanoTime) (long began)) 1e9))

(defn now
  "Returns the number of seconds since `timeline` began."
  [timeline]
  (seconds @timeline))

(defn percent
  "Returns the text for `share`, a number or nil."
  [share]
  (if share (format "%.1f %%" (* 100.0 share)) ""))

(defn- with-event
  [{:keys [live epoch accuracy] :as record} text]
  (update record :events conj
          {:at (seconds record)
           :text text
           :workers (count live)
           :epoch epoch
           :accuracy accuracy}))

(defn note
  "Adds the event `text` to `timeline`."
  [timeline text]
  (swap! timeline with-event text))

(defn note-kill
  "Adds to `timeline` that `member` is killed now."
  [timeline member]
  (swap! timeline #(-> %
                    (with-event (str member " is killed with SIGKILL"))
                    (assoc-in [:workers member :killed] (seconds %)))))

(defn- with-joined
  [record [member rank]]
  (-> record
      (update :live assoc member rank)
      (assoc-in [:workers member] {:rank rank :joined (seconds record)})
      (with-event (str member " joins with rank " rank))))

(defn- with-gone
  [record member]
  (let [at (seconds record)
        killed (get-in record [:workers member :killed])]
    (-> record
        (update :live dissoc member)
        (update-in [:workers member] assoc :ended at :end (if killed "killed" "left"))
        (with-event (if killed
                      (format "%s is dead, noticed after %.3f s" member (- at killed))
                      (str member " leaves"))))))

(defn note-members
  "Compares `members`, the live members, with those in `timeline`. Adds an event for each worker
  that has joined or gone."
  [timeline members]
  (let [found (into {} (map (juxt :name :rank)) (remove :reader members))]
    (swap! timeline
           (fn [{:keys [live] :as record}]
             (let [joined (sort-by val (remove #(contains? live (key %)) found))
                   gone (remove #(contains? found %) (keys live))]
               (as-> record record
                 (reduce with-joined record joined)
                 (reduce with-gone record gone)))))))

(defn note-report
  "Adds the `report` of the process `process-name` to `timeline`."
  [timeline process-name report]
  (swap! timeline assoc-in [:reports process-name] report))

(defn note-progress
  "Adds the map `progress` of :epoch, :accuracy or :tested to `timeline`."
  [timeline progress]
  (swap! timeline merge progress))

(defn show-new-events
  "Prints the events of `timeline` that have not been printed yet."
  [timeline]
  (let [{:keys [events num-shown]} @timeline]
    (doseq [{:keys [at text]} (drop num-shown events)]
      (println (format "  %6.2f s  %s" at text)))
    (flush)
    (note-progress timeline {:num-shown (count events)})))

(defn show-table
  "Prints a table of all events of `timeline`."
  [timeline]
  (screen/table ["time" "workers" "epoch" "last test" "event"]
                (for [{:keys [at text workers epoch accuracy]} (:events @timeline)]
                  [(format "%6.2f s" at) workers (or epoch "") (percent accuracy) text])))
