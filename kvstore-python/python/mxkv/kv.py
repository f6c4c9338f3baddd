"""Stores, under the name that MXNet programs use: ``mx.kv.create``.

>>> from mxkv import kv
>>> kv.create('local').type
'local'
"""

from .kvstore import (
    KeyStats,
    KVStore,
    KVStoreBase,
    Member,
    OnExisting,
    Rewound,
    Snapshot,
    TestStore,
    create,
    push_staleness,
)

__all__ = [
    "KVStore",
    "KVStoreBase",
    "KeyStats",
    "Member",
    "OnExisting",
    "Rewound",
    "Snapshot",
    "TestStore",
    "create",
    "push_staleness",
]
