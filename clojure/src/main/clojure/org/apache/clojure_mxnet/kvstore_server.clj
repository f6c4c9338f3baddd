(ns org.apache.clojure-mxnet.kvstore-server
  "Servers: stores that other processes reach over the network, as \"dist_async\" stores.

    start            starts a server in this process, or serves a launched job
    address store    the address of a server; the store of its values
    metrics-address  the address of its HTTP endpoint
    members          the live members
    on-command       a function for the commands of workers
    stop             ends a server
    init             sets the environment of a job, as in MXNet

      (with-open [server (start {:address \"127.0.0.1:0\"})
                  kv (kvstore/create \"dist_async\" {:servers [(address server)]})]
        (kvstore/init kv \"w\" (ndarray/zeros [2]))
        (ndarray/->vec (kvstore/pull (store server) \"w\"))) ;=> [0.0 0.0]

  If other machines can reach the address, the server and its members need the option :certificates,
  or both set :insecure. Without certificates, connections are neither authenticated nor encrypted."
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.kvstore.settings :as settings]
            [dev.kvstore.impl.launch :as launch]
            [dev.kvstore.impl.members :as members-data]
            [dev.kvstore.impl.net-options :as net-options]
            [dev.kvstore.impl.options :as options])
  (:import (dev.kvstore CommandHandler KVStore KVStoreServer)
           (java.util.function Consumer)))

(set! *warn-on-reflection* true)

(defn init
  "Replaces the environment variables that `start` and `kvstore/create` read to find their job.
  Returns nil. `env-map` is a map of strings to strings with all `DMLC_` variables. An empty map
  selects the environment of this process, which is the default.

  Throws \"Invalid environment map\" for anything else.

      (init {\"DMLC_ROLE\" \"worker\"}) ;=> nil"
  [env-map]
  (errors/check #(and (map? %) (every? string? (keys %)) (every? string? (vals %)))
                env-map "environment map" "a map of strings to strings")
  (reset! launch/environment (not-empty env-map))
  nil)

(defn address
  "Returns the address that `server` listens on, as \"HOST:PORT\". Never throws for a server,
  running or stopped.

      (with-open [server (start {:address \"127.0.0.1:0\"})]
        (string? (address server))) ;=> true"
  [^KVStoreServer server]
  (.address server))

(defn metrics-address
  "Returns the address of the HTTP endpoint of `server` as \"HOST:PORT\", or nil if it has none.
  Never throws for a server, also after `stop`.

      (with-open [server (start {:address \"127.0.0.1:0\"})]
        (metrics-address server)) ;=> nil"
  ^String [^KVStoreServer server]
  (.orElse (.metricsAddress server) nil))

(defn store
  "Returns the store that holds the values of `server`, for example to set an updater. Its verbs
  change the values for all members. `stop` closes it. Never throws for a server, running or
  stopped.

      (with-open [server (start {:address \"127.0.0.1:0\"})]
        (kvstore/type (store server))) ;=> \"local\""
  ^dev.kvstore.KVStore [^KVStoreServer server]
  (.store server))

(defn members
  "Returns the live members of `server`: a vector of maps with :name, :rank and :reader.

  Throws code `:closed` after `stop`.

      (with-open [server (start {:address \"127.0.0.1:0\"})] (members server)) ;=> []"
  [^KVStoreServer server]
  (errors/guard (members-data/data (.members server))))

(defn on-command
  "Registers `f` for the commands of workers, and returns `server`: calls (f head body) with an
  integer and a string. Without a function, commands have no effect.

  If `f` throws, the worker gets an error with the class and the message of the exception. Throws
  \"Invalid function\" unless `f` is one.

      (with-open [server (start {:address \"127.0.0.1:0\"})]
        (on-command server (fn [head body] (println head body)))
        (count (members server))) ;=> 0"
  ^dev.kvstore.KVStoreServer [^KVStoreServer server f]
  (errors/check ifn? f "function" "a function of head and body")
  (errors/guard (.onCommand server (reify CommandHandler
                                     (handle [_ head body] (f head body))))))

(defn stop
  "Rejects new calls that change the store of `server`, completes running calls for at most a
  minute, closes the connections and the store, and returns nil. `with-open` does so, too. Does
  nothing for a stopped server. An updater or command function of `server` must not call it: it
  would wait for itself.

  Throws the failure of a checkpoint of its `store` if no call has reported it yet.

      (stop (start {:address \"127.0.0.1:0\"})) ;=> nil"
  [^KVStoreServer server]
  (errors/guard (.close server)))

(defn- prepare
  "Sets the updater and the function for commands in the map `opts`."
  [^KVStoreServer server {:keys [updater] command :on-command}]
  (when (some? updater)
    (settings/set-updater (store server) updater))
  (when (some? command)
    (on-command server command))
  server)

(def ^:private launched-options (conj net-options/server-names :updater :on-command))

(defn- run-job
  [opts]
  (options/check opts launched-options)
  (let [options (net-options/server opts)
        env-map (or @launch/environment (System/getenv))]
    (errors/guard (KVStoreServer/runLaunched env-map options
                                             (reify Consumer
                                               (accept [_ server] (prepare server opts)))))
    nil))

(defn start
  "Starts a server in this process, or runs the server of a job.

  With a map, starts a server and returns it. It runs until `stop` or `with-open` ends it, but
  does not keep the JVM alive. A signal ends the JVM without completing running calls, unless a
  shutdown hook calls `stop`. The options:

    :address           \"HOST:PORT\"; port 0 selects a free one; \"127.0.0.1:9191\" by default
    :config            a TOML file with other options by name, such as peer_bytes; options given
                       here override it
    :store             the type of the store with the values: \"local\" (the default) or \"device\"
    :checkpoints       the folder for `checkpoint-on-servers`; without one, the server writes no
                       files
    :recovery          the folder for recovery points, from which the server continues after it
                       was killed; without one, it starts empty
    :save-every        how many seconds between recovery points, 30 by default
    :journal           the file for all calls that change values, which `kvstore replay` reads;
                       none by default
    :journal-mode      \"full\" (the default), or \"order\" for members and keys without values
    :journal-required  whether calls fail if the journal cannot be written; by default, it stops
    :lease             how many seconds a silent member stays live, 10 by default
    :certificates      a folder with ca.pem, cert.pem and key.pem; KVSTORE_CERTIFICATES by default
    :insecure          whether to permit other machines without certificates; false by default, or
                       the value of KVSTORE_INSECURE
    :peer-connections  the most connections from one machine, 256 by default
    :peer-bytes        the most bytes in calls from one machine; half the memory limit, at least
                       64 MiB, by default
    :keys              the most keys, 4 million by default
    :metrics           \"HOST:PORT\" for /metrics and /healthz over HTTP; none by default
    :status-page       whether :metrics also has a page with members and keys; false by default
    :followers         for the first of several servers: the addresses of the others, in the order
                       of the workers' list, for rounds over all of them; not with a coordinator
    :coordinator       \"etcd://HOST:PORT,../GROUP\", where the state of the group is; by default,
                       the first server keeps it
    :coordinator-certificates
                       a folder with the certificates for the coordinator
    :server-index      the index of this server in the group, from 0; 0 by default. With a
                       coordinator, it waits until the lease of an earlier server with this index
                       ends. With :followers, only server 0 uses them
    :num-servers       how many servers the group has, 1 by default
    :advertise         \"HOST:PORT\" where members connect, which they get from the coordinator;
                       where the server listens by default
    :updater           a function of key, pushed and stored, as for `set-updater`
    :on-command        a function of head and body, as for `on-command`

  With certificates, members need a certificate of the same authority. The organizational unit of
  its subject is their role: \"reader\" may read; \"worker\" and \"server\" may also change values
  and settings; \"admin\" may also remove keys, roll back, restore and send commands. `kvstore
  certs` makes a folder for each role. If :certificates or a true :insecure is in the map, neither
  option is read from the environment or the file.

  Without a map, serves the job of MXNet's launcher as its server or scheduler. The variables of
  the job are those of `init`, otherwise those of this process. Returns nil after all workers have
  joined and left. `opts` are the options above without :address.
  `die-if-others-go-out-timeout` has no effect.

  Throws code `:backend` if the address cannot be used, code `:invalid-argument` if an option is not
  valid, the address is not loopback and has neither :certificates nor :insecure, or this process is
  a worker or belongs to no job, and code `:timeout` if not all processes join in time. Throws
  \"Invalid setting\" unless `die-if-others-go-out-timeout` is an integer or a map.

      (with-open [server (start {:address \"127.0.0.1:0\"
                                 :updater (fn [_ pushed stored] (ndarray/+= stored pushed))})]
        (kvstore/keys (store server))) ;=> []"
  (^dev.kvstore.KVStoreServer [] (start 0))
  (^dev.kvstore.KVStoreServer [die-if-others-go-out-timeout]
   (if (map? die-if-others-go-out-timeout)
     (let [opts die-if-others-go-out-timeout]
       (options/check opts (into [:address] launched-options))
       (let [options (net-options/server opts)
             server (errors/guard (KVStoreServer/start options))]
         (try
           (prepare server opts)
           (catch Throwable failure
             (stop server)
             (throw failure)))))
     (start die-if-others-go-out-timeout nil)))
  ([die-if-others-go-out-timeout opts]
   (when-not (int? die-if-others-go-out-timeout)
     (errors/reject "setting" "an integer or a map" die-if-others-go-out-timeout
                    {:found die-if-others-go-out-timeout
                     :place "for `die-if-others-go-out-timeout`"}))
   (run-job opts)))
