(ns compile-namespaces
  "Puts the compiled classes of a jar's Clojure namespaces into the jar, beside the sources: Maven runs it
  when the jar is packed.

  The arguments are the jar and a folder for the classes, which is emptied. Nobody who loads the namespaces
  then waits for the compiler. Clojure takes a class only when it is younger than its source, so the classes
  get the time of the sources plus the two seconds that a zip file can tell apart. Where a tool repacks the
  jar with other times, the sources are compiled as ever."
  (:require [clojure.java.io :as io]
            [clojure.string :as string])
  (:import (java.io File)
           (java.nio.file Files StandardCopyOption)
           (java.time LocalDateTime)
           (java.util.zip ZipEntry ZipFile ZipOutputStream)))

(set! *warn-on-reflection* true)

(defn- entries
  "The entries of the zip file `zip`, in their order."
  [^ZipFile zip]
  (enumeration-seq (.entries zip)))

(defn- namespaces
  "The names of the namespaces in the jar `zip`."
  [zip]
  (for [^ZipEntry entry (entries zip)
        :let [[_ path] (re-matches #"(.*)\.clj" (.getName entry))]
        :when path]
    (symbol (-> path (string/replace "/" ".") (string/replace "_" "-")))))

(defn- empty-folder
  "Deletes what is in `folder`, and makes it where it is missing."
  [^File folder]
  (run! io/delete-file (butlast (reverse (file-seq folder))))
  (.mkdirs folder))

(defn- compile-all
  "Compiles `names` into `folder`. They are required, as `compile` would compile what others require twice."
  [names ^File folder]
  (binding [*compile-files* true
            *compile-path* (str folder)]
    (apply require names)))

(defn- class-files
  "The class files in `folder` by their names in the jar, sorted."
  [^File folder]
  (into (sorted-map)
        (for [^File file (file-seq folder)
              :when (.isFile file)]
          [(string/replace (str (.relativize (.toPath folder) (.toPath file))) File/separator "/") file])))

(defn- write-entry
  "Writes the entry `name` with `time` and the content of `in`. The time is local, as zip files have it: the
  jar is the same wherever it is made."
  [^ZipOutputStream out ^String name time in]
  (.putNextEntry out (doto (ZipEntry. name) (.setTimeLocal time)))
  (io/copy in out)
  (.closeEntry out))

(defn- write-jar
  "Writes all that is in the jar `zip`, then the classes in `folder`, to `out`."
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
