(ns dev.kvstore.impl.export
  "Lets a namespace offer functions that live in others.

    export   defines vars with the values and the documentation of another namespace's vars")

(set! *warn-on-reflection* true)

(defn export*
  "Defines, in the namespace `target`, `names` with the values that they have in `source`.

  They keep the places of the originals, so that editors and `source` find the code. The vars are made at
  run time: a form that is compiled for each of them would double the time that loading takes."
  [target source names]
  (doseq [var-name names
          :let [original (or (ns-resolve (the-ns source) var-name)
                             (throw (ex-info (str "no var " source "/" var-name) {})))
                facts (select-keys (meta original) [:doc :arglists :file :line :column])]]
    (intern target (with-meta var-name facts) @original)))

(defmacro export
  "Defines, for each vector [namespace name ..], the names here with those vars' values.

      (export [dev.kvstore.impl.ndarray.creation zeros ones])"
  [& vectors]
  `(do ~@(for [[source & names] vectors]
           `(export* *ns* '~source '~names))))
