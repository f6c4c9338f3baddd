(ns kvstore.demo.screen
  "The output of the demo.

    in-unicode       runs a function with an output that can print the characters below
    heading facts    a heading; named values
    table            rows of cells under headers
    progress         a progress bar with a text beside it
    pictures         digits side by side, drawn with block characters"
  (:require [clojure.string :as string])
  (:import (java.io OutputStreamWriter)
           (java.nio.charset StandardCharsets)))

(set! *warn-on-reflection* true)

(defn in-unicode
  "Calls `f` with standard output in UTF-8, whatever the locale."
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

(defn table
  "Prints `rows` under `headers`. Each cell is printed as its text."
  [headers rows]
  (let [lines (for [row (cons headers rows)] (mapv str row))
        widths (apply map (fn [& cells] (reduce max (map count cells))) lines)
        show (fn [cells]
               (let [padded (map #(format (str "%-" %2 "s") %1) cells widths)]
                 (println (string/trimr (str "  " (string/join "  " padded))))))]
    (show (first lines))
    (show (map #(string/join (repeat % "─")) widths))
    (run! show (rest lines))))

(defn- bar
  [share width]
  (let [full (long (* share width))]
    (str (string/join (repeat full "█"))
         (string/join (repeat (- width full) "░")))))

(def ^:private terminal? (some? (System/console)))

(defn progress
  "Shows that `done` of `total` is done, with `text` beside it.

  On a terminal, this is one line that changes. Any other output gets ten lines in total."
  [done total text]
  (let [line (str "  " (bar (/ done total) 30) "  " text)]
    (cond
      terminal? (do (print (str "\r" line))
                    (when (= done total) (newline))
                    (flush))
      (zero? (mod done (max 1 (quot total 10)))) (println line))))

(defn- shade
  "Returns the character for one `pixel` from 0, white, to 16, black."
  [pixel]
  (nth " ░▒▓█" (quot pixel 4)))

(defn- picture
  "Returns the eight lines of the digit with these 64 `pixels`."
  [pixels]
  (for [row (partition 8 pixels)]
    (string/join (mapcat #(repeat 2 (shade %)) row))))

(defn- side-by-side
  [columns]
  (apply map (fn [& cells] (str "  " (string/join " │ " cells))) columns))

(defn pictures
  "Draws `digits` in one row. They are maps of :pixels, the true :label and the predicted label
  :read."
  [digits]
  (when (seq digits)
    (println)
    (run! println
          (side-by-side (for [{:keys [pixels label read]} digits]
                          (concat (picture pixels)
                                  [(format "%-16s" (str label " read as " read))]))))
    (println)))
