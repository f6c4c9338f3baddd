"""Memory of a value as a ``memoryview``."""

from __future__ import annotations

import ctypes


def read_only(kept: object, address: int, num_bytes: int) -> memoryview:
    """Returns the bytes at the address, for reading; they live as long as ``kept``, which the result holds."""
    block = (ctypes.c_ubyte * num_bytes).from_address(address)
    block.kept = kept  # type: ignore[attr-defined]
    return memoryview(block).toreadonly()
