(ns org.apache.clojure-mxnet.resource-scope
  "Scopes that close the resources created inside them, except their results.

    using      evaluates forms in a scope
    with-do    the same, under its MXNet name
    with-let   the same, with bindings
    run-in-scope  the same, as a function

  When a scope ends, it closes the arrays, stores and other resources that the thread has created
  inside it, except those that are reachable from the result: the result itself, and elements of
  collections at any depth. Lazy sequences in the result are realised. The reachable resources
  then belong to the enclosing scope, if there is one. Resources created outside of the scope are
  not closed. If a form throws, the scope closes its resources and rethrows the exception.

  If the last form is `(swap! ..)` or `(reset! ..)`, also inside of let, do, when or if, the
  arrays in its value are closed, unless the value is an array itself. So a program that stores
  arrays in an atom does not keep them all open.

      (ndarray/->vec (with-let [a (ndarray/ones [2]) b (ndarray/+ a 1)]
                       (ndarray/* b b))) ;=> [4.0 4.0]"
  (:require [dev.kvstore.impl.printing]
            [dev.kvstore.impl.scopes :as scopes]))

(set! *warn-on-reflection* true)

(defn run-in-scope
  "Calls `f` without arguments in a new scope, and returns its result. Throws what `f` throws.

      (ndarray/->vec (run-in-scope (fn [] (ndarray/ones [2])))) ;=> [1.0 1.0]"
  [f]
  (scopes/value (scopes/run f)))

(defmacro using
  "Evaluates `forms` in a new scope, and returns the value of the last form. Throws what they
  throw.

      (ndarray/->vec (using (ndarray/+ (ndarray/ones [2]) (ndarray/ones [2])))) ;=> [2.0 2.0]"
  [& forms]
  `(scopes/value (scopes/run (^:once fn* [] ~@(scopes/marked forms (set (keys &env)))))))

(defmacro with-do
  "Evaluates `forms` in a new scope, like `using`. Throws what they throw.

      (ndarray/->vec (with-do (ndarray/ones [1]) (ndarray/zeros [1]))) ;=> [0.0]"
  [& forms]
  `(using ~@forms))

(defmacro with-let
  "Evaluates `forms` with `bindings` in a new scope, and returns the value of the last form.

  `bindings` are like those of `let`. The resources that they create belong to the scope, too.
  Throws what they throw.

      (ndarray/->vec (with-let [a (ndarray/ones [2])] (ndarray/+ a 2))) ;=> [3.0 3.0]"
  [bindings & forms]
  `(using (let ~bindings ~@forms)))
