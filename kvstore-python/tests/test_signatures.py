"""Programs for MXNet call the verbs as they do now: by these names of arguments, in this order, with these defaults."""

import inspect

import pytest

import mxkv as mx

#: What MXNet 1.9.1 has.
SIGNATURES = {
    "init": "(self, key, value)",
    "push": "(self, key, value, priority=0)",
    "pull": "(self, key, out=None, priority=0, ignore_sparse=True)",
    "pushpull": "(self, key, value, out=None, priority=0)",
    "broadcast": "(self, key, value, out, priority=0)",
    "row_sparse_pull": "(self, key, out=None, priority=0, row_ids=None)",
    "set_gradient_compression": "(self, compression_params)",
    "set_optimizer": "(self, optimizer)",
    "save_optimizer_states": "(self, fname, dump_optimizer=False)",
    "load_optimizer_states": "(self, fname)",
    "_set_updater": "(self, updater)",
    "_barrier": "(self)",
    "_send_command_to_servers": "(self, head, body)",
    "is_capable": "(capability)",
}


def parsed(text):
    made = {}
    exec(f"def made{text}: pass", made)
    return list(inspect.signature(made["made"]).parameters.values())


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_are_those_of_mxnet(name):
    wanted = parsed(SIGNATURES[name])
    found = list(inspect.signature(getattr(mx.kv.KVStore, name)).parameters.values())
    assert [it.name for it in found[: len(wanted)]] == [it.name for it in wanted]
    for ours, theirs in zip(found, wanted):
        assert ours.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD or ours.name == "self"
        # An argument that may be left out is no other for who gives it.
        assert theirs.default in (inspect.Parameter.empty, ours.default)
    # What there is beyond may be left out.
    assert all(it.default is not inspect.Parameter.empty for it in found[len(wanted) :])


def test_properties_and_the_function_that_makes_a_store():
    assert str(inspect.signature(mx.kv.create)).startswith("(name: 'str' = 'local')")
    for name in ("type", "rank", "num_workers"):
        assert inspect.isdatadescriptor(inspect.getattr_static(mx.kv.KVStore, name))
