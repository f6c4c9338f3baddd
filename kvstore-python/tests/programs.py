"""Random programs for a player, the same ones for MXNet and this package: one seed, one program.

A program makes few keys and pushes and pulls them in every shape of a call. What it holds of each key is what it takes to
avoid calls about which MXNet and this package are known to differ; some of them it makes on purpose, as the last step, and
says their name (``mxnet_differences.py``).
"""

import random

from player import NO_ARRAY

FLOATS = ["float32", "float64", "float16"]
DTYPES = [*FLOATS, "int32", "int64", "int8", "uint8"]
SHAPES = [[1], [2], [5], [2, 3], [3, 1], [1, 4], [2, 1, 2], [17]]
#: Devices are numbers on a host, and a list has no more values than there are.
MOST_VALUES = 4


class Key:
    """What has become of a key so far."""

    def __init__(self, name, shape, dtype, is_rows=False):
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.is_rows = is_rows
        # MXNet has room for as many values as the first list had.
        self.first_list = None
        # Without updater MXNet's stored value is the memory in which it sums.
        self.is_merge_buffer = False


class Maker:
    """A program that is being made."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.seed = seed
        self.store = self.random.choice(["local", "local", "device", "device", "local_allreduce_cpu"])
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
        # Sums of these are exact, in whatever order.
        return self.random.randint(-32, 32) / 8

    def value(self, shape, dtype):
        count = 1
        for length in shape:
            count *= length
        value = {"shape": shape, "dtype": dtype, "data": [self.number(dtype) for _ in range(count)]}
        if self.chance(0.1):
            value["view"] = True
        return value

    def rows(self, shape, dtype, every=False):
        numbers = [row for row in range(shape[0]) if every or self.chance(0.5)]
        if not numbers and not self.is_training:
            # Of a value without rows MXNet gives no rows of zeros.
            numbers = [self.random.randrange(shape[0])]
        data = self.value([len(numbers), *shape[1:]], dtype)["data"]
        return {"shape": shape, "dtype": dtype, "rows": numbers, "data": data}

    def out(self, key):
        dtype = key.dtype
        if self.chance(0.2) and (self.is_device or not self.is_rough):
            # From a float that is below 0 or too large, a C cast to a small integer may give anything.
            casts = DTYPES if not dtype.startswith("float") else [*FLOATS, "int32", "int64"]
            dtype = self.random.choice(FLOATS if isinstance(self, Training) else casts)
        return {"shape": key.shape, "dtype": dtype}

    # Calls that work.

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
        """Returns how many values a push of the key may have, and remembers it."""
        most = MOST_VALUES if key.first_list is None else key.first_list
        if self.rule is not None and key.is_merge_buffer:
            most = 1
        if self.is_rough and key.dtype == "float16":
            # It rounds every addition, here a sum is rounded once.
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
        """Returns keys and their arrays in one of the shapes of a call."""
        lists = [arrays(key) for key in keys]
        names = [key.name for key in keys]
        if len(keys) == 1 and self.chance(0.7):
            return names[0], lists[0][0] if len(lists[0]) == 1 and self.chance(0.7) else lists[0]
        if self.chance(0.4):
            # Keys repeated, in any order: their values keep theirs.
            pairs = [(name, position) for position, name in enumerate(names) for _ in lists[position]]
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
        # On a device MXNet takes the value to one output first, and from there to the others.
        return [self.out(key)] * count if self.is_device else [self.out(key) for _ in range(count)]

    def pull(self):
        keys, outs = self.arguments(self.some_keys(), self.outs)
        options = self.options()
        if self.chance(0.2):
            options["ignore_sparse"] = self.chance(0.5)
        self.step("pull", keys=keys, outs=outs, **options)

    def pull_into_one(self):
        """Pulls keys of one shape into the same array."""
        keys = [key for key in self.keys if key.shape == self.keys[0].shape]
        if self.is_int:
            # It goes by the number of the key, here it is the order of initialisation.
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
        """Makes a call that changes nothing."""
        self.step(self.random.choice(["info", "barrier"]))
        self.step("is_capable", capability="optimizer")

    # Calls that fail, and change nothing.

    def mistake(self):
        """Makes a call that fails with both, and that neither remembers."""
        known = self.random.choice(self.keys)
        value = self.value(known.shape, known.dtype)
        out = {"shape": known.shape, "dtype": known.dtype}
        other = "text" if self.is_int else 7
        wrong_shape = {"shape": [*known.shape, 2], "dtype": known.dtype}
        makers = [
            lambda: self.step("init", keys=known.name, values=value),
            lambda: self.step("broadcast", keys=known.name, values=value, outs=out),
            lambda: self.step("push", keys=self.unknown, values=value),
            lambda: self.step("pull", keys=self.unknown, outs=out),
            lambda: self.step("pushpull", keys=self.unknown, values=value, outs=out),
            lambda: self.step("push", keys=[known.name], values=[value, value]),
            lambda: self.step("push", keys=[known.name, known.name], values=[value]),
            lambda: self.step("pull", keys=[known.name, known.name], outs=[out]),
            lambda: self.step("init", keys=[self.unknown, known.name], values=[value]),
            lambda: self.step("push", keys=other, values=value),
            lambda: self.step("pull", keys=other, outs=out),
            lambda: self.step("push", keys=[known.name, other], values=[value, value]),
            lambda: self.step("push", keys=1.5, values=value),
            lambda: self.step("pull", keys=None, outs=out),
            lambda: self.step("push", keys=known.name, values=NO_ARRAY),
            lambda: self.step("push", keys=known.name, values=None),
            lambda: self.step("push", keys=known.name, values=[value, NO_ARRAY]),
            lambda: self.step("pull", keys=known.name, outs=NO_ARRAY),
            lambda: self.step("pull", keys=known.name, outs=wrong_shape),
            lambda: self.step("pull", keys=known.name, outs=out, priority="high"),
            lambda: self.step("push", keys=known.name, values=value, priority=1.5),
            lambda: self.step("set_optimizer", name="sdg", kwargs={}),
            lambda: self.step("set_optimizer", name="sgd", kwargs={"learning_rat": 0.1}),
            lambda: self.step("set_optimizer", **self.bad_schedule()),
            lambda: self.step("load_optimizer_states", file="missing"),
            lambda: self.step("set_gradient_compression", params={"type": "4bit"}),
            lambda: self.step("set_gradient_compression", params={"threshold": 0.5}),
            lambda: self.step("set_gradient_compression", params={"type": "2bit", "threshold": -1}),
            lambda: self.step("is_capable", capability="flying"),
        ]
        if self.rule is None:
            makers.append(lambda: self.step("save_optimizer_states", file="states"))
        self.random.choice(makers)()

    def bad_schedule(self):
        schedules = [
            ("FactorScheduler", {"step": 0}),
            ("FactorScheduler", {"step": 2, "factor": 1.5}),
            ("MultiFactorScheduler", {"step": [3, 2]}),
            ("MultiFactorScheduler", {"step": [0]}),
            ("MultiFactorScheduler", {"step": []}),
            ("PolyScheduler", {"max_update": 0}),
            ("CosineScheduler", {"max_update": 0}),
            ("FactorScheduler", {"step": 2, "warmup_steps": -1}),
            ("FactorScheduler", {"step": 2, "warmup_steps": 3, "warmup_begin_lr": 0.5}),
            ("FactorScheduler", {"step": 2, "warmup_steps": 3, "warmup_mode": "cubic"}),
        ]
        return {"name": "sgd", "kwargs": {"lr_scheduler": list(self.random.choice(schedules))}}

    # What a program may end with.

    def ending(self):
        """Makes a last call: of those that fail but leave MXNet's store in between, or that are known to differ."""
        known = self.random.choice(self.keys)
        value = self.value(known.shape, known.dtype)
        wrong = self.value([*known.shape, 2], known.dtype)
        another = "float64" if known.dtype == "float32" else "float32"
        cast = self.value(known.shape, another)
        out = {"shape": known.shape, "dtype": known.dtype}
        makers = [
            lambda: self.step("push", keys=known.name, values=[wrong, wrong]),
            lambda: self.step("push", keys=known.name, values=[value, wrong]),
            lambda: self.step("push", keys=[known.name, self.unknown], values=[value, value]),
            lambda: self.step("init", keys=[self.unknown, known.name], values=[value, value]),
            lambda: self.step("init", keys=[self.unknown] * 2, values=[value, value]),
            lambda: self.step("init", keys=self.unknown, values=[value, value]),
            lambda: self.step("push", keys=self.unknown, values=[value, value]),
            lambda: self.differing("list_of_another_dtype", "push", keys=known.name, values=[cast] * 2),
            lambda: self.differing("pull_without_outputs", "pull", keys=known.name),
            lambda: self.differing("one_array_for_a_list", "push", keys=[known.name], values=value),
            lambda: self.differing(
                "unknown_compression_option" if self.is_device else "compression_on_local",
                "set_gradient_compression",
                params={"type": "2bit", "foo": 1} if self.is_device else {"type": "2bit"},
            ),
            lambda: self.differing("one_bit", "set_gradient_compression", params={"type": "1bit"}),
            lambda: self.differing("empty_lists", "push", keys=[], values=[]),
            lambda: self.differing(
                "rows_of_whole_values",
                "row_sparse_pull",
                keys=known.name,
                outs={"shape": known.shape, "dtype": known.dtype, "rows": []},
                row_ids=[0],
            ),
        ]
        makers.append(self.failing_updater)
        if not known.dtype.startswith("float"):
            makers.append(lambda: self.optimizer_of_integers(known))
        if self.is_int:
            makers.append(
                lambda: self.differing("large_integer_keys", "init", keys=2**40, values=value)
            )
        if self.rule is None:
            makers += [
                lambda: self.differing("push_of_another_shape", "push", keys=known.name, values=wrong),
                lambda: self.differing("push_of_another_dtype", "push", keys=known.name, values=cast),
            ]
        if known.dtype in ("float32", "float64"):
            several = [value, cast]
            if known.first_list is None or known.first_list > 1:
                makers.append(
                    lambda: self.differing(
                        "list_of_several_dtypes", "push", keys=known.name, values=several
                    )
                )
        if known.first_list is not None:
            longer = [value] * (known.first_list + 1)
            makers.append(
                lambda: self.differing("longer_list", "push", keys=known.name, values=longer)
            )
        self.random.choice(makers)()

    def failing_updater(self):
        self.step("set_updater", name="failing")
        known = self.keys[0]
        value = self.value(known.shape, known.dtype)
        self.differing("failing_updater", "push", keys=known.name, values=value)

    def optimizer_of_integers(self, known):
        self.step("set_optimizer", name="sgd", kwargs={})
        value = self.value(known.shape, known.dtype)
        self.differing("optimizer_of_integers", "push", keys=known.name, values=value)

    def differing(self, name, op, **arguments):
        self.step(op, **arguments)["difference"] = name

    def pull_all(self):
        keys = [key for key in self.keys if not key.is_rows]
        for key in keys:
            self.step("pull", keys=key.name, outs={"shape": key.shape, "dtype": key.dtype})


def verbs(seed):
    """Makes a program without an optimizer."""
    maker = Maker(seed)
    if maker.chance(0.01):
        maker.store = "lokal"
        return {**maker.program(), "difference": "unknown_store"}
    maker.is_rough = maker.chance(0.3)
    if maker.chance(0.2):
        maker.set_updater()
    maker.init()
    calls = [maker.push] * 6 + [maker.pull] * 5 + [maker.pushpull] * 2 + [maker.mistake] * 2
    calls += [maker.pull_into_one, maker.set_updater, maker.ask]
    for _ in range(maker.random.randint(3, 20)):
        if len(maker.names) > 1 and maker.chance(0.1):
            maker.init()
        maker.random.choice(calls)()
    if maker.rule is not None:
        maker.step("updater_log")
    maker.pull_all()
    if maker.chance(0.2):
        maker.ending()
    return maker.program()


# Programs with an optimizer.

#: Options of each optimizer beside those that all have, and what they may be. What is not among them differs:
#: ``mxnet_differences.py``.
OPTIMIZERS = {
    "sgd": {"momentum": [0.0, 0.5, 0.9]},
    "ccsgd": {"momentum": [0.0, 0.5, 0.9]},
    "nag": {"momentum": [0.0, 0.5, 0.9]},
    "dcasgd": {"lamda": [0.04, 0.5]},
    "adam": {"beta1": [0.9, 0.8], "beta2": [0.999, 0.99], "epsilon": [1e-8, 1e-4]},
    "adagrad": {"eps": [1e-7, 1e-3]},
    "adadelta": {"rho": [0.9, 0.5], "epsilon": [1e-5, 1e-3]},
    "rmsprop": {
        "gamma1": [0.9, 0.8],
        "gamma2": [0.9, 0.7],
        "epsilon": [1e-8, 1e-4],
        "centered": [False, True],
        "clip_weights": [None, 1.0],
    },
    "ftrl": {"lamda1": [0.01, 0.1], "beta": [1.0, 2.0]},
    "adamax": {"beta1": [0.9, 0.8], "beta2": [0.999, 0.99]},
    "nadam": {
        "beta1": [0.9, 0.8],
        "beta2": [0.999, 0.99],
        "epsilon": [1e-8, 1e-4],
        "schedule_decay": [0.004, 0.1],
    },
    "signum": {"momentum": [0.9, 0.5, 0.0], "wd_lh": [0.0, 0.01]},
    "ftml": {"beta1": [0.6, 0.8], "beta2": [0.999, 0.99], "epsilon": [1e-8, 1e-4]},
    "test": {},
}
SCHEDULES = {
    "FactorScheduler": {"step": [1, 2], "factor": [1.0, 0.5, 0.9], "stop_factor_lr": [1e-8, 0.02]},
    "MultiFactorScheduler": {"step": [[1], [2, 3]], "factor": [0.5, 0.9]},
    "PolyScheduler": {"max_update": [4, 8], "pwr": [1, 2], "final_lr": [0, 0.01]},
    "CosineScheduler": {"max_update": [4, 8], "final_lr": [0, 0.01]},
}
WARMUPS = {
    "warmup_steps": [1, 3],
    "warmup_begin_lr": [0.0, 0.01],
    "warmup_mode": ["linear", "constant"],
}


#: Optimizers whose states MXNet makes in float32 always, and which then fail for float64, unseen.
FLOAT32_STATES = {"adagrad", "adadelta", "rmsprop", "ftrl"}


#: Optimizers that begin where a schedule does if no learning rate is given.
BEGIN_AT_THE_SCHEDULES = {"sgd", "ccsgd", "nag", "dcasgd"}


class Training(Maker):
    """A program that trains."""

    def __init__(self, seed):
        super().__init__(seed)
        self.optimizer = self.random.choice(sorted(OPTIMIZERS))

    def some_of(self, options, probability=0.5):
        """Returns values of some options."""
        names = [name for name in options if self.chance(probability)]
        return {name: self.random.choice(options[name]) for name in names}

    def schedule(self):
        name = self.random.choice(sorted(SCHEDULES))
        arguments = self.some_of(SCHEDULES[name], 0.8)
        needed = "max_update" if "max_update" in SCHEDULES[name] else "step"
        arguments[needed] = self.random.choice(SCHEDULES[name][needed])
        arguments["base_lr"] = self.random.choice([0.05, 0.1])
        if self.chance(0.3):
            arguments.update(self.some_of(WARMUPS, 0.8))
            if "max_update" in arguments and "warmup_steps" in arguments:
                # It has to be over before the end.
                arguments["warmup_steps"] = 1
        return [name, arguments]

    def set_optimizer(self, options=()):
        name = self.optimizer
        kwargs = self.some_of(OPTIMIZERS[name])
        kwargs.update(
            self.some_of(
                {
                    "wd": [0.0, 0.01, 0.1],
                    "rescale_grad": [1.0, 0.5, 0.125],
                    "clip_gradient": [None, 0.5, 1.0],
                    "begin_num_update": [0, 3],
                },
                0.3,
            )
        )
        kwargs.update(options)
        if name == "signum" and kwargs.get("momentum") == 0.0:
            # MXNet's step without momentum fails with it.
            kwargs.pop("wd_lh", None)
        # The counts of keys: one key has the same ones on both sides.
        if name == "test":
            kwargs = {"rescale_grad": kwargs.get("rescale_grad", 1.0)}
        elif name != "adadelta":
            is_scheduled = len(self.keys) == 1 and self.chance(0.3)
            if is_scheduled:
                kwargs["lr_scheduler"] = self.schedule()
            # The others begin at their own default in MXNet, whatever the schedule says.
            if not is_scheduled or name not in BEGIN_AT_THE_SCHEDULES or self.chance(0.5):
                kwargs["learning_rate"] = self.random.choice([0.01, 0.1, 0.5])
            if is_scheduled and "learning_rate" in kwargs:
                # Most of MXNet's schedules remember their own.
                kwargs["lr_scheduler"][1]["base_lr"] = kwargs["learning_rate"]
        if any(key.dtype == "float16" for key in self.keys):
            # Half floats always have a copy in float32 here.
            kwargs["multi_precision"] = True
        factors = {}
        for option in ("lr_mult", "wd_mult"):
            if self.chance(0.2):
                key = self.random.choice(self.keys)
                factors[option] = [[key.name, self.random.choice([0.0, 0.5, 2.0])]]
        self.rule = self.step("set_optimizer", name=name, kwargs=kwargs, **factors)
        self.rounding = name

    def dtypes(self):
        return ["float32", "float16"] if self.optimizer in FLOAT32_STATES else FLOATS

    def number(self, dtype):
        number = super().number(dtype)
        if self.optimizer == "adamax":
            # MXNet's divides by a gradient that is 0.
            return abs(number) or 0.125
        return number

    def ending(self):
        """Makes states go through a file, and trains on."""
        with_counts = self.chance(0.5)
        counting = self.optimizer in COUNTING or "lr_scheduler" in self.rule["kwargs"]
        if counting and not with_counts:
            return
        self.step("save_optimizer_states", file="states", dump_optimizer=with_counts)
        for call in (self.push, self.pull):
            call()
        self.step("load_optimizer_states", file="states")
        for call in (self.push, self.pull, self.push):
            call()
        self.pull_all()


#: Optimizers that go by the number of updates. MXNet saves it with the optimizer only.
COUNTING = {"adam", "adamax", "nadam", "ftml"}


def optimizers(seed):
    """Makes a program that trains with an optimizer, which may be set again: then states begin anew."""
    maker = Training(seed)
    # The product of its momenta belongs to a key here, in MXNet to all of them.
    if maker.chance(0.5) or maker.optimizer == "nadam":
        maker.names = maker.names[:1]
    maker.init()
    if maker.chance(0.2):
        maker.push()
        for key in maker.keys:
            # No sums without an optimizer before one.
            key.first_list = key.first_list or 1
    maker.set_optimizer()
    calls = [maker.push] * 12 + [maker.pull] * 6 + [maker.pushpull] * 4 + [maker.mistake] * 2
    for _ in range(maker.random.randint(3, 14)):
        maker.random.choice([*calls, maker.set_optimizer])()
    maker.pull_all()
    if maker.chance(0.3):
        maker.ending()
    return maker.program()


# Programs with rows.

LAZY = ["sgd", "adam", "adagrad", "ftrl"]


class Rows(Training):
    """A program with keys that are initialised as rows, most of them."""

    def __init__(self, seed):
        super().__init__(seed)
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

    def pushed(self, key):
        if key.name in self.whole:
            # What MXNet copies the values of a list to is rows or whole for ever.
            is_mixed = key.first_list is None and self.chance(0.5)
            count = self.num_values(key)
            makers = [self.rows, self.value] if is_mixed and count > 1 else [self.rows]
            if is_mixed and count > 1:
                key.first_list = 1
            return [self.random.choice(makers)(key.shape, key.dtype) for _ in range(count)]
        if not self.is_training and self.chance(0.2):
            # From then on it is whole for MXNet.
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
                lambda: self.step("row_sparse_pull", keys=key.name, outs=[out] * 3, row_ids=[[0], [1]]),
                lambda: self.step("init", keys=key.name, values=self.rows(key.shape, key.dtype)),
            ]
        )()


def rows(seed):
    """Makes a program with keys of rows, with a lazy optimizer or none."""
    maker = Rows(seed)
    maker.is_training = maker.chance(0.5)
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


# Programs with compression.


class Compressing(Training):
    """A program whose values are compressed; MXNet does that on a device, to float32."""

    def dtypes(self):
        return ["float32"]

    def num_values(self, key):
        # MXNet keeps what was not sent of as many values as the first push had.
        key.first_list = key.first_list or self.random.randint(1, MOST_VALUES)
        return key.first_list


def compression(seed):
    """Makes a program that compresses what it pushes."""
    maker = Compressing(seed)
    maker.store, maker.is_device = "device", True
    maker.init()
    threshold = {"threshold": maker.random.choice([0.5, 0.25, 1.0, 2])} if maker.chance(0.8) else {}
    maker.step("set_gradient_compression", params={"type": "2bit", **threshold})
    if maker.chance(0.4):
        maker.set_updater()
    elif maker.chance(0.5):
        maker.optimizer = "sgd"
        maker.set_optimizer()
    calls = [maker.push] * 6 + [maker.pull] * 3 + [maker.pushpull]
    for _ in range(maker.random.randint(3, 14)):
        maker.random.choice(calls)()
    maker.pull_all()
    return maker.program()


#: Every kind of program.
KINDS = {"verbs": verbs, "optimizers": optimizers, "rows": rows, "compression": compression}
