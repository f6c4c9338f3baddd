(ns kvstore.repl.console
  "Reads forms from a terminal. JLine edits lines, and Clojure's reader splits them into forms.

    terminal      the terminal of this process
    dumb?         whether it cannot edit lines
    form-reader   the :read function for `clojure.main/repl`"
  (:require [clojure.string :as string])
  (:import (clojure.lang LineNumberingPushbackReader LispReader$Resolver)
           (java.io File PushbackReader StringReader)
           (java.util List)
           (org.jline.reader Candidate Completer CompletingParsedLine EOFError EndOfFileException
                             LineReader LineReader$Option LineReaderBuilder ParsedLine Parser
                             Parser$ParseContext UserInterruptException)
           (org.jline.terminal Terminal Terminal$Signal Terminal$SignalHandler TerminalBuilder)))

(set! *warn-on-reflection* true)

(defn terminal
  "Returns the terminal of this process, which is a dumb terminal if the input is not a terminal."
  ^org.jline.terminal.Terminal []
  (-> (TerminalBuilder/builder) (.system true) (.dumb true) (.build)))

(defn dumb?
  "Returns whether the `terminal` can only print."
  [^Terminal terminal]
  (string/starts-with? (.getType terminal) Terminal/TYPE_DUMB))

;; Resolves any alias, because a text may use aliases that it defines itself.
(def ^:private lenient-resolver
  (reify LispReader$Resolver
    (currentNS [_] 'user)
    (resolveClass [_ _] nil)
    (resolveAlias [_ alias] alias)
    (resolveVar [_ _] nil)))

(defn- reader-on
  ^PushbackReader [^String text]
  (LineNumberingPushbackReader. (StringReader. text)))

(defn- complete?
  "Returns whether all forms in `text` are complete. A text that cannot be read counts as complete:
  evaluating it reports the error."
  [text]
  (let [reader (reader-on text)]
    (binding [*read-eval* false
              *default-data-reader-fn* tagged-literal
              *reader-resolver* lenient-resolver]
      (try
        (while (not (identical? reader (read {:eof reader :read-cond :preserve} reader))))
        true
        (catch RuntimeException e
          (not-any? #(some-> (ex-message %) (string/includes? "EOF while reading"))
                    (take-while some? (iterate ex-cause e))))))))

(defn- word-before
  "Returns the part of `line` before `cursor` that could be part of a symbol."
  [^String line cursor]
  (re-find #"[^\s()\[\]{}\"'`~@^,;#]*$" (subs line 0 cursor)))

(defn- parsed-line
  [line cursor]
  (let [word (word-before line cursor)]
    (reify CompletingParsedLine
      (word [_] word)
      (wordCursor [_] (count word))
      (wordIndex [_] 0)
      (words [_] [word])
      (line [_] line)
      (cursor [_] (int cursor))
      (escape [_ candidate _] candidate)
      (rawWordCursor [_] (count word))
      (rawWordLength [_] (count word)))))

(def ^:private parser
  (reify Parser
    (^ParsedLine parse [_ ^String line ^int cursor ^Parser$ParseContext context]
     (when (and (= context Parser$ParseContext/ACCEPT_LINE) (not (complete? line)))
       (throw (EOFError. -1 cursor "the form is incomplete")))
     (parsed-line line cursor))))

(defn- names-like
  "Returns the names that may complete `word`: those of its alias, or all names that *ns* knows."
  [word]
  (if-let [[_ alias-name] (re-matches #"(.+)/.*" word)]
    (when-let [target (or (get (ns-aliases *ns*) (symbol alias-name))
                          (find-ns (symbol alias-name)))]
      (map #(str alias-name "/" %) (keys (ns-publics target))))
    (concat (map #(str % "/") (keys (ns-aliases *ns*)))
            (map str (keys (ns-map *ns*))))))

(def ^:private completer
  (reify Completer
    (^void complete [_ ^LineReader _ ^ParsedLine line ^List candidates]
     (let [word (.word line)]
       (doseq [^String candidate (names-like word)
               :when (string/starts-with? candidate word)]
         (.add candidates (Candidate. candidate candidate nil nil nil nil
                                      (not (string/ends-with? candidate "/")))))))))

(defn- line-reader
  ^LineReader [^Terminal terminal ^File history]
  (-> (LineReaderBuilder/builder)
      (.terminal terminal)
      (.parser parser)
      (.completer completer)
      (.variable LineReader/HISTORY_FILE (.toPath history))
      (.variable LineReader/SECONDARY_PROMPT_PATTERN "%P  ")
      (.variable LineReader/BLINK_MATCHING_PAREN 0)
      (.option LineReader$Option/DISABLE_EVENT_EXPANSION true)
      (.build)))

(defn- interrupt-on-ctrl-c
  "Makes Ctrl-C interrupt the evaluation, which runs in this thread, rather than terminate the
  process.

  If the evaluation ignores the interrupt, as a busy loop does, a second Ctrl-C terminates the
  process."
  [^Terminal terminal]
  (let [evaluating (Thread/currentThread)]
    (.handle terminal Terminal$Signal/INT
             (reify Terminal$SignalHandler
               (handle [_ _]
                 (if (.isInterrupted evaluating)
                   (.halt (Runtime/getRuntime) 130)
                   (.interrupt evaluating)))))))

(defn- next-text
  "Returns the next complete text that the user enters, or nil at the end of the input. Ctrl-C
  discards the current text."
  [^LineReader reader]
  ;; Clear an interrupt that the last evaluation ignored, because it would end this read.
  (Thread/interrupted)
  (try
    (.readLine reader (str (ns-name *ns*) "=> "))
    (catch UserInterruptException _ "")
    (catch EndOfFileException _ nil)))

(defn form-reader
  "Returns a function that reads one form after the other from `terminal`.

  A text may contain several forms. The file `history` stores the entered texts."
  [terminal history]
  (let [reader (line-reader terminal history)
        pending (volatile! (reader-on ""))]
    (interrupt-on-ctrl-c terminal)
    (fn [_request-prompt request-exit]
      (loop []
        (let [form (try
                     (read {:eof pending :read-cond :allow} @pending)
                     (catch Exception e
                       ;; Discard the rest of the text after a form that cannot be read.
                       (vreset! pending (reader-on ""))
                       (throw e)))]
          (if-not (identical? form pending)
            form
            (if-some [text (next-text reader)]
              (do (vreset! pending (reader-on text))
                  (recur))
              request-exit)))))))
