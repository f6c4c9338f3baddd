"""Our store, through the C interface of the crate in this folder."""

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_size_t, c_uint32, c_void_p

import numpy as np

# The functions with their result and argument types.
INTERFACE = {
    "kvp_last_error": (c_char_p, []),
    "kvp_store": (c_void_p, [c_char_p]),
    "kvp_array": (c_void_p, [c_void_p, POINTER(c_size_t), c_size_t, c_uint32]),
    "kvp_pairs": (c_void_p, [POINTER(c_char_p), POINTER(c_void_p), c_size_t]),
    "kvp_set_optimizer": (
        c_int,
        [c_void_p, c_char_p, POINTER(c_char_p), POINTER(c_double), c_size_t],
    ),
    "kvp_init": (c_int, [c_void_p, c_void_p]),
    "kvp_steps": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t]),
    "kvp_value": (c_void_p, [c_void_p]),
    "kvp_address": (c_void_p, [c_void_p]),
    "kvp_copy": (None, [c_void_p, c_void_p, c_size_t, c_int]),
    "kvp_rows": (c_void_p, [POINTER(c_size_t), c_size_t, c_void_p, c_void_p]),
    "kvp_row_pairs": (c_void_p, [c_char_p, POINTER(c_void_p), c_size_t]),
    "kvp_push_rows": (c_int, [c_void_p, c_void_p]),
    "kvp_pull_rows": (c_void_p, [c_void_p, c_char_p, c_void_p, c_size_t]),
    "kvp_rows_address": (c_void_p, [c_void_p]),
    "kvp_free_rows": (None, [c_void_p]),
    "kvp_free_row_pairs": (None, [c_void_p]),
    "kvp_free_store": (None, [c_void_p]),
    "kvp_free_array": (None, [c_void_p]),
    "kvp_free_pairs": (None, [c_void_p]),
    "kvp_free_value": (None, [c_void_p]),
}

library = None


def load(path):
    """Opens the library. Call this once, before everything else here."""
    global library
    library = ctypes.CDLL(path)
    for name, (result, arguments) in INTERFACE.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments


def checked(result):
    """Returns a pointer or a status. Raises if it reports a failure."""
    if result is None or result == -1:
        raise RuntimeError(library.kvp_last_error().decode())
    return result


class Owned:
    """A pointer that is freed with its owner."""

    def __init__(self, pointer, free):
        self.pointer, self.free = checked(pointer), free

    def __del__(self):
        if hasattr(self, "pointer"):
            self.free(self.pointer)


def view(address, shape):
    """Returns the floats at an address, without a copy."""
    count = int(np.prod(shape))
    return np.ctypeslib.as_array((c_float * count).from_address(address)).reshape(shape)


class Array(Owned):
    def __init__(self, values, ordinal):
        values = np.ascontiguousarray(values, np.float32)
        self.shape = values.shape
        shape = (c_size_t * values.ndim)(*values.shape)
        pointer = library.kvp_array(values.ctypes.data, shape, values.ndim, ordinal)
        super().__init__(pointer, library.kvp_free_array)


class Ours:
    """Our store, and the operations of workloads on it."""

    name = "ours"
    key = str

    def __init__(self):
        self.store = Owned(library.kvp_store(b"local"), library.kvp_free_store)

    def array(self, values, ordinal):
        return Array(values, ordinal)

    def list(self, keys, lists):
        """Returns a prepared list of keys with the arrays of each."""
        pairs = [(key, array) for key, arrays in zip(keys, lists) for array in arrays]
        texts = (c_char_p * len(pairs))(*[key.encode() for key, _ in pairs])
        arrays = (c_void_p * len(pairs))(*[array.pointer for _, array in pairs])
        return Owned(library.kvp_pairs(texts, arrays, len(pairs)), library.kvp_free_pairs)

    def init(self, keys, values):
        pairs = self.list(keys, [[self.array(value, 0)] for value in values])
        checked(library.kvp_init(self.store.pointer, pairs.pointer))

    def set_optimizer(self, name, options):
        names = (c_char_p * len(options))(*[option.encode() for option in options])
        values = (c_double * len(options))(*options.values())
        store = self.store.pointer
        checked(library.kvp_set_optimizer(store, name.encode(), names, values, len(options)))

    def steps(self, pushed, pulled, _written, count):
        """Pushes and pulls prepared lists. Each list may be `None`. No work is pending
        afterwards."""
        pushed, pulled = (pairs and pairs.pointer for pairs in (pushed, pulled))
        checked(library.kvp_steps(self.store.pointer, pushed, pulled, count))

    def rows(self, shape, indices, values, ordinal):
        """Returns a row-sparse value."""
        rows = self.array(values, ordinal)
        lengths = (c_size_t * len(shape))(*shape)
        pointer = library.kvp_rows(lengths, len(shape), indices.ctypes.data, rows.pointer)
        return Owned(pointer, library.kvp_free_rows)

    def row_list(self, key, rows):
        """Returns a prepared list of row-sparse values of one key."""
        pointers = (c_void_p * len(rows))(*[value.pointer for value in rows])
        pairs = library.kvp_row_pairs(key.encode(), pointers, len(rows))
        return Owned(pairs, library.kvp_free_row_pairs)

    def init_rows(self, key, values):
        self.init([key], [values])

    def push_rows(self, pushed):
        checked(library.kvp_push_rows(self.store.pointer, pushed.pointer))

    def row_ids(self, ids):
        return ids

    def pull_rows(self, key, ids, shape):
        """Returns some rows of a key."""
        found = library.kvp_pull_rows(self.store.pointer, key.encode(), ids.ctypes.data, len(ids))
        return Owned(found, library.kvp_free_rows)

    def read_rows(self, rows, num_rows, shape):
        address = checked(library.kvp_rows_address(rows.pointer))
        return np.copy(view(address, (num_rows, *shape[1:])))

    def read(self, arrays, reader):
        """Returns the reader's result for the memory of each array."""
        results = []
        for array in arrays:
            value = Owned(library.kvp_value(array.pointer), library.kvp_free_value)
            results.append(reader(view(checked(library.kvp_address(value.pointer)), array.shape)))
        return results


def copy(target, source, kind):
    """Copies floats on all cores: in one piece per core (0), or in blocks (1)."""
    library.kvp_copy(target.ctypes.data, source.ctypes.data, source.size, kind)
