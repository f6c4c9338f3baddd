"""What stores report about keys and members. :mod:`mxkv.kvstore` exports these classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ._rows import Key
    from .context import Context


class KeyStats(NamedTuple):
    """The statistics of a key."""

    key: Key
    shape: tuple[int, ...]
    dtype: str
    context: Context
    #: The number of pushes that have changed the value since it was initialised.
    num_pushes: int
    value_bytes: int
    #: The bytes of the optimizer state and of the residuals of compression.
    state_bytes: int


class Member(NamedTuple):
    """A live member of the group of a server."""

    name: str
    #: The rank among the members of its role, from 0. A member keeps its rank until it leaves.
    rank: int
    #: Whether the member never pushes.
    is_reader: bool


class Rewound(NamedTuple):
    """A server that was killed and continues from a recovery point."""

    #: The address of the server.
    server: str
    #: The highest version of a key in the point. With rounds, the number of the last round that is
    #: not lost.
    version: int
