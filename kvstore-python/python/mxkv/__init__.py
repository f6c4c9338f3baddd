"""A store of named tensors that many devices share: the ``kv`` of MXNet programs.

In a program for MXNet, replace ``import mxnet as mx`` by ``import mxkv as mx``:

>>> import mxkv as mx
>>> kv = mx.kv.create('local')
>>> kv.init('w', mx.nd.ones((2, 3)))
>>> kv.push('w', [mx.nd.ones((2, 3), mx.cpu(i)) for i in range(4)])
>>> a = mx.nd.zeros((2, 3))
>>> kv.pull('w', out=a)
>>> print(a.asnumpy())
[[4. 4. 4.]
 [4. 4. 4.]]

The store reads and writes arrays of NumPy, PyTorch, JAX and every other library with ``__dlpack__``
in place:

>>> import numpy
>>> kv.push('w', numpy.full((2, 3), 7, dtype='float32'))
>>> out = numpy.empty((2, 3), dtype='float64')
>>> kv.pull('w', out=out)
>>> out[0]
array([7., 7., 7.])

The modules are :mod:`mxkv.kv` (stores), :mod:`mxkv.kvstore_server` (servers), :mod:`mxkv.nd` and
:mod:`mxkv.np` (arrays), :mod:`mxkv.optimizer`, :mod:`mxkv.lr_scheduler`, :mod:`mxkv.random`,
:mod:`mxkv.context` (devices), :mod:`mxkv.errors` and :mod:`mxkv.runtime`.
"""

from . import (
    base,
    context,
    errors,
    kv,
    kvstore,
    kvstore_server,
    lr_scheduler,
    nd,
    np,
    npx,
    optimizer,
    random,
    runtime,
)
from . import nd as ndarray
from .context import Context, cpu, current_context, gpu, num_gpus
from .errors import KVStoreError, MXNetError

__version__ = runtime.version()

__all__ = [
    "Context",
    "KVStoreError",
    "MXNetError",
    "__version__",
    "base",
    "context",
    "cpu",
    "current_context",
    "errors",
    "gpu",
    "kv",
    "kvstore",
    "kvstore_server",
    "lr_scheduler",
    "nd",
    "ndarray",
    "np",
    "npx",
    "num_gpus",
    "optimizer",
    "random",
    "runtime",
]

# In the server or scheduler of a job, this ends the process after the job, as in MXNet.
kvstore_server._init_kvstore_server_module()
