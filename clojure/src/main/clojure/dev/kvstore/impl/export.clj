(ns dev.kvstore.impl.export
  "Re-exports functions of other namespaces.

    export   defines vars with the values and the documentation of another namespace's vars")

(set! *warn-on-reflection* true)

(defn export*
  "Defines vars `names` in the namespace `target` with the values that they have in `source`.

  The vars keep the source locations of the originals, so that editors and `source` find the code.
  They are created at run time, because compiling a form for each var would double the loading
  time."
  [target source names]
  (doseq [var-name names
          :let [original (or (ns-resolve (the-ns source) var-name)
                             (throw (ex-info (str "no var " source "/" var-name) {})))
                facts (select-keys (meta original) [:doc :arglists :file :line :column])]]
    (intern target (with-meta var-name facts) @original)))

(defmacro export
  "Defines vars in this namespace with the values of vars in other namespaces. Each vector is
  [namespace name ..].

      (export [dev.kvstore.impl.ndarray.creation zeros ones])"
  [& vectors]
  `(do ~@(for [[source & names] vectors]
           `(export* *ns* '~source '~names))))
