"""Programs of verbs and updaters, with calls that fail and calls that are known to differ."""

from player import NO_ARRAY

from .maker import Maker


class Verbs(Maker):
    """A program that may make failing calls."""

    # Calls that fail and change nothing.

    def mistake(self):
        """Makes a call that fails on both sides and changes nothing."""
        known = self.random.choice(self.keys)
        value = self.value(known.shape, known.dtype)
        out = {"shape": known.shape, "dtype": known.dtype}
        # A key of the other type, whose digits may equal those of an existing key.
        other = str(known.name) if self.is_int else 3
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

    # The last call of a program.

    def ending(self):
        """Makes the last call: one that fails and may leave MXNet's store half changed, or one that
        is known to differ.
        """
        known = self.random.choice(self.keys)
        value = self.value(known.shape, known.dtype)
        wrong = self.value([*known.shape, 2], known.dtype)
        another = "float64" if known.dtype == "float32" else "float32"
        cast = self.value(known.shape, another)
        makers = [
            lambda: self.step("push", keys=known.name, values=[wrong, wrong]),
            lambda: self.step("push", keys=known.name, values=[value, wrong]),
            lambda: self.step("push", keys=[known.name, self.unknown], values=[value, value]),
            lambda: self.step("init", keys=[self.unknown, known.name], values=[value, value]),
            lambda: self.step("init", keys=[self.unknown] * 2, values=[value, value]),
            lambda: self.step("init", keys=self.unknown, values=[value, value]),
            lambda: self.step("push", keys=self.unknown, values=[value, value]),
            lambda: self.differing(
                "list_of_another_dtype", "push", keys=known.name, values=[cast] * 2
            ),
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
                lambda: self.differing(
                    "push_of_another_shape", "push", keys=known.name, values=wrong
                ),
                lambda: self.differing(
                    "push_of_another_dtype", "push", keys=known.name, values=cast
                ),
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


def verbs(seed):
    """Makes a program without an optimizer."""
    maker = Verbs(seed)
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
