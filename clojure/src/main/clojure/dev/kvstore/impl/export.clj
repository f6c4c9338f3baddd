(ns dev.kvstore.impl.export
  "Lets a namespace offer functions that live in others.

    export   defines vars with the values and the documentation of another namespace's vars")

(set! *warn-on-reflection* true)

(defn- definition
  [ns-name var-name]
  (let [source (or (ns-resolve (the-ns ns-name) var-name)
                   (throw (ex-info (str "no var " ns-name "/" var-name) {})))
        {:keys [doc arglists] :as facts} (meta source)]
    ;; The place of the original, so that editors and `source` find the code.
    `(alter-meta! (def ~(with-meta var-name {:doc doc :arglists (list 'quote arglists)})
                    (deref ~source))
                  merge ~(select-keys facts [:file :line :column]))))

(defmacro export
  "Defines, for each vector [namespace name ..], the names here with those vars' values.

      (export [dev.kvstore.impl.ndarray.creation zeros ones])"
  [& vectors]
  `(do ~@(for [[ns-name & names] vectors
               var-name names]
           (definition ns-name var-name))))
