(ns dev.kvstore.impl.kvstore.workers
  "The worker processes that share a store. org.apache.clojure-mxnet.kvstore exports these
  functions.

    rank num-workers                 the rank of this process; the number of workers
    barrier set-barrier-before-exit  waiting for the other workers
    num-dead-node send-command-to-servers
    members on-member leave          the processes that join and leave a store on servers
    on-rewind                        servers that continue after they were killed
    set-weight                       the weight of this worker in rounds
    checkpoint-on-servers            a checkpoint that the servers write"
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.members :as members]
            [dev.kvstore.impl.net-options :as net-options])
  (:import (dev.kvstore KVStore Rewound)
           (java.util.function Consumer)))

(set! *warn-on-reflection* true)

(defn rank
  "Returns the rank of this process among the workers that share `kvstore`. Ranks start at 0; a
  store of one process has rank 0.

  Throws code `:closed` if `kvstore` is closed.

      (rank (create)) ;=> 0"
  [^KVStore kvstore]
  (errors/guard (.rank kvstore)))

(defn num-workers
  "Returns the number of workers that share `kvstore`; 1 for a store of one process.

  Throws code `:closed` if `kvstore` is closed.

      (num-workers (create)) ;=> 1"
  [^KVStore kvstore]
  (errors/guard (.numWorkers kvstore)))

(defn barrier
  "Waits until every worker has called `barrier`, and returns `kvstore`. Returns immediately for a
  store of one process.

  Throws code `:closed` if `kvstore` is closed.

      (barrier kv)"
  ^dev.kvstore.KVStore [^KVStore kvstore]
  (errors/guard (.barrier kvstore)))

(defn set-barrier-before-exit
  "Sets whether closing `kvstore` waits for the other workers: `barrier-before-exit` is true or
  false. Returns `kvstore`.

  Throws \"Invalid barrier-before-exit\" if it is not a boolean.

      (set-barrier-before-exit kv false)"
  ^dev.kvstore.KVStore [^KVStore kvstore barrier-before-exit]
  (errors/check boolean? barrier-before-exit "barrier-before-exit" "a boolean")
  (errors/guard (.setBarrierBeforeExit kvstore (boolean barrier-before-exit))))

(defn num-dead-node
  "Returns the number of dead processes of `kvstore` in the group `node-id`: 1 selects the
  scheduler, 2 the servers, 4 the workers, and a sum of these selects several groups.

  It is 0 for a store of one process. Throws \"Invalid node-id\" if `node-id` is not an integer.

      (num-dead-node (create) 4) ;=> 0"
  [^KVStore kvstore node-id]
  (errors/check errors/int32? node-id "node-id" "an integer of 32 bits")
  (errors/guard (.numDeadNode kvstore (int node-id))))

(defn send-command-to-servers
  "Sends the command `head`, an integer, with the string `body` to every server, and returns
  `kvstore`.

  Does nothing if there are no servers. Throws \"Invalid head\" and \"Invalid body\".

      (send-command-to-servers kv 7 \"hello\")"
  ^dev.kvstore.KVStore [^KVStore kvstore head body]
  (errors/check errors/int32? head "head" "an integer of 32 bits")
  (errors/check string? body "body" "a string")
  (errors/guard (.sendCommandToServers kvstore (int head) ^String body)))

(defn members
  "Returns the live members of the group of `kvstore`, a store on servers: a vector of maps with
  :name, :rank and :reader, workers first, in the order of their ranks.

  Throws code `:unsupported` if `kvstore` is not on servers, and code `:closed` if `kvstore` is
  closed.

      (members kv)"
  [^KVStore kvstore]
  (errors/guard (members/data (.members kvstore))))

(defn on-member
  "Registers `f`, which a thread of the library calls with the `members` of `kvstore` after each
  change, and returns `kvstore`.

  Replaces the earlier function, which may still run once. `f` may call `kvstore`. Its exceptions
  go to the uncaught-exception handler of the thread. Throws \"Invalid function\" unless `f` is a
  function, and code `:unsupported` if `kvstore` is not on servers.

      (on-member kv (fn [members] (println (count members) \"members\")))"
  ^dev.kvstore.KVStore [^KVStore kvstore f]
  (errors/check ifn? f "function" "a function of the members")
  (errors/guard (.onMember kvstore (reify Consumer
                                     (accept [_ found] (f (members/data found)))))))

(defn on-rewind
  "Registers `f`, which a thread of the library calls each time a server of `kvstore` that was
  killed continues from a recovery point, and returns `kvstore`. `f` gets a map with :server, its
  address, and :version, the highest version of a key in the point.

  Pushes after the point are lost. Calls without a reply are repeated, and none takes effect
  twice. Replaces the earlier function. `f` may call `kvstore`. Its exceptions go to the
  uncaught-exception handler of the thread. Throws \"Invalid function\" unless `f` is a function,
  and code `:unsupported` if `kvstore` is not on servers.

      (on-rewind kv (fn [rewound] (println \"version\" (:version rewound))))"
  ^dev.kvstore.KVStore [^KVStore kvstore f]
  (errors/check ifn? f "function" "a function of what was rewound")
  (errors/guard
   (.onRewind kvstore (reify Consumer
                        (accept [_ found]
                          (let [^Rewound rewound found]
                            (f {:server (.server rewound)
                                :version (.version rewound)})))))))

(defn set-weight
  "Sets the weight of this worker in the weighted means of the next rounds of `kvstore`, for example
  the number of examples that its next push is computed from. Returns `kvstore`.

  Throws \"Invalid weight\" unless `weight` is a finite number above 0, and code `:unsupported` if
  `kvstore` was created without the option :weight.

      (set-weight kv 128)"
  ^dev.kvstore.KVStore [^KVStore kvstore weight]
  (let [weight (net-options/weight weight)]
    (errors/guard (.setWeight kvstore weight))))

(defn leave
  "Leaves the group of `kvstore`, a store on servers, and returns `kvstore`. Later calls throw code
  `:closed`, except `dispose`.

  Throws code `:unsupported` if `kvstore` is not on servers, and code `:closed` if `kvstore` is
  closed.

      (leave kv)"
  ^dev.kvstore.KVStore [^KVStore kvstore]
  (errors/guard (.leave kvstore)))

(defn checkpoint-on-servers
  "Writes a checkpoint on the servers of `kvstore`, and returns `kvstore`. Each server writes its
  values into its folder of checkpoints, under `checkpoint-name`. Transfers no values.

  `restore` reads the folder if it has all parts. Throws \"Invalid checkpoint name\" unless it is
  a string, code `:unsupported` if `kvstore` has no servers or a server has no folder for
  checkpoints, and code `:backend` if a server cannot write its part.

      (checkpoint-on-servers kv \"epoch-3\")"
  ^dev.kvstore.KVStore [^KVStore kvstore checkpoint-name]
  (errors/check string? checkpoint-name "checkpoint name" "a string")
  (errors/guard (.checkpointOnServers kvstore checkpoint-name)))
