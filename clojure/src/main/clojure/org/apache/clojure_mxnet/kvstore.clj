(ns org.apache.clojure-mxnet.kvstore
  "A store of named arrays that many devices share.

  Creating and closing
    create dispose type
  Information
    doctor                     this machine and this library
    stats                      statistics of the keys; native memory
    soft-cap set-soft-cap trim register-mxbean  limits and monitoring of native memory
  Values
    init                       stores a value under a new key
    push pull                  sums values into a key; reads it
    pushpull broadcast         push then pull; init then pull
    row-sparse-pull            returns some rows of a value
    keys contains? remove      the keys of a store
    version                    how many pushes have changed a key
  Settings for pushes
    set-updater set-optimizer  a function of yours, or an optimizer
    push-staleness             the staleness of the push that an updater runs for
    hyper-parameters set-hyper-parameters  the hyper-parameters of the store's optimizer
    set-gradient-compression
    clip-global-norm set-clip-global-norm  the bound of the global norm of a push
  Complete contents
    snapshot rollback          taking a snapshot, and rolling back to it
    snapshot-load              with all values in the memory of this process
    snapshot-keys snapshot-value snapshot-state  its contents; also `stats`, `hyper-parameters`
    snapshot-diff snapshot=    comparing two snapshots
    checkpoint restore         a snapshot in a file; progress read-snapshot snapshot-files
    save-optimizer-states load-optimizer-states  only the optimizer states
  Workers
    rank num-workers barrier set-barrier-before-exit num-dead-node send-command-to-servers
    members on-member leave    the processes that join and leave a store on servers
    on-rewind                  servers that continue after they were killed
    set-weight                 the weight of this worker in rounds
    checkpoint-on-servers      a checkpoint that the servers write

  Keys are strings. A keyword or a symbol denotes the key with its name, without its namespace.
  Keys and values can have four forms: a key and an array; a key and a list of arrays; keys and as
  many arrays; keys and as many lists of arrays. Lists are sequentials (including eductions),
  ordered Java collections, and object arrays. If a key occurs several times in a call, as in
  [\"3\" \"3\" \"3\"], it has several values: push sums them, and pull writes the stored value to
  each. A map from keys to values in any of these forms replaces both arguments; two of its keys
  must not have the same name. A call checks all its arguments before it changes anything.

  Failures are `ex-info` with `:kvstore/code`, and with `:kvstore/key`, `:kvstore/expected` and
  `:kvstore/found` where they apply. `:kvstore/value` is the invalid argument, and
  `:kvstore/position` the index of the invalid element in it; a map has no positions. Exceptions
  of your updater reach the caller of push unchanged.

      (def kv (create \"local\"))
      (init kv \"w\" (ndarray/zeros [2 3]))
      (push kv \"w\" [(ndarray/ones [2 3]) (ndarray/ones [2 3])])
      (ndarray/->vec (pull kv \"w\")) ;=> [2.0 2.0 2.0 2.0 2.0 2.0]"
  (:refer-clojure :exclude [contains? keys remove type])
  (:require [dev.kvstore.impl.export :refer [export]]
            [dev.kvstore.impl.kvstore.checkpoints]
            [dev.kvstore.impl.kvstore.information]
            [dev.kvstore.impl.kvstore.lifecycle]
            [dev.kvstore.impl.kvstore.rows]
            [dev.kvstore.impl.kvstore.settings]
            [dev.kvstore.impl.kvstore.snapshots]
            [dev.kvstore.impl.kvstore.values]
            [dev.kvstore.impl.kvstore.workers]
            [dev.kvstore.impl.printing]))

(set! *warn-on-reflection* true)

(export
  [dev.kvstore.impl.kvstore.lifecycle
   create dispose type]
  [dev.kvstore.impl.kvstore.information
   doctor stats
   soft-cap set-soft-cap trim register-mxbean]
  [dev.kvstore.impl.kvstore.values
   init
   push pull
   pushpull broadcast
   keys contains? remove version]
  [dev.kvstore.impl.kvstore.rows
   row-sparse-pull]
  [dev.kvstore.impl.kvstore.settings
   set-updater push-staleness set-optimizer
   hyper-parameters set-hyper-parameters
   set-gradient-compression
   clip-global-norm set-clip-global-norm]
  [dev.kvstore.impl.kvstore.snapshots
   snapshot rollback snapshot-load
   snapshot-keys snapshot-value snapshot-state
   snapshot-diff snapshot=]
  [dev.kvstore.impl.kvstore.checkpoints
   checkpoint progress restore read-snapshot snapshot-files
   save-optimizer-states load-optimizer-states]
  [dev.kvstore.impl.kvstore.workers
   rank num-workers barrier set-barrier-before-exit num-dead-node send-command-to-servers
   members on-member leave on-rewind set-weight
   checkpoint-on-servers])
