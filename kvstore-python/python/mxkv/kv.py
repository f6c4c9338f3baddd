"""Stores, under the name that MXNet programs use: ``mx.kv.create``.

>>> from mxkv import kv
>>> kv.create('local').type
'local'
"""

from .kvstore import KeyStats, KVStore, KVStoreBase, OnExisting, Snapshot, TestStore, create

__all__ = [
    "KVStore",
    "KVStoreBase",
    "KeyStats",
    "OnExisting",
    "Snapshot",
    "TestStore",
    "create",
]
