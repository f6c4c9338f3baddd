(ns org.apache.clojure-mxnet.resource-scope
  "Scopes that free what was made inside of them, but not what they return.

    using      runs forms in a scope
    with-do    the same, with its name in MXNet
    with-let   the same, with bindings
    run-in-scope  the same as a function

  Arrays, stores and states of optimizers that this thread makes inside are disposed at the end, except
  those that can be reached from the value: the value itself, and what is in collections, at any depth, with
  lazy sequences realised. These belong to the scope around, if there is one. What was made outside is left
  alone, and an exception comes out after everything has been disposed.

  The value of `(swap! ..)` or `(reset! ..)` as the last form, also inside of let, do, when or if, is
  not a result: its arrays are freed unless it is an array itself. So a program that stores arrays in an
  atom does not keep them.

      (ndarray/->vec (with-let [a (ndarray/ones [2]) b (ndarray/+ a 1)] (ndarray/* b b))) ;=> [4.0 4.0]"
  (:require [dev.kvstore.impl.printing]
            [dev.kvstore.impl.scopes :as scopes]))

(set! *warn-on-reflection* true)

(defn run-in-scope
  "Calls `f`, without arguments, in a scope of its own, and returns what it returns. Throws what it throws.

      (ndarray/->vec (run-in-scope (fn [] (ndarray/ones [2])))) ;=> [1.0 1.0]"
  [f]
  (scopes/value (scopes/run f)))

(defmacro using
  "Evaluates `forms` in a scope, and returns the value of the last one. Throws what they throw.

      (ndarray/->vec (using (ndarray/+ (ndarray/ones [2]) (ndarray/ones [2])))) ;=> [2.0 2.0]"
  [& forms]
  `(scopes/value (scopes/run (^:once fn* [] ~@(scopes/marked forms (set (keys &env)))))))

(defmacro with-do
  "Evaluates `forms` in a scope, as `using` does. Throws what they throw.

      (ndarray/->vec (with-do (ndarray/ones [1]) (ndarray/zeros [1]))) ;=> [0.0]"
  [& forms]
  `(using ~@forms))

(defmacro with-let
  "Evaluates `forms` with `bindings` in a scope, and returns the value of the last one.

  `bindings` are those of `let`; what they make belongs to the scope too. Throws what they throw.

      (ndarray/->vec (with-let [a (ndarray/ones [2])] (ndarray/+ a 2))) ;=> [3.0 3.0]"
  [bindings & forms]
  `(using (let ~bindings ~@forms)))
