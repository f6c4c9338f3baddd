"""Arrays on real or emulated GPUs. `scripts/python-tests.sh` runs these tests with both."""

import numpy
import pytest

import mxkv as mx
from mxkv import nd

pytestmark = pytest.mark.skipif(mx.num_gpus() == 0, reason="no real or emulated GPU")


def test_arrays_are_copied_to_a_gpu_and_back():
    array = nd.array([[1, 2], [3, 4]], ctx=mx.gpu(0))
    assert array.context == mx.gpu(0)
    assert (array * 2).tolist() == [[2, 4], [6, 8]]
    assert array.as_in_context(mx.cpu()).tolist() == [[1, 2], [3, 4]]
    array[0] = 9
    assert array.tolist() == [[9, 9], [3, 4]]
    assert repr(mx.np.ones(2, ctx=mx.gpu())) == "array([1., 1.], ctx=gpu(0))"
    assert "@gpu(0)" in repr(array)


def test_numpy_gets_a_copy():
    array = nd.ones(3, ctx=mx.gpu())
    with pytest.raises(AttributeError, match="asnumpy"):
        array.__array_interface__  # noqa: B018
    assert numpy.asarray(array).tolist() == [1, 1, 1]
    with pytest.raises(ValueError):
        array.__array__(copy=False)


def test_other_libraries_get_a_copy_on_the_host_on_request():
    array = nd.ones(3, ctx=mx.gpu())
    assert array.__dlpack_device__() == (2, 0)
    with pytest.raises(BufferError):
        array.__dlpack__(max_version=(1, 0), dl_device=(1, 0), copy=False)

    class OnHost:
        def __dlpack__(self, **_):
            return array.__dlpack__(max_version=(1, 0), dl_device=(1, 0))

    assert nd.from_dlpack(OnHost()).tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", ["local", "device"])
def test_values_of_the_host_and_a_gpu_are_summed(kind):
    kv, host = mx.kv.create(kind), numpy.ones(2, dtype="float32")
    kv.init("w", nd.zeros(2, ctx=mx.gpu()))
    kv.push("w", [nd.ones(2, ctx=mx.gpu()), host, nd.ones(2)])
    out = numpy.zeros(2)
    kv.pull("w", out=[out, host])
    assert out.tolist() == host.tolist() == [3, 3]
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=1))
    kv.push("w", [host, nd.ones(2, ctx=mx.gpu())])
    assert kv.pull("w").tolist() == [-1, -1]
