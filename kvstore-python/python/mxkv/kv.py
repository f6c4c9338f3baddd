"""Stores, under the name that MXNet's programs use: ``mx.kv.create``.

>>> from mxkv import kv
>>> kv.create('local').type
'local'
"""

from .kvstore import Existing, KeyStats, KVStore, KVStoreBase, Snapshot, TestStore, create

__all__ = [
    "Existing",
    "KVStore",
    "KVStoreBase",
    "KeyStats",
    "Snapshot",
    "TestStore",
    "create",
]
