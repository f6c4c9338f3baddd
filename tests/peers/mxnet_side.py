"""MXNet, used in its fastest way from Python: lists of lists, and one wait at the end. The same
code uses our Python package."""

import ctypes

import mxkv
import mxnet
import numpy as np

from ours import view


class Peer:
    """A store of MXNet, and the operations of workloads on it."""

    # Integer keys are faster in MXNet.
    key = int

    def __init__(self, store, mx=mxnet, name=None):
        self.name, self.mx = name or store, mx
        self.store = mx.kv.create(store)

    def array(self, values, ordinal):
        return self.mx.nd.array(values, ctx=self.mx.cpu(ordinal), dtype="float32")

    def list(self, keys, lists):
        """Returns keys and arrays as arguments of a call. A call without lists of one array is
        faster."""
        if [len(arrays) for arrays in lists] == [1]:
            return keys[0], lists[0][0]
        return keys, lists

    def init(self, keys, values):
        self.store.init(keys, [self.array(value, 0) for value in values])

    def set_optimizer(self, name, options):
        self.store.set_optimizer(self.mx.optimizer.create(name, **options))

    def steps(self, pushed, pulled, written, count):
        """Pushes and pulls prepared lists, and waits. Each list may be `None`."""
        push, pull = self.store.push, self.store.pull
        push_keys, values = pushed or (None, None)
        pull_keys, outs = pulled or (None, None)
        # Work is pending when a call returns. Waiting for one array is faster than waiting for all.
        wait = written[0].wait_to_read if len(written) == 1 else self.mx.nd.waitall
        for _ in range(count):
            if pushed:
                push(push_keys, values)
            if pulled:
                pull(pull_keys, outs)
            wait()

    def rows(self, shape, indices, values, ordinal):
        """Returns a row-sparse value."""
        return self.mx.nd.sparse.row_sparse_array(
            (values, indices), shape=shape, ctx=self.mx.cpu(ordinal), dtype="float32"
        )

    def row_list(self, key, rows):
        return key, rows

    def init_rows(self, key, values):
        # Only a key that was initialised with a row-sparse value can be pulled by rows.
        self.store.init(key, self.array(values, 0).tostype("row_sparse"))

    def push_rows(self, pushed):
        self.store.push(*pushed)
        self.mx.nd.waitall()

    def row_ids(self, ids):
        return self.mx.nd.array(ids, dtype="int64")

    def pull_rows(self, key, ids, shape):
        """Returns some rows of a key, after waiting for them."""
        out = self.mx.nd.sparse.zeros("row_sparse", shape)
        self.store.row_sparse_pull(key, out=out, row_ids=ids)
        out.wait_to_read()
        return out

    def read_rows(self, rows, num_rows, shape):
        return rows.data.asnumpy()

    def read(self, arrays, reader):
        """Returns the reader's result for the memory of each array."""
        results = []
        for array in arrays:
            address = ctypes.c_void_p()
            found = mxnet.base._LIB.MXNDArrayGetData(array.handle, ctypes.byref(address))
            mxnet.base.check_call(found)
            results.append(reader(view(address.value, array.shape)))
        return results


class Python(Peer):
    """Our store, from Python."""

    def __init__(self):
        super().__init__("local", mxkv, "python")

    def init_rows(self, key, values):
        self.store.init(key, self.array(values, 0))

    def read(self, arrays, reader):
        return [reader(np.asarray(array)) for array in arrays]
