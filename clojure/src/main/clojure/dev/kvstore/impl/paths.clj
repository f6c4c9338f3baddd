(ns dev.kvstore.impl.paths
  "File name arguments."
  (:require [dev.kvstore.impl.errors :as errors])
  (:import (java.io File)
           (java.nio.file InvalidPathException Path)))

(set! *warn-on-reflection* true)

(defn ->path
  "Returns the path of `fname`, a string, a File or a Path. Throws \"Invalid filename\" for anything
  else."
  ^Path [fname]
  (try
    (cond
      (string? fname) (.toPath (File. ^String fname))
      (instance? File fname) (.toPath ^File fname)
      (instance? Path fname) fname
      :else (errors/reject "filename" "a string, File or Path" fname))
    (catch InvalidPathException e
      (errors/invalid (str "Invalid filename: " (.getReason e) ", found " (errors/shown fname))
                      fname))))
