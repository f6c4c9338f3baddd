(ns kvstore.demo.network
  "A network with one hidden layer, written only with array functions.

    initial      the initial parameters
    gradients    the gradients of the loss, for every parameter
    predict      the predicted labels

  Parameters are a map of arrays: the weights :w1 [64 hidden] and :w2 [hidden 10], and the biases
  :b1 [1 hidden] and :b2 [1 10]. A batch is a map of the pixels :x, the labels :y and a column of
  :ones."
  (:require [org.apache.clojure-mxnet.ndarray :as ndarray])
  (:import (java.util Random)))

(set! *warn-on-reflection* true)

(defn- weights
  "Returns an array [num-in num-out] of random numbers, small enough to keep the output of the
  layer near 1."
  [^Random random num-in num-out]
  (let [scale (Math/sqrt (/ 2.0 num-in))]
    (ndarray/array (repeatedly (* num-in num-out) #(* scale (.nextGaussian random)))
                   [num-in num-out])))

(defn initial
  "Returns random parameters with `num-hidden` hidden units. They depend only on `seed`."
  [seed num-hidden]
  (let [random (Random. seed)]
    {:w1 (weights random 64 num-hidden)
     :b1 (ndarray/zeros [1 num-hidden])
     :w2 (weights random num-hidden 10)
     :b2 (ndarray/zeros [1 10])}))

(defn- layer
  "Returns x * w + b for every row of x. The column of ones repeats b for each row."
  ^dev.kvstore.NDArray [x w b ones]
  (with-open [bias (ndarray/dot ones b)]
    (ndarray/+= (ndarray/dot x w) bias)))

(defn- softmax
  "Returns the rows of `z` as probabilities. The logits of this network are too small for exp to
  overflow."
  ^dev.kvstore.NDArray [z]
  (with-open [powers (ndarray/exp z)
              square (ndarray/ones [10 10] {:ctx (ndarray/context z)})
              totals (ndarray/dot powers square)]
    (ndarray/div powers totals)))

(defn- loss
  "Returns the sum of -log p of the true labels `y`."
  [p y]
  (with-open [log-p (ndarray/log p)
              of-true (ndarray/* y log-p)
              total (ndarray/sum of-true)]
    (- (ndarray/to-scalar total))))

(defn gradients
  "Returns the :gradients of the mean loss, one per parameter, and the :loss summed over this part.

  The part is one device's share of a batch of `batch-size` digits. The gradients of all parts add
  up to the gradients of the batch."
  [{:keys [w1 b1 w2 b2]} {:keys [x y ones]} batch-size]
  (with-open [z1 (layer x w1 b1 ones)
              hidden (ndarray/relu z1)
              z2 (layer hidden w2 b2 ones)
              p (softmax z2)
              error2 (ndarray/div= (ndarray/- p y) batch-size)
              w2-t (ndarray/t w2)
              back (ndarray/dot error2 w2-t)
              active (ndarray/> z1 0)
              error1 (ndarray/* back active)
              x-t (ndarray/t x)
              hidden-t (ndarray/t hidden)
              ones-t (ndarray/t ones)]
    {:loss (loss p y)
     :gradients {:w1 (ndarray/dot x-t error1)
                 :b1 (ndarray/dot ones-t error1)
                 :w2 (ndarray/dot hidden-t error2)
                 :b2 (ndarray/dot ones-t error2)}}))

(defn predict
  "Returns the predicted label of each row of the pixels `x`, in a vector."
  [{:keys [w1 b1 w2 b2]} x ones]
  (with-open [z1 (layer x w1 b1 ones)
              hidden (ndarray/relu z1)
              z2 (layer hidden w2 b2 ones)
              labels (ndarray/argmax-channel z2)]
    (ndarray/->int-vec labels)))
