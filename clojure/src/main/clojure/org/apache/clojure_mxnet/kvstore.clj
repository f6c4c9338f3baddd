(ns org.apache.clojure-mxnet.kvstore
  "A store of named arrays that many devices share.

  A store's life
    create dispose type
  What there is
    doctor                     this machine and this library
    stats                      keys with what they hold; native memory
    soft-cap set-soft-cap trim register-mxbean  limits of native memory, and who sees it
  Values
    init                       puts a value under a key
    push pull                  sums values into a key; reads it
    pushpull broadcast         push then pull; init then pull
    row-sparse-pull            reads some rows of a value
    keys contains? remove      what is in the store
  What a push does
    set-updater set-optimizer  a function of yours, or an update rule
    hyper-parameters set-hyper-parameters  of the rule, while it runs
    set-gradient-compression
    clip-global-norm set-clip-global-norm  a bound of the norm of a push
  All of it
    snapshot rollback          a store at one moment, and back to it
    snapshot-keys snapshot-value snapshot-state  what is in one, as `stats` and `hyper-parameters`
    snapshot-diff snapshot=    two of them beside each other
    checkpoint restore         a snapshot in a file; progress read-snapshot
    save-optimizer-states load-optimizer-states  of the states alone
  Workers
    rank num-workers barrier set-barrier-before-exit num-dead-node send-command-to-servers

  Keys are strings; a keyword or a symbol is a key by its name, without its namespace. For keys and
  values, four forms are accepted: a key and an array; a key and a list of arrays; keys and as many
  arrays; keys and as many lists of arrays. Lists are sequentials (also eductions), ordered Java
  collections, and object arrays. A key that occurs several times in a call, as in
  [\"3\" \"3\" \"3\"], has several values: pushed they are summed, pulled each gets the value. A map from
  keys to any of these is both arguments in one; two of its keys must not have one name. A call is checked whole before it changes anything.

  Failures are `ex-info` with `:kvstore/code`, and `:kvstore/key`, `:kvstore/expected` and `:kvstore/found`
  where they apply. `:kvstore/value` is the wrong argument, `:kvstore/position` the index of the fault
  in it; a map has none. Exceptions of your updater reach the caller of push unchanged.

      (def kv (create \"local\"))
      (init kv \"w\" (ndarray/zeros [2 3]))
      (push kv \"w\" [(ndarray/ones [2 3]) (ndarray/ones [2 3])])
      (ndarray/->vec (pull kv \"w\")) ;=> [2.0 2.0 2.0 2.0 2.0 2.0]"
  (:refer-clojure :exclude [contains? keys remove type])
  (:require [dev.kvstore.impl.export :refer [export]]
            [dev.kvstore.impl.kvstore.checkpoints]
            [dev.kvstore.impl.kvstore.life]
            [dev.kvstore.impl.kvstore.rows]
            [dev.kvstore.impl.kvstore.rules]
            [dev.kvstore.impl.kvstore.snapshots]
            [dev.kvstore.impl.kvstore.values]
            [dev.kvstore.impl.kvstore.workers]
            [dev.kvstore.impl.printing]))

(set! *warn-on-reflection* true)

(export
  [dev.kvstore.impl.kvstore.life
   create dispose type
   doctor stats
   soft-cap set-soft-cap trim register-mxbean]
  [dev.kvstore.impl.kvstore.values
   init
   push pull
   pushpull broadcast
   keys contains? remove]
  [dev.kvstore.impl.kvstore.rows
   row-sparse-pull]
  [dev.kvstore.impl.kvstore.rules
   set-updater set-optimizer
   hyper-parameters set-hyper-parameters
   set-gradient-compression
   clip-global-norm set-clip-global-norm]
  [dev.kvstore.impl.kvstore.snapshots
   snapshot rollback
   snapshot-keys snapshot-value snapshot-state
   snapshot-diff snapshot=]
  [dev.kvstore.impl.kvstore.checkpoints
   checkpoint progress restore read-snapshot
   save-optimizer-states load-optimizer-states]
  [dev.kvstore.impl.kvstore.workers
   rank num-workers barrier set-barrier-before-exit num-dead-node send-command-to-servers])
