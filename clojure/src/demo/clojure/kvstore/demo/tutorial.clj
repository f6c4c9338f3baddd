(ns kvstore.demo.tutorial
  "Runs a page of code like a reader at a REPL.

    follow   evaluates and prints a page, and checks its values"
  (:require [clojure.java.io :as io]
            [clojure.string :as string])
  (:import (clojure.lang LineNumberingPushbackReader)))

(set! *warn-on-reflection* true)

(defn- next-expression
  "Returns the next :form on the page, its :text, and the value :given after it behind ;=>. Returns
  nil at the end."
  [^LineNumberingPushbackReader page]
  (let [[form text] (read+string page false page)]
    (when-not (identical? form page)
      (let [[_ given] (re-find #";=>(.*)" (or (.readLine page) ""))]
        {:form form
         :text (string/trim text)
         :given (some-> given string/trim)}))))

(defn- comment?
  [line]
  (re-matches #"\s*(;.*)?" line))

(defn- prompt
  "Prints the comments before an expression, and the expression as a REPL would show it."
  [text]
  (let [[comments code] (split-with comment? (string/split-lines text))
        namespace-prompt (str (ns-name *ns*) "=> ")
        indent (apply str (repeat (count namespace-prompt) \space))]
    (run! println comments)
    (println (str namespace-prompt (string/join (str "\n" indent) code)))))

(defn- answer
  "Prints `value`, and whether it is the value that the page has `given`. Throws if it is not."
  [value text given]
  (let [expected (some-> given read-string)
        right? (= expected value)]
    (println (str (pr-str value)
                  (when given
                    (if right? "   ✓ as the page says" (str "   ✗ the page says " given)))))
    (when (and given (not right?))
      (throw (ex-info "a value is not that of the page"
                      {:expression text :expected expected :found value})))))

(defn follow
  "Evaluates the page in the resource `page-name`, and prints each expression and its value.

  Throws if a value differs from the page, or if the page does not have `num-given` values. The
  number ensures that the page was followed to its end."
  [page-name num-given]
  (with-open [page (LineNumberingPushbackReader. (io/reader (io/resource page-name)))]
    (binding [*ns* *ns*]
      (loop [checked 0]
        (if-some [{:keys [form text given]} (next-expression page)]
          (do
            (prompt text)
            (answer (eval form) text given)
            (recur (cond-> checked given inc)))
          (when-not (= num-given checked)
            (throw (ex-info "the page gives another number of values"
                            {:page page-name :expected num-given :found checked}))))))))
