"""The verbs accept MXNet's calls: the same argument names, order and defaults."""

import inspect

import pytest

import mxkv as mx

#: The signatures of MXNet 1.9.1.
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
def test_arguments_agree_with_mxnet(name):
    wanted = parsed(SIGNATURES[name])
    found = list(inspect.signature(getattr(mx.kv.KVStore, name)).parameters.values())
    assert [it.name for it in found[: len(wanted)]] == [it.name for it in wanted]
    for ours, theirs in zip(found, wanted):
        assert ours.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD or ours.name == "self"
        # An argument that has a default in MXNet has the same default here.
        assert theirs.default in (inspect.Parameter.empty, ours.default)
    # Additional arguments have defaults.
    assert all(it.default is not inspect.Parameter.empty for it in found[len(wanted) :])


def test_properties_and_create():
    name, *options = inspect.signature(mx.kv.create).parameters.values()
    assert (name.name, name.default) == ("name", "local")
    assert [it.kind for it in options] == [inspect.Parameter.VAR_KEYWORD]
    for name in ("type", "rank", "num_workers"):
        assert inspect.isdatadescriptor(inspect.getattr_static(mx.kv.KVStore, name))
