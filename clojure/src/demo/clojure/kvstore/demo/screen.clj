(ns kvstore.demo.screen
  "What the demo shows.

    in-unicode       runs a function with an output that can print the blocks below
    heading facts    a line of its own; named values
    progress         a bar with a text beside it
    pictures         digits side by side, drawn with blocks"
  (:require [clojure.string :as string])
  (:import (java.io OutputStreamWriter)
           (java.nio.charset StandardCharsets)))

(set! *warn-on-reflection* true)

(defn in-unicode
  "Calls `f` with standard output as UTF-8, whatever the locale says."
  [f]
  (binding [*out* (OutputStreamWriter. System/out StandardCharsets/UTF_8)]
    (f)
    (flush)))

(defn heading
  "Prints `text` as a heading."
  [text]
  (println)
  (println text)
  (println (string/join (repeat (count text) "─")))
  (println))

(defn facts
  "Prints each name and value of the map `named`."
  [named]
  (doseq [[what value] named]
    (println (format "  %-12s %s" what value))))

(defn- bar
  [share width]
  (let [full (long (* share width))]
    (str (string/join (repeat full "█"))
         (string/join (repeat (- width full) "░")))))

(def ^:private terminal? (some? (System/console)))

(defn progress
  "Shows that `done` of `total` is done, with `text` beside it.

  A terminal shows one line that changes; anything else gets ten lines in all."
  [done total text]
  (let [line (str "  " (bar (/ done total) 30) "  " text)]
    (cond
      terminal? (do (print (str "\r" line))
                    (when (= done total) (newline))
                    (flush))
      (zero? (mod done (max 1 (quot total 10)))) (println line))))

(defn- shade
  "The character for one `pixel` from 0, paper, to 16, ink."
  [pixel]
  (nth " ░▒▓█" (quot pixel 4)))

(defn- picture
  "The eight lines of the digit with these 64 `pixels`."
  [pixels]
  (for [row (partition 8 pixels)]
    (string/join (mapcat #(repeat 2 (shade %)) row))))

(defn- side-by-side
  [columns]
  (apply map (fn [& cells] (str "  " (string/join " │ " cells))) columns))

(defn pictures
  "Draws `digits`, maps of :pixels, the true :label and the one that was :read, in one row."
  [digits]
  (when (seq digits)
    (println)
    (run! println
          (side-by-side (for [{:keys [pixels label read]} digits]
                          (concat (picture pixels)
                                  [(format "%-16s" (str label " read as " read))]))))
    (println)))
