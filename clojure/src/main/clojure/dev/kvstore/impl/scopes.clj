(ns dev.kvstore.impl.scopes
  "Decides which arrays in the result of a resource scope stay open.

  swap! and reset! return the value of an atom, which usually contains every array that the
  program stored there. If such a call is the last form of a scope, its result keeps no arrays
  open, unless the result is an array itself.

    run      calls a function in a scope
    value    removes the mark from a result
    state    marks a value of swap! or reset!
    marked   marks the last form if it is a swap! or reset!"
  (:import (dev.kvstore ResourceScope)
           (java.lang AutoCloseable)))

(set! *warn-on-reflection* true)

(deftype ^:private State [value])

(defn state
  "Returns `value`, the result of swap! or reset!, with a mark."
  [value]
  (State. value))

(defn value
  "Returns `result` without its mark, if it has one."
  [result]
  (if (instance? State result)
    (.value ^State result)
    result))

(defn run
  "Calls `f` in a new scope and returns its result, still marked."
  [f]
  (with-open [scope (ResourceScope/open)]
    (let [result (f)]
      (if (instance? State result)
        (when (instance? AutoCloseable (value result))
          (.keep scope (value result)))
        (.keep scope result))
      result)))

(def ^:private changes-of-state
  '#{clojure.core/swap! clojure.core/reset! clojure.core/swap-vals! clojure.core/reset-vals!})

(def ^:private bodies
  "Forms that return the value of their last form."
  '#{do let* clojure.core/let clojure.core/when clojure.core/when-not clojure.core/when-let
     clojure.core/when-some clojure.core/binding clojure.core/with-open clojure.core/dosync
     clojure.core/locking})

(def ^:private branches
  "Forms that return the value of one of their branches. The branches follow the first argument."
  '#{if clojure.core/if-not clojure.core/if-let clojure.core/if-some})

(def ^:private scopes
  '#{org.apache.clojure-mxnet.resource-scope/using org.apache.clojure-mxnet.resource-scope/with-do})

(def ^:private with-let
  'org.apache.clojure-mxnet.resource-scope/with-let)

(defn- resolved
  "Returns the qualified name of the head of `form`, or nil if the head is a local name or not a
  symbol."
  [form locals]
  (when-let [head (and (seq? form) (symbol? (first form)) (first form))]
    (when-not (contains? locals head)
      (let [found (when-not (special-symbol? head) (resolve head))]
        (if (var? found)
          (symbol found)
          head)))))

(defn- with-bound
  "Returns `locals` with the names that the binding vector of `form` binds, if it has one."
  [locals form]
  (let [bindings (second form)]
    (if (vector? bindings)
      (into locals
            (comp (take-nth 2) (mapcat #(tree-seq coll? seq %)) (filter symbol?))
            bindings)
      locals)))

(declare marked)

(defn- marked-form
  [form locals]
  (let [head (resolved form locals)
        inner (if head (with-bound locals form) locals)]
    (cond
      (changes-of-state head) `(state ~form)
      (bodies head) (with-meta (list* (first form) (marked (rest form) inner)) (meta form))
      (branches head) (with-meta (list* (first form) (second form)
                                        (map #(marked-form % inner) (nnext form)))
                                 (meta form))
      (scopes head) `(run (^:once fn* [] ~@(marked (rest form) locals)))
      (= with-let head) `(run (^:once fn* [] (let ~(second form) ~@(marked (nnext form) inner))))
      :else form)))

(defn marked
  "Returns `forms` with the last form marked if it is a swap! or reset!. `locals` are the names
  that shadow vars."
  [forms locals]
  (when (seq forms)
    (concat (butlast forms) [(marked-form (last forms) locals)])))
