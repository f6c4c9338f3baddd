(ns dev.kvstore.impl.launch
  "The job of this process, if one of MXNet's launchers has started it.

    environment   an atom with the environment that kvstore-server/init has set, or nil")

(set! *warn-on-reflection* true)

(defonce ^{:doc "The environment that kvstore-server/init has set, or nil."}
  environment
  (atom nil))
