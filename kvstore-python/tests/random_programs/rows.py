"""Programs with row-sparse keys."""

from .maker import Key
from .training import Training

#: Optimizers that update only the rows of a gradient.
LAZY = ["sgd", "adam", "adagrad", "ftrl"]


class Rows(Training):
    """A program that initialises most of its keys as row-sparse."""

    def __init__(self, seed):
        super().__init__(seed)
        self.is_training = self.chance(0.5)
        # The names of keys that were initialised as dense.
        self.whole = set()

    def init_rows(self):
        for name in self.names[: self.random.randint(1, 2)]:
            shape = self.random.choice([[4, 1], [4, 2], [6, 3], [3, 2, 2]])
            key = Key(name, shape, "float32", True)
            if not self.is_training and self.chance(0.2):
                key.is_rows = False
                self.whole.add(name)
                value = self.value(shape, key.dtype)
            else:
                value = self.rows(shape, key.dtype, every=self.is_training)
            self.step("init", keys=name, values=value)
            self.keys.append(key)

    def rows(self, shape, dtype, every=False):
        numbers = [row for row in range(shape[0]) if every or self.chance(0.5)]
        if not numbers and not self.is_training:
            # MXNet cannot pull rows of a value without rows.
            numbers = [self.random.randrange(shape[0])]
        data = self.value([len(numbers), *shape[1:]], dtype)["data"]
        return {"shape": shape, "dtype": dtype, "rows": numbers, "data": data}

    def pushed(self, key):
        if key.name in self.whole:
            # MXNet copies the values of a list to memory that stays row-sparse or dense for ever.
            is_mixed = key.first_list is None and self.chance(0.5)
            count = self.num_values(key)
            makers = [self.rows, self.value] if is_mixed and count > 1 else [self.rows]
            if is_mixed and count > 1:
                key.first_list = 1
            return [self.random.choice(makers)(key.shape, key.dtype) for _ in range(count)]
        if not self.is_training and self.chance(0.2):
            # From then on, MXNet treats the key as dense.
            key.is_rows = False
            return [self.value(key.shape, key.dtype)]
        return [self.rows(key.shape, key.dtype) for _ in range(self.num_values(key))]

    def out(self, key):
        out = {"shape": key.shape, "dtype": key.dtype}
        return {**out, "rows": []} if self.chance(0.2) else out

    def outs(self, key):
        return [self.out(key) for _ in range(self.random.randint(1, 2))]

    def pull_rows(self):
        key = self.random.choice(self.keys)
        if not key.is_rows:
            return
        out = {"shape": key.shape, "dtype": key.dtype, "rows": []}
        ids = [self.row_ids(key) for _ in range(self.random.randint(1, 2))]
        if self.chance(0.3):
            self.step("row_sparse_pull", keys=key.name, outs=[out, out], row_ids=ids[0])
        elif len(ids) == 1:
            self.step("row_sparse_pull", keys=key.name, outs=out, row_ids=ids[0])
        else:
            self.step("row_sparse_pull", keys=key.name, outs=[out, out], row_ids=ids)

    def row_ids(self, key):
        return [self.random.randrange(key.shape[0]) for _ in range(self.random.randint(1, 5))]

    def row_mistake(self):
        key = self.random.choice(self.keys)
        out = {"shape": key.shape, "dtype": key.dtype, "rows": []}
        if not key.is_rows:
            return
        self.random.choice(
            [
                lambda: self.step("row_sparse_pull", keys=self.unknown, outs=out, row_ids=[0]),
                lambda: self.step("row_sparse_pull", keys=key.name, outs=[out], row_ids=[[0], [1]]),
                lambda: self.step(
                    "row_sparse_pull", keys=key.name, outs=[out] * 3, row_ids=[[0], [1]]
                ),
                lambda: self.step("init", keys=key.name, values=self.rows(key.shape, key.dtype)),
            ]
        )()


def rows(seed):
    """Makes a program with row-sparse keys, with a lazy optimizer or without an optimizer."""
    maker = Rows(seed)
    maker.init_rows()
    if maker.is_training:
        maker.optimizer = maker.random.choice(LAZY)
        options = {"wd": 0.0} if maker.optimizer == "adagrad" else {}
        if maker.optimizer in ("sgd", "adam") and maker.chance(0.3):
            options["lazy_update"] = False
        maker.set_optimizer(options)
    calls = [maker.push] * 5 + [maker.pull] * 2 + [maker.pull_rows] * 3 + [maker.row_mistake]
    for _ in range(maker.random.randint(3, 14)):
        maker.random.choice(calls)()
    for key in maker.keys:
        maker.step("pull", keys=key.name, outs={"shape": key.shape, "dtype": key.dtype})
    return maker.program()
