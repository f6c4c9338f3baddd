(ns kvstore.repl.console
  "Forms from a terminal: line editing by JLine, cut into forms by Clojure's reader.

    terminal      the terminal that this process has
    dumb?         can it not edit lines?
    form-reader   what `clojure.main/repl` wants as its :read"
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
  "Returns the terminal of this process, a dumb one when its input is no terminal."
  ^org.jline.terminal.Terminal []
  (-> (TerminalBuilder/builder) (.system true) (.dumb true) (.build)))

(defn dumb?
  "Can the `terminal` do no more than print?"
  [^Terminal terminal]
  (string/starts-with? (.getType terminal) Terminal/TYPE_DUMB))

;; Whether a text is complete must not depend on aliases that it defines itself further up.
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
  "Are all forms in `text` closed? A text that cannot be read is: its evaluation says what is wrong."
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
  "The end of `line` up to `cursor` that could be part of a symbol."
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
       (throw (EOFError. -1 cursor "the form goes on")))
     (parsed-line line cursor))))

(defn- names-like
  "The names that can stand where `word` was begun: those of its alias, else all that *ns* knows."
  [word]
  (if-let [[_ alias-name] (re-matches #"(.+)/.*" word)]
    (when-let [target (or (get (ns-aliases *ns*) (symbol alias-name)) (find-ns (symbol alias-name)))]
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
  "Makes Ctrl-C interrupt the evaluation, which runs in this thread, and not end the process.

  An evaluation that does not heed it, a busy loop, ends with the process at the second Ctrl-C."
  [^Terminal terminal]
  (let [evaluating (Thread/currentThread)]
    (.handle terminal Terminal$Signal/INT
             (reify Terminal$SignalHandler
               (handle [_ _]
                 (if (.isInterrupted evaluating)
                   (.halt (Runtime/getRuntime) 130)
                   (.interrupt evaluating)))))))

(defn- next-text
  "The next complete text that the user enters, nil at the end. Ctrl-C drops what was typed so far."
  [^LineReader reader]
  ;; An interrupt that the last evaluation did not heed must not end this read.
  (Thread/interrupted)
  (try
    (.readLine reader (str (ns-name *ns*) "=> "))
    (catch UserInterruptException _ "")
    (catch EndOfFileException _ nil)))

(defn form-reader
  "Returns a function that reads one form after the other from `terminal`.

  One entered text may hold several forms. `history` is the file that keeps the texts."
  [terminal history]
  (let [reader (line-reader terminal history)
        pending (volatile! (reader-on ""))]
    (interrupt-on-ctrl-c terminal)
    (fn [_request-prompt request-exit]
      (loop []
        (let [form (try
                     (read {:eof pending :read-cond :allow} @pending)
                     (catch Exception e
                       ;; What follows a form that cannot be read is not worth evaluating.
                       (vreset! pending (reader-on ""))
                       (throw e)))]
          (if-not (identical? form pending)
            form
            (if-some [text (next-text reader)]
              (do (vreset! pending (reader-on text))
                  (recur))
              request-exit)))))))
