(ns compile-namespaces
  "Compiles the Clojure namespaces of a jar and adds the classes to the jar, next to the sources.
  Maven runs this when it has packed the jar.

  The arguments are the jar and a folder for the classes, whose contents are deleted. With the
  classes, loading the namespaces needs no compiler. Clojure uses a class only if it is newer than
  its source. So the classes get the time of the sources plus two seconds, which is the resolution
  of a zip file. If a tool repacks the jar with other times, Clojure compiles the sources as
  usual."
  (:require [clojure.java.io :as io]
            [clojure.string :as string])
  (:import (java.io File)
           (java.nio.file Files StandardCopyOption)
           (java.time LocalDateTime)
           (java.util.zip ZipEntry ZipFile ZipOutputStream)))

(set! *warn-on-reflection* true)

(defn- entries
  "Returns the entries of the zip file `zip`, in order."
  [^ZipFile zip]
  (enumeration-seq (.entries zip)))

(defn- namespaces
  "Returns the names of the namespaces in the jar `zip`."
  [zip]
  (for [^ZipEntry entry (entries zip)
        :let [[_ path] (re-matches #"(.*)\.clj" (.getName entry))]
        :when path]
    (symbol (-> path (string/replace "/" ".") (string/replace "_" "-")))))

(defn- empty-folder
  "Deletes the contents of `folder`, and creates it if it does not exist."
  [^File folder]
  (run! io/delete-file (butlast (reverse (file-seq folder))))
  (.mkdirs folder))

(defn- compile-all
  "Compiles the namespaces `names` into `folder`. Uses `require`, because `compile` would compile
  namespaces twice that others require."
  [names ^File folder]
  (binding [*compile-files* true
            *compile-path* (str folder)]
    (apply require names)))

(defn- class-files
  "Returns the class files in `folder`, sorted by their names in the jar."
  [^File folder]
  (into (sorted-map)
        (for [^File file (file-seq folder)
              :when (.isFile file)]
          [(string/replace (str (.relativize (.toPath folder) (.toPath file))) File/separator "/")
           file])))

(defn- write-entry
  "Writes the entry `name` with `time` and the contents of `in`. The time is local, as in any zip
  file, so that the jar does not depend on the time zone."
  [^ZipOutputStream out ^String name time in]
  (.putNextEntry out (doto (ZipEntry. name) (.setTimeLocal time)))
  (io/copy in out)
  (.closeEntry out))

(defn- write-jar
  "Writes the entries of the jar `zip`, then the classes in `folder`, to `out`."
  [^ZipFile zip folder ^ZipOutputStream out]
  (doseq [^ZipEntry entry (entries zip)]
    (with-open [in (.getInputStream zip entry)]
      (write-entry out (.getName entry) (.getTimeLocal entry) in)))
  (let [times (sort (map #(.getTimeLocal ^ZipEntry %) (entries zip)))
        younger (.plusSeconds ^LocalDateTime (last times) 2)]
    (doseq [[name file] (class-files folder)]
      (write-entry out name younger file))))

(let [[jar folder] (map io/file *command-line-args*)
      packed (io/file (str jar ".new"))]
  (with-open [zip (ZipFile. ^File jar)]
    (empty-folder folder)
    (compile-all (namespaces zip) folder)
    (with-open [out (ZipOutputStream. (io/output-stream packed))]
      (write-jar zip folder out)))
  (Files/move (.toPath packed) (.toPath ^File jar)
              (into-array StandardCopyOption [StandardCopyOption/REPLACE_EXISTING]))
  (shutdown-agents))
