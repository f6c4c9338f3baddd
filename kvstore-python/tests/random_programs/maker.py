"""The class that builds a program, and its methods for calls that succeed."""

import random

FLOATS = ["float32", "float64", "float16"]
DTYPES = [*FLOATS, "int32", "int64", "int8", "uint8"]
SHAPES = [[1], [2], [5], [2, 3], [3, 1], [1, 4], [2, 1, 2], [17]]
#: The number of device names on the host, which limits the length of a list of values.
MOST_VALUES = 4


class Key:
    """The state of a key at this point of the program."""

    def __init__(self, name, shape, dtype, is_rows=False):
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.is_rows = is_rows
        # MXNet has memory for as many values as the first list had.
        self.first_list = None
        # Without an updater, the stored value in MXNet is the memory that it sums in.
        self.is_merge_buffer = False


class Maker:
    """A program under construction."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.seed = seed
        self.store = self.random.choice(
            ["local", "local", "device", "device", "local_allreduce_cpu"]
        )
        self.is_device = "device" in self.store
        self.is_int = self.chance(0.4)
        names = [9, 3, 5, 70000, -2] if self.is_int else ["w", "a", "3", "ключ", ""]
        self.names = self.random.sample(names, len(names))
        self.unknown = 12345 if self.is_int else "unknown"
        self.keys = []
        self.rule = None
        self.is_rough = False
        self.rounding = "none"
        self.steps = []

    def chance(self, probability):
        return self.random.random() < probability

    def step(self, op, **arguments):
        self.steps.append({"op": op, **arguments})
        return self.steps[-1]

    def program(self):
        return {
            "seed": self.seed,
            "store": self.store,
            "rounding": self.rounding,
            "int_keys": self.is_int,
            "steps": self.steps,
        }

    # Numbers and arrays.

    def number(self, dtype):
        if dtype == "uint8":
            return self.random.randint(0, 255)
        if dtype.startswith("int"):
            return self.random.randint(-100, 100)
        if self.is_rough:
            return self.random.gauss(0, 1) * 10 ** self.random.randint(-2, 2)
        # Sums of these numbers are exact in any order.
        return self.random.randint(-32, 32) / 8

    def value(self, shape, dtype):
        count = 1
        for length in shape:
            count *= length
        value = {"shape": shape, "dtype": dtype, "data": [self.number(dtype) for _ in range(count)]}
        if self.chance(0.1):
            value["view"] = True
        return value

    def out(self, key):
        dtype = key.dtype
        if self.chance(0.2) and (self.is_device or not self.is_rough):
            dtype = self.random.choice(self.casts(dtype))
        return {"shape": key.shape, "dtype": dtype}

    def casts(self, dtype):
        """Returns the dtypes of outputs for values of this dtype."""
        # In C, a cast of a float to a small integer is undefined if the value does not fit.
        return [*FLOATS, "int32", "int64"] if dtype.startswith("float") else DTYPES

    # Calls that succeed.

    def init(self):
        count = min(self.random.randint(1, 3), len(self.names))
        made = []
        for _ in range(count):
            shape = self.random.choice(SHAPES)
            dtype = self.random.choice(self.dtypes())
            made.append(Key(self.names.pop(), shape, dtype))
        if self.chance(0.15):
            self.broadcast(made)
        elif count == 1 and self.chance(0.7):
            value = self.value(made[0].shape, made[0].dtype)
            self.step("init", keys=made[0].name, values=value)
        else:
            values = [self.value(key.shape, key.dtype) for key in made]
            if self.chance(0.2):
                values = [[value] for value in values]
            self.step("init", keys=[key.name for key in made], values=values)
        self.keys += made

    def broadcast(self, made):
        values = [self.value(key.shape, key.dtype) for key in made]
        outs = [self.outs(key) for key in made]
        self.step("broadcast", keys=[key.name for key in made], values=values, outs=outs)

    def dtypes(self):
        is_float = self.rule is not None and self.rule["op"] == "set_optimizer"
        return FLOATS if is_float else DTYPES

    def num_values(self, key):
        """Returns a number of values for a push of the key, and updates the state of the key."""
        most = MOST_VALUES if key.first_list is None else key.first_list
        if self.rule is not None and key.is_merge_buffer:
            most = 1
        if self.is_rough and key.dtype == "float16":
            # MXNet rounds every addition, this package rounds the sum once.
            most = min(most, 2)
        count = 1 if self.chance(0.4) else self.random.randint(1, most)
        if count > 1:
            key.first_list = key.first_list or count
            if self.is_rough and not self.is_device and count > 2 and self.rounding == "none":
                self.rounding = "sums"
        if self.rule is None:
            key.is_merge_buffer = count > 1
        return count

    def pushed(self, key):
        return [self.value(key.shape, key.dtype) for _ in range(self.num_values(key))]

    def options(self):
        options = {"priority": self.random.randint(-5, 5)} if self.chance(0.1) else {}
        return {**options, "tuples": True} if self.chance(0.1) else options

    def some_keys(self):
        return self.random.sample(self.keys, self.random.randint(1, min(3, len(self.keys))))

    def push(self):
        keys, values = self.arguments(self.some_keys(), self.pushed)
        self.step("push", keys=keys, values=values, **self.options())

    def arguments(self, keys, arrays):
        """Returns keys and their arrays in one of the forms of arguments."""
        lists = [arrays(key) for key in keys]
        names = [key.name for key in keys]
        if len(keys) == 1 and self.chance(0.7):
            return names[0], lists[0][0] if len(lists[0]) == 1 and self.chance(0.7) else lists[0]
        if self.chance(0.4):
            # Repeat the keys in any order. The values of a key keep their order.
            pairs = [
                (name, position) for position, name in enumerate(names) for _ in lists[position]
            ]
            self.random.shuffle(pairs)
            left = [iter(values) for values in lists]
            return [name for name, _ in pairs], [next(left[position]) for _, position in pairs]
        if all(len(values) == 1 for values in lists) and self.chance(0.5):
            return names, [values[0] for values in lists]
        if self.chance(0.2):
            lists = [values[0] if len(values) == 1 else values for values in lists]
        return names, lists

    def outs(self, key):
        count = self.random.randint(1, 3)
        # On a device, MXNet copies the value to the first output, and from there to the others.
        return [self.out(key)] * count if self.is_device else [self.out(key) for _ in range(count)]

    def pull(self):
        keys, outs = self.arguments(self.some_keys(), self.outs)
        options = self.options()
        if self.chance(0.2):
            options["ignore_sparse"] = self.chance(0.5)
        self.step("pull", keys=keys, outs=outs, **options)

    def pull_into_one(self):
        """Pulls several keys of the same shape into the same array."""
        first = self.keys[0]
        keys = [key for key in self.keys if (key.shape, key.dtype) == (first.shape, first.dtype)]
        if self.is_int:
            # MXNet orders integer keys by number, this package by the order of initialisation.
            keys = keys[:1] * 2
        out = {"shape": keys[0].shape, "dtype": keys[0].dtype, "slot": len(self.steps)}
        self.step("pull", keys=[key.name for key in keys], outs=[out for _ in keys])

    def pushpull(self):
        keys, outs = self.some_keys(), {}
        if self.chance(0.6):
            names, values = [key.name for key in keys], [self.pushed(key) for key in keys]
            outs["outs"] = [self.outs(key) for key in keys]
        else:
            names, values = self.arguments(keys, self.pushed)
        self.step("pushpull", keys=names, values=values, **outs, **self.options())

    def set_updater(self):
        names = ["assign", "add", "add", "sub", "add2x", "decay_add", "noop", "in_place"]
        self.rule = self.step("set_updater", name=self.random.choice(names))

    def ask(self):
        """Makes calls that change nothing."""
        self.step(self.random.choice(["info", "barrier"]))
        self.step("is_capable", capability="optimizer")

    def differing(self, name, op, **arguments):
        self.step(op, **arguments)["difference"] = name

    def pull_all(self):
        keys = [key for key in self.keys if not key.is_rows]
        for key in keys:
            self.step("pull", keys=key.name, outs={"shape": key.shape, "dtype": key.dtype})
