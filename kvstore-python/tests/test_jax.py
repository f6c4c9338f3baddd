"""Arrays of JAX as values, and arrays exported to JAX. JAX arrays are immutable, so they cannot be
outputs.
"""

import gc

import pytest

import mxkv as mx
from mxkv import nd

#: Other dtypes must be enabled in JAX for the entire process.
DTYPES = ["float32", "float16", "bfloat16", "int8", "uint8", "int32"]


@pytest.fixture
def jax():
    return pytest.importorskip("jax", reason="JAX is not installed")


def store(value):
    kv = mx.kv.create()
    kv.init("w", value)
    return kv


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_are_values_and_results(jax, dtype):
    jnp = jax.numpy
    base = jnp.arange(12, dtype=dtype).reshape(3, 4)
    wide = jnp.zeros((6, 12), dtype=dtype).at[::2, 1::3].set(base)
    for array in (base, jnp.array(base.T).T, wide[::2, 1::3]):
        kv = store(array)
        assert kv.stats()[0].dtype == dtype
        kv.push("w", [array, array])
        taken = jnp.from_dlpack(kv.pull("w"))
        assert taken.dtype == dtype
        assert (taken == base + base).all()


def test_an_array_without_axes(jax):
    assert store(jax.numpy.float32(3)).pull("w").shape == ()
    assert jax.numpy.from_dlpack(store(jax.numpy.ones(())).pull("w")).tolist() == 1


@pytest.mark.parametrize("dtype", ["bool", "int16", "complex64"])
def test_the_message_names_an_unsupported_dtype(jax, dtype):
    with pytest.raises(TypeError, match=dtype):
        store(jax.numpy.zeros(2, dtype=dtype))


def test_an_array_is_rejected_as_an_output(jax):
    kv, array, good = store(nd.zeros(2)), jax.numpy.ones(2), nd.ones(2)
    with pytest.raises(ValueError, match="Array.* is read-only") as caught:
        kv.pull("w", out=[good, array])
    assert caught.value.code == "InvalidArgument"
    with pytest.raises(ValueError, match="is read-only"):
        kv.pushpull("w", [array, array])
    assert array.tolist() == good.tolist() == [1, 1]
    assert kv.pull("w").tolist() == [0, 0]


def test_traced_and_deleted_arrays_are_rejected(jax):
    kv, seen = store(nd.zeros(3)), []

    def pushing(array):
        try:
            kv.push("w", array)
        except TypeError as error:
            seen.append(str(error))
        return array.sum()

    jax.jit(pushing)(jax.numpy.ones(3))
    jax.grad(pushing)(jax.numpy.ones(3))
    assert len(seen) == 2
    assert all("Tracer` does not export its elements" in text for text in seen)
    deleted = jax.numpy.ones(3)
    deleted.delete()
    with pytest.raises(TypeError, match="does not export its elements"):
        kv.push("w", deleted)
    assert kv.pull("w").tolist() == [0, 0, 0]


def test_jax_gets_a_copy_of_an_array(jax):
    kv = store(nd.ones(100_000))
    array = kv.pull("w")
    taken = jax.numpy.from_dlpack(array)
    kv.push("w", nd.full(100_000, 5))
    array += 1
    del array
    gc.collect()
    assert taken.min() == taken.max() == 1
    # JAX may reuse the memory of a donated argument.
    jax.jit(lambda one: one + 1, donate_argnums=0)(jax.numpy.from_dlpack(kv.pull("w")))
    assert kv.pull("w").asnumpy().max() == 5


def test_a_training_step(jax):
    jnp = jax.numpy
    weights = {"b": jnp.zeros(2), "w": jnp.ones((3, 2))}
    kv = mx.kv.create()
    kv.init(list(weights), list(weights.values()))
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5))
    gradient = jax.grad(lambda own, x: (x @ own["w"] + own["b"]).sum())
    parts = [gradient(weights, jnp.ones((4, 3))) for _ in range(2)]
    kv.push(list(weights), [[part[key] for part in parts] for key in weights])
    new = {key: jnp.from_dlpack(kv.pull(key)) for key in weights}
    assert new["b"].tolist() == [-4, -4]
    assert new["w"].tolist() == [[-3, -3]] * 3
