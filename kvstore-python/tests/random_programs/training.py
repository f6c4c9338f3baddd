"""Programs that train: optimizers, schedules, states in files, and compression."""

from .maker import FLOATS, MOST_VALUES
from .verbs import Verbs

#: The options of each optimizer besides the common ones, and their values. MXNet and this package
#: differ for other options: see ``mxnet_differences.py``.
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
        "clip_weights": [None, 3.0],
    },
    "ftrl": {"lamda1": [0.01, 0.1], "beta": [1.0, 2.0]},
    "adamax": {"beta1": [0.9, 0.8], "beta2": [0.999, 0.99]},
    "nadam": {
        "beta1": [0.9, 0.8],
        "beta2": [0.999, 0.99],
        "epsilon": [1e-8, 1e-4],
        "schedule_decay": [0.004, 0.1],
    },
    "signum": {"momentum": [0.75, 0.5, 0.0], "wd_lh": [0.0, 0.01]},
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


#: Optimizers whose states are always float32 in MXNet. Their updates of float64 weights then fail
#: without an error.
FLOAT32_STATES = {"adagrad", "adadelta", "rmsprop", "ftrl"}


#: Optimizers that divide by the learning rate. If it is 0, the weight becomes NaN in MXNet.
DIVIDE_BY_THE_RATE = {"ftrl", "ftml"}


#: Optimizers that start at the schedule's `base_lr` if no learning rate is given.
BEGIN_AT_THE_SCHEDULES = {"sgd", "ccsgd", "nag", "dcasgd"}


class Training(Verbs):
    """A program that trains with an optimizer."""

    def __init__(self, seed):
        super().__init__(seed)
        # Use the optimizers in turn, so that a few programs cover all of them.
        self.optimizer = sorted(OPTIMIZERS)[seed % len(OPTIMIZERS)]

    def some_of(self, options, probability=0.5):
        """Returns random values for some of the options."""
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
                # The warm-up must end before the schedule does.
                arguments["warmup_steps"] = 1
        if self.optimizer in DIVIDE_BY_THE_RATE:
            if "max_update" in arguments:
                arguments["final_lr"] = 0.01
            if "warmup_steps" in arguments:
                arguments["warmup_begin_lr"] = 0.01
        return [name, arguments]

    def set_optimizer(self, options=()):
        name = self.optimizer
        kwargs = self.some_of(OPTIMIZERS[name], 0.35)
        kwargs.update(
            self.some_of(
                {
                    # With 0.1, a weight of 1.25 would nearly cancel a gradient of 0.125, and the
                    # rounding of the difference would matter.
                    "wd": [0.0, 0.0123, 0.0987],
                    "rescale_grad": [1.0, 0.5, 0.125],
                    "clip_gradient": [None, 0.5, 1.0],
                    "begin_num_update": [0, 3],
                },
                0.3,
            )
        )
        kwargs.update(options)
        if name == "signum":
            # With the default of 0.9, sums can be nearly 0, with either sign.
            kwargs.setdefault("momentum", 0.5)
            if kwargs["momentum"] == 0.0:
                # MXNet's update without momentum fails with `wd_lh`.
                kwargs.pop("wd_lh", None)
        # Use a schedule only with one key: its update count is the same on both sides.
        if name == "test":
            kwargs = {"rescale_grad": kwargs.get("rescale_grad", 1.0)}
        elif name != "adadelta":
            is_scheduled = len(self.keys) == 1 and self.chance(0.3)
            if is_scheduled:
                kwargs["lr_scheduler"] = self.schedule()
            # In MXNet, the other optimizers start at their own default, whatever the schedule is.
            if not is_scheduled or name not in BEGIN_AT_THE_SCHEDULES or self.chance(0.5):
                kwargs["learning_rate"] = self.random.choice([0.01, 0.1, 0.5])
            if is_scheduled and "learning_rate" in kwargs:
                # Most of MXNet's schedules keep their own `base_lr`.
                kwargs["lr_scheduler"][1]["base_lr"] = kwargs["learning_rate"]
        if any(key.dtype == "float16" for key in self.keys):
            # In this package, half-precision weights always have a float32 copy.
            kwargs["multi_precision"] = True
        factors = {}
        for option in ("lr_mult", "wd_mult"):
            if self.chance(0.2):
                key = self.random.choice(self.keys)
                factors[option] = [[key.name, self.random.choice([0.5, 2.0])]]
        self.rule = self.step("set_optimizer", name=name, kwargs=kwargs, **factors)
        self.rounding = name

    def casts(self, dtype):
        # In a cast to an integer, a rounding difference can become a difference of 1. A rounding of
        # a half-precision float is larger than many roundings of other dtypes.
        return {"float16": ["float16"], "float32": ["float16", "float32"]}.get(dtype, FLOATS)

    def dtypes(self):
        return ["float32", "float16"] if self.optimizer in FLOAT32_STATES else FLOATS

    def number(self, dtype):
        number = super().number(dtype)
        if self.optimizer == "adamax":
            # MXNet's Adamax divides by the gradient, which must not be 0.
            return abs(number) or 0.125
        return number

    def ending(self):
        """Writes states to a file, trains, reads the states, and trains again."""
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


#: Optimizers that use the update count. MXNet saves the count only with the optimizer.
COUNTING = {"adam", "adamax", "nadam", "ftml"}


def optimizers(seed):
    """Makes a program that trains with an optimizer. It may set the optimizer again, which resets
    the states.
    """
    maker = Training(seed)
    # Nadam's product of momenta belongs to a key in this package, and to all keys in MXNet.
    if maker.chance(0.5) or maker.optimizer == "nadam":
        maker.names = maker.names[:1]
    maker.init()
    if maker.chance(0.2):
        maker.push()
        for key in maker.keys:
            # A key whose pushes have had single values must keep getting single values.
            key.first_list = key.first_list or 1
    maker.set_optimizer()
    calls = [maker.push] * 12 + [maker.pull] * 6 + [maker.pushpull] * 4 + [maker.mistake] * 2
    for _ in range(maker.random.randint(3, 14)):
        maker.random.choice([*calls, maker.set_optimizer])()
    maker.pull_all()
    if maker.chance(0.3):
        maker.ending()
    return maker.program()


class Compressing(Training):
    """A program that compresses its values. MXNet compresses float32 values on a device."""

    def dtypes(self):
        return ["float32"]

    def num_values(self, key):
        # MXNet has residuals for as many values as the first push had.
        key.first_list = key.first_list or self.random.randint(1, MOST_VALUES)
        return key.first_list


def compression(seed):
    """Makes a program that compresses the values of its pushes."""
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
