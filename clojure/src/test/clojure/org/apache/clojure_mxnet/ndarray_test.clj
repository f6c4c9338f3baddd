(ns org.apache.clojure-mxnet.ndarray-test
  "Tests of creating, reading, reshaping and closing arrays."
  (:require [clojure.test :refer [deftest is testing]]
            [dev.kvstore.failures :refer [code failure]]
            [org.apache.clojure-mxnet.context :as context]
            [org.apache.clojure-mxnet.dtype :as dtype]
            [org.apache.clojure-mxnet.ndarray :as ndarray]
            [org.apache.clojure-mxnet.shape :as shape]))

(set! *warn-on-reflection* true)

(def ^:private rows [[1.0 2.0] [3.0 4.0] [5.0 6.0]])

(deftest arrays-of-one-number
  (is (= [0.0 0.0] (ndarray/->vec (ndarray/zeros [2]))))
  (is (= [1.0 1.0] (ndarray/->vec (ndarray/ones [2]))))
  (is (= [2 3] (ndarray/shape-vec (ndarray/empty [2 3]))))
  (is (= [[2.5 2.5]] (ndarray/->nd-vec (ndarray/full [1 2] 2.5))))
  (is (= [3 3] (ndarray/->int-vec (ndarray/full [2] 3 {:dtype dtype/INT32}))))
  (is (= [0.1] (ndarray/->double-vec (ndarray/full [1] 0.1 {:dtype dtype/FLOAT64}))))
  (is (= [9007199254740993]
         (ndarray/->long-vec (ndarray/full [1] 9007199254740993 {:dtype dtype/INT64}))))
  (is (= [0.5] (ndarray/->vec (ndarray/full [1] 1/2))))
  (is (= [] (ndarray/->vec (ndarray/zeros [0 2])))))

(deftest integers-of-every-type-are-exact
  (let [i64 {:dtype dtype/INT64}
        x 9007199254740993
        one #(ndarray/full [1] 0 i64)
        beyond [9223372036854775808N (biginteger -9223372036854775809N)]]
    (doseq [n [x (bigint x) (biginteger x)]]
      (is (= [x] (ndarray/->long-vec (ndarray/full [1] n i64))))
      (is (= [x 1] (ndarray/->long-vec (ndarray/array [n 1] [2] i64))))
      (is (= [x] (ndarray/->long-vec (ndarray/->ndarray [n] i64))))
      (is (= [x] (ndarray/->long-vec (ndarray/set (one) n))))
      (is (= [x] (ndarray/->long-vec (ndarray/set (one) [n]))))
      (is (= [x] (ndarray/->long-vec (ndarray/+ (one) n)) (ndarray/->long-vec (ndarray/+ n (one)))))
      (is (= [x] (ndarray/->long-vec (ndarray/+= (one) n)))))
    (testing "integers that do not fit a long"
      (doseq [n beyond
              f [#(ndarray/full [1] n i64)
                 #(ndarray/array [1 n] [2] i64)
                 #(ndarray/array [1 n] [2] {:dtype :uint8})
                 #(ndarray/set (one) n)
                 #(ndarray/set (one) [n])
                 #(ndarray/+ (one) n)
                 #(ndarray/+ n (one))
                 #(ndarray/+= (one) n)]]
        (is (= [(str "Invalid number: expected an integer that fits into `int64`, found " n)
                :invalid-argument n]
               ((juxt :message :kvstore/code :kvstore/value) (failure (f))))))
      (is (= [1e30] (ndarray/->double-vec (ndarray/full [1] (bigint 1e30M) {:dtype :float64}))))
      (is (= [1.0 (float 1e30)] (ndarray/->vec (ndarray/array [1 (bigint 1e30M)] [2]))))
      (is (= [(float 1e30)]
             (ndarray/->vec (ndarray/+ (ndarray/zeros [1]) (bigint 1e30M)))
             (ndarray/->vec (ndarray/set (ndarray/zeros [1]) (bigint 1e30M))))))))

(deftest arrays-have-properties
  (let [a (ndarray/ones (shape/->shape [2 3]) {:ctx (context/cpu 1) :dtype dtype/INT32})]
    (is (= (shape/->shape [2 3]) (ndarray/shape a)))
    (is (= [2 3] (ndarray/shape-vec a)))
    (is (= 6 (ndarray/size a)))
    (is (= dtype/INT32 (ndarray/dtype a)))
    (is (= (context/cpu 1) (ndarray/context a)))))

(deftest arrays-of-numbers
  (is (= [[1.0 2.0] [3.0 4.0]] (ndarray/->nd-vec (ndarray/array [1 2 3 4] [2 2]))))
  (is (= [1.5 2.0 0.25] (ndarray/->vec (ndarray/array (list 1.5 2 1/4) [3]))))
  (is (= [[[1.0] [2.0]] [[3.0] [4.0]] [[5.0] [6.0]]]
         (ndarray/->nd-vec (ndarray/array [1 2 3 4 5 6] [3 2 1]))))
  (testing "primitive arrays"
    (doseq [data [(float-array [1 2]) (double-array [1 2]) (int-array [1 2]) (long-array [1 2])]]
      (is (= [1.0 2.0] (ndarray/->vec (ndarray/array data [2]))))
      (is (= [1 2] (ndarray/->int-vec (ndarray/array data [2] {:dtype dtype/UINT8}))))))
  (testing "a number too large for float32 is infinite"
    (is (= [##Inf] (ndarray/->vec (ndarray/array [1e300] [1])))))
  (testing "invalid arguments"
    (is (= :length-mismatch (code (ndarray/array [1 2 3] [2]))))
    (is (= "Invalid source" (:start (failure (ndarray/array [1 nil] [2])))))
    (is (= "Invalid source" (:start (failure (ndarray/array "ab" [2])))))
    (is (= "Invalid shape" (:start (failure (ndarray/array [1] 1)))))
    (is (= :invalid-argument (code (ndarray/array [1] [1] {:device 1}))))
    (is (= "Invalid context" (:start (failure (ndarray/array [1] [1] {:ctx "cpu"})))))))

(deftest arrays-of-nested-numbers
  (let [a (ndarray/->ndarray rows)]
    (is (= [3 2] (ndarray/shape-vec a)))
    (is (= rows (ndarray/->nd-vec a))))
  (is (= [2] (ndarray/shape-vec (ndarray/->ndarray '(1 2) {:ctx (context/cpu 2)}))))
  (doseq [x [[] [[]] [[1 2] [3]] [1 [2]] [[1] 2] ["a"] nil 5]]
    (is (= ["Invalid N-D sequence" x]
           ((juxt :start :kvstore/value) (failure (ndarray/->ndarray x)))))))

(deftest ranges
  (is (= [0.0 1.0 2.0] (ndarray/->vec (ndarray/arange 0 3))))
  (is (= (mapcat #(repeat 2 (* 0.5 %)) (range 10))
         (ndarray/->vec (ndarray/arange 0 5 {:step 0.5 :repeat 2}))))
  (is (= dtype/INT32 (ndarray/dtype (ndarray/arange 0 3 {:dtype dtype/INT32}))))
  (is (= :invalid-argument (code (ndarray/arange 3 3))))
  (is (= "Invalid range" (:start (failure (ndarray/arange 0 "3")))))
  (doseq [n [1.5 nil 3000000000 2N]]
    (is (= ["Invalid repeat" n]
           ((juxt :start :kvstore/value) (failure (ndarray/arange 0 1 {:repeat n})))))))

(deftest reading
  (let [a (ndarray/array [1.5 -2.5 200] [3])]
    (is (= [1.5 -2.5 200.0] (ndarray/->vec a) (ndarray/->float-vec a) (ndarray/->double-vec a)))
    (is (every? float? (ndarray/->vec a)))
    (is (instance? Float (first (ndarray/->vec a))))
    (is (= [1 -2 200] (ndarray/->int-vec a) (ndarray/->long-vec a)))
    (is (= [1 -2 -56] (ndarray/->byte-vec a)))
    (is (= [1.5 -2.5 200.0] (seq (ndarray/to-array a)))))
  (testing "a Float is not equal to the Double with the same digits"
    (is (not= [0.1] (ndarray/->vec (ndarray/full [1] 0.1)))))
  (testing "raw bytes are little endian"
    (is (= [0 0 -128 63] (seq (ndarray/->raw (ndarray/ones [1])))))
    (is (= 8 (count (ndarray/->raw (ndarray/full [2] 2 {:dtype dtype/INT32})))))
    (is (= 2 (count (ndarray/->raw (ndarray/full [2] 2 {:dtype dtype/UINT8})))))
    (is (= 16 (count (ndarray/->raw (ndarray/full [2] 2 {:dtype dtype/FLOAT64}))))))
  (testing "unsigned bytes are not negative"
    (is (= [200] (ndarray/->int-vec (ndarray/full [1] 200 {:dtype dtype/UINT8})))))
  (is (= [[] []] (ndarray/->nd-vec (ndarray/zeros [2 0]))))
  (is (= [] (ndarray/->nd-vec (ndarray/zeros [0 Long/MAX_VALUE 3]))))
  (is (= "Invalid input array" (:start (failure (ndarray/->nd-vec [[1]]))))))

(deftest scalars
  (is (= 5.0 (ndarray/to-scalar (ndarray/full [1] 5))))
  (doseq [shape [[1 1] [2] [0]]]
    (is (= "The current array is not a scalar"
           (:start (failure (ndarray/to-scalar (ndarray/zeros shape))))))))

(deftest equality
  (let [a (ndarray/array [1 2 3] [3 1])]
    (is (ndarray/= a a))
    (is (ndarray/= a (ndarray/array [1 2 3] [3 1] {:dtype dtype/INT32 :ctx (context/cpu 1)})))
    (is (not (ndarray/= a (ndarray/array [1 2 3] [1 3]))))
    (is (not (ndarray/= a (ndarray/array [1 2 4] [3 1]))))
    (is (not (ndarray/= a [1 2 3]))))
  (let [nan (ndarray/full [1] ##NaN)]
    (is (not (ndarray/= nan nan)))))

(deftest views-share-memory
  (let [a (ndarray/->ndarray rows)]
    (is (= [[3.0 4.0]] (ndarray/->nd-vec (ndarray/slice a 1))))
    (is (= [[3.0 4.0] [5.0 6.0]] (ndarray/->nd-vec (ndarray/slice a 1 3))))
    (is (= [2] (ndarray/shape-vec (ndarray/at a 1))))
    (is (= [1] (ndarray/shape-vec (ndarray/at (ndarray/ones [3]) 2))))
    (is (= [0 2] (ndarray/shape-vec (ndarray/slice a 1 1))))
    (is (= [2 3] (ndarray/shape-vec (ndarray/reshape a [2 -1]))))
    (ndarray/set (ndarray/slice a 0) 9)
    (ndarray/+= (ndarray/at a 2) 1)
    (ndarray/*= (ndarray/reshape a [6]) 2)
    (is (= [[18.0 18.0] [6.0 8.0] [12.0 14.0]] (ndarray/->nd-vec a)))
    (testing "rows that do not exist"
      (is (= :invalid-argument (code (ndarray/slice a 3))))
      (is (= :invalid-argument (code (ndarray/slice a Long/MAX_VALUE))))
      (is (= :invalid-argument (code (ndarray/slice a Long/MIN_VALUE))))
      (is (= :invalid-argument (code (ndarray/slice a 2 1))))
      (is (= :invalid-argument (code (ndarray/slice a 0 4))))
      (is (= :invalid-argument (code (ndarray/at a -1))))
      (is (= "Invalid index" (:start (failure (ndarray/at a 0.5))))))
    (testing "a shape of another size"
      (is (= :invalid-argument (code (ndarray/reshape a [5]))))
      (is (= :invalid-argument (code (ndarray/reshape a [-1 -1]))))
      (is (= "Invalid shape" (:start (failure (ndarray/reshape a 6))))))))

(deftest copies-share-no-elements
  (let [a (ndarray/array [1.5 -1.5] [2])
        dest (ndarray/zeros [2] {:dtype dtype/INT32})]
    (ndarray/set (ndarray/copy a) 7)
    (is (= [1.5 -1.5] (ndarray/->vec a) (ndarray/->vec (ndarray/copy a))))
    (is (identical? dest (ndarray/copy-to a dest)))
    (is (= [1 -1] (ndarray/->int-vec dest) (ndarray/->int-vec (ndarray/as-type a dtype/INT32))))
    (is (= :spec-mismatch (code (ndarray/copy-to a (ndarray/zeros [3])))))
    (is (identical? a (ndarray/as-in-context a (context/cpu 0))))
    (doseq [ctx [nil "cpu"]]
      (is (= ["Invalid context" ctx]
             ((juxt :start :kvstore/value) (failure (ndarray/as-in-context a ctx))))))
    (let [elsewhere (ndarray/as-in-context a (context/cpu 3))]
      (is (= (context/cpu 3) (ndarray/context elsewhere)))
      (ndarray/set elsewhere 0)
      (is (= [1.5 -1.5] (ndarray/->vec a))))))

(deftest setting-elements
  (let [a (ndarray/zeros [2])
        i (ndarray/zeros [2] {:dtype dtype/INT32})]
    (is (identical? a (ndarray/set a 2)))
    (is (= [2.0 2.0] (ndarray/->vec a)))
    (is (= [0.5 1.0] (ndarray/->vec (ndarray/set a [0.5 1]))))
    (is (= [3.0 3.0] (ndarray/->vec (ndarray/set a (ndarray/full [2] 3)))))
    (is (= [1 2] (ndarray/->int-vec (ndarray/set i [1.9 2.1]))))
    (is (= [4 5] (ndarray/->int-vec (ndarray/set i (float-array [4 5])))))
    (is (= :length-mismatch (code (ndarray/set a [1 2 3]))))
    (is (= :spec-mismatch (code (ndarray/set a (ndarray/ones [3])))))
    (is (= "Invalid source" (:start (failure (ndarray/set a "ab")))))
    (is (= [3.0 3.0] (ndarray/->vec a)))))

(deftest concatenation
  (let [ones (fn [& dims] (ndarray/ones (vec dims)))]
    (is (= [3 3] (ndarray/shape-vec (ndarray/concatenate [(ones 2 3) (ones 1 3)]))))
    (is (= [1.0 2.0 5.0 3.0 4.0 6.0]
           (ndarray/->vec (ndarray/concatenate [(ndarray/array [1 2 3 4] [2 2])
                                                (ndarray/array [5 6] [2 1])]
                                               {:axis 1}))))
    (is (= [2 4] (ndarray/shape-vec (ndarray/concatenate [(ones 2 2) (ones 2 2)] {}))))
    (is (= [4 2] (ndarray/shape-vec (ndarray/concatenate [(ones 2 2) (ones 2 2)]
                                                         {:axis 0 :always-copy true}))))
    (is (= :spec-mismatch (code (ndarray/concatenate [(ones 2 3) (ones 2 2)]))))
    (is (= "Invalid arrays" (:start (failure (ndarray/concatenate [(ones 1) 1])))))
    (is (= "Invalid axis" (:start (failure (ndarray/concatenate [(ones 1)] {:axis 3000000000})))))))

(deftest waiting
  (let [a (ndarray/ones [2])]
    (is (identical? a (ndarray/wait-to-read a)))
    (is (nil? (ndarray/waitall)))))

(deftest disposal
  (let [a (ndarray/ones [2])
        b (ndarray/ones [2])
        view (ndarray/slice a 0)]
    (is (not (ndarray/is-disposed a)))
    (is (nil? (ndarray/dispose a)))
    (is (nil? (ndarray/dispose a)))
    (is (ndarray/is-disposed a))
    (doseq [use [#(ndarray/->vec a)
                 #(ndarray/->nd-vec a)
                 #(ndarray/->raw a)
                 #(ndarray/+ a 1)
                 #(ndarray/+ b a)
                 #(ndarray/+= a 1)
                 #(ndarray/+= b a)
                 #(ndarray/exp a)
                 #(ndarray/sum a)
                 #(ndarray/dot b a)
                 #(ndarray/slice a 0)
                 #(ndarray/copy a)
                 #(ndarray/copy-to b a)
                 #(ndarray/set a 1)
                 #(ndarray/as-in-context a (context/cpu 0))
                 #(ndarray/concatenate [b a])
                 #(ndarray/wait-to-read a)]]
      (is (= :closed (code (use)))))
    (is (= [1.0 1.0] (ndarray/->vec b)) "nothing was changed")
    (is (= [1.0] (ndarray/->vec view)) "a view lives on"))
  (let [kept (atom nil)]
    (with-open [a (ndarray/ones [2])]
      (reset! kept a))
    (is (ndarray/is-disposed @kept))))

(deftest elements-without-a-copy
  (let [a (ndarray/array [1 2 3] [3])
        before (.asFloatBuffer (ndarray/as-buffer a))]
    (ndarray/set a 0)
    (ndarray/dispose a)
    (is (= [1.0 2.0 3.0] (mapv #(.get before (int %)) (range 3))))
    (is (= :closed (code (ndarray/as-buffer a))))))

(deftest elements-are-read-into-arrays-of-the-caller
  (let [a (ndarray/array [1 2 3 4] [2 2])]
    (doseq [dest [(float-array 2) (double-array 2) (int-array 2) (long-array 2)]]
      (is (identical? dest (ndarray/read-into a dest 1)))
      (is (= [2 3] (map long dest))))
    (is (= [1.0 2.0 3.0 4.0] (vec (ndarray/read-into a (float-array 4)))))
    (is (= :invalid-argument (code (ndarray/read-into a (float-array 5)))))
    (is (= "Invalid destination" (:start (failure (ndarray/read-into a [1 2])))))
    (is (= "Invalid start" (:start (failure (ndarray/read-into a (float-array 1) :x)))))))
