"""Views of a value's memory."""

from __future__ import annotations

import ctypes


def read_only(kept: object, address: int, num_bytes: int) -> memoryview:
    """Returns a read-only view of the bytes at the address. The view keeps ``kept`` alive, which
    owns the memory.
    """
    block = (ctypes.c_ubyte * num_bytes).from_address(address)
    block.kept = kept  # type: ignore[attr-defined]
    return memoryview(block).toreadonly()
