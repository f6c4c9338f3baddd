"""Arguments of pulls with row-sparse outputs."""

from __future__ import annotations

from typing import Any, Iterable, Sequence

from ._native import RowSparseNDArray, Store
from .errors import KVStoreError, LengthMismatchError, SpecMismatchError

Key = int | str
Keys = Key | list[Key] | tuple[Key, ...]


def as_list(one_or_more: Any) -> Sequence[Any]:
    return one_or_more if isinstance(one_or_more, (list, tuple)) else [one_or_more]


def is_nested(row_ids: Any) -> bool:
    """Returns whether ``row_ids`` is a list with row indices for each of several keys."""
    return isinstance(row_ids, (list, tuple)) and any(
        isinstance(one, (list, tuple)) or getattr(one, "ndim", 0) > 0 for one in row_ids
    )


def side_by_side(keys: Keys, out: Any, row_ids: Any) -> tuple[list[Key], list, list]:
    """Returns parallel lists: a key, an output and row indices for each pull of rows."""
    ids = list(row_ids) if is_nested(row_ids) else [row_ids]
    names = list(as_list(keys))
    outs = [None] * len(names) if out is None else list(as_list(out))
    if not isinstance(keys, (list, tuple)):
        # A single key is repeated for each output or list of indices.
        names = names * max(len(ids), len(outs))
    if len(ids) == 1:
        # A single list of indices applies to every key.
        ids = ids * len(names)
    if len(outs) == 1 and outs[0] is None:
        outs = outs * len(names)
    if not len(names) == len(outs) == len(ids):
        found = f"{len(names)} keys, {len(outs)} outs, {len(ids)} row_ids"
        raise LengthMismatchError(f"keys, outs and row_ids: expected equally many, found {found}")
    return _flat(names, outs, ids)


def _flat(keys: list[Key], outs: list, ids: list) -> tuple[list[Key], list, list]:
    """Flattens the lists, so that each output of a key has its own entry. The outputs of a key have
    the same row indices, or a list of indices each.
    """
    flat: list[tuple[Key, Any, Any]] = []
    for key, out, numbers in zip(keys, outs, ids):
        parts = as_list(out)
        each = list(numbers) if is_nested(numbers) else [numbers] * len(parts)
        if len(each) != len(parts):
            found = f"{len(parts)} outs, {len(each)} row_ids"
            text = f"key `{key}`: outs and row_ids: expected equally many"
            raise LengthMismatchError(f"{text}, found {found}")
        flat.extend(zip([key] * len(parts), parts, each))
    return [key for key, _, _ in flat], [out for _, out, _ in flat], [ids for _, _, ids in flat]


def checked(
    pulled: Iterable[tuple[Any, RowSparseNDArray]], keys: Iterable[Key]
) -> list[tuple[Any, RowSparseNDArray]]:
    """Casts the rows for each row-sparse output.

    If a shape differs, it fails before any output changes. Errors name the key of an output.
    """
    return [(out, _cast_for(out, rows, key)) for (out, rows), key in zip(pulled, keys)]


def _cast_for(out: Any, rows: RowSparseNDArray, key: Key) -> RowSparseNDArray:
    if not isinstance(out, RowSparseNDArray):
        # The temporary store in `assign` checks dense outputs.
        return rows
    if out.shape != rows.shape:
        expected, found = str(rows.shape), str(out.shape)
        text = f"key `{key}`: out: expected {expected}, found {found}"
        raise SpecMismatchError(text, key=str(key), expected=expected, found=found)
    return rows.astype(out.dtype).as_in_context(out.context)


def assign(pulled: Iterable[tuple[Any, RowSparseNDArray]], keys: Sequence[Key] = ()) -> None:
    """Writes rows to their outputs, row-sparse or dense, all or none. Errors name the key of an
    output.
    """
    pairs = list(pulled)
    is_whole = [not isinstance(out, RowSparseNDArray) for out, _ in pairs]
    whole = [pair for pair, has_all in zip(pairs, is_whole) if has_all]
    # Write the dense outputs with a temporary store, which checks all of them before it writes any
    # of them. `checked` has already cast the row-sparse outputs, so only dense outputs can fail.
    store, names = Store(), [f"output {number}" for number in range(len(whole))]
    store._open("device", [])
    store.init(names, [rows.todense() for _, rows in whole])
    try:
        store.pull(names, [out for out, _ in whole])
    except KVStoreError as error:
        own = dict(zip(names, [key for key, has_all in zip(keys, is_whole) if has_all]))
        if error.key not in own:
            raise
        # Raise the error again, with the key instead of the name in the temporary store.
        key, text = str(own[error.key]), error.message
        text = text.replace(f"key `{error.key}`", f"key `{key}`", 1)
        raise type(error)(
            text, key=key, expected=error.expected, found=error.found
        ) from error.__cause__
    for out, rows in pairs:
        if isinstance(out, RowSparseNDArray):
            rows.copyto(out)
