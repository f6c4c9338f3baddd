(ns org.apache.clojure-mxnet.optimizer
  "Update rules that run on the store, for `kvstore/set-optimizer`.

    sgd   stochastic gradient descent with momentum and weight decay

  An optimizer is a value: one of them can serve any number of stores, each keeps its own state."
  (:require [dev.kvstore.impl.errors :as errors]
            [dev.kvstore.impl.options :as options]
            [dev.kvstore.impl.printing])
  (:import (dev.kvstore Optimizer)))

(set! *warn-on-reflection* true)

(def ^:private sgd-defaults
  {:learning-rate 0.01
   :momentum 0
   :wd 1e-4
   :clip-gradient 0})

(defn- checked
  [optimizer-name defaults opts]
  (options/check opts (conj (vec (keys defaults)) :lr-scheduler))
  (when (some? (:lr-scheduler opts))
    (throw (ex-info "learning rate schedulers are not supported yet"
                    {:kvstore/code :unsupported :kvstore/value (:lr-scheduler opts)})))
  (let [values (merge defaults (dissoc opts :lr-scheduler))]
    (when-not (every? number? (vals values))
      (errors/invalid (str "Incorrect " optimizer-name " optimizer options") opts))
    values))

(defn sgd
  "Returns stochastic gradient descent.

  Options: `:learning-rate` 0.01, `:momentum` 0, `:wd` (weight decay) 1e-4 and `:clip-gradient` 0, which
  is off. With g = clip(gradient) + wd * weight, each push does m = momentum * m - learning-rate * g and
  weight = weight + m.

  Throws \"Incorrect sgd optimizer options\" when a value is no number, and for an option it does not
  know.

      (kvstore/set-optimizer kv (sgd {:learning-rate 0.1 :momentum 0.9}))"
  (^dev.kvstore.Optimizer [] (sgd {}))
  (^dev.kvstore.Optimizer [opts]
   (let [{:keys [learning-rate momentum wd clip-gradient]} (checked "sgd" sgd-defaults opts)]
     (errors/guard
       (-> (Optimizer/sgd)
           (.learningRate (double learning-rate))
           (.momentum (double momentum))
           (.weightDecay (double wd))
           (.clipGradient (double clip-gradient)))))))
