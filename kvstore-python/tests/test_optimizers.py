"""Optimizer objects: their attributes, and what a store rejects."""

import gc
import inspect
import weakref

import pytest

import mxkv as mx
from mxkv import nd


def after_a_push(optimizer, key="w"):
    kv = mx.kv.create()
    kv.init(key, nd.ones(2))
    kv.set_optimizer(optimizer)
    kv.push(key, nd.ones(2))
    return kv.pull(key).tolist()[0]


@pytest.mark.parametrize(
    ("attribute", "value", "expected"),
    [
        ("lr", 0.25, 0.75),
        ("learning_rate", 0.5, 0.5),
        ("rescale_grad", 0.5, 0.5),
        ("wd", 0.25, -0.25),
        ("clip_gradient", 0.125, 0.875),
        ("clip_gradient", None, 0.0),
    ],
)
def test_attributes_take_effect(attribute, value, expected):
    sgd = mx.optimizer.SGD(learning_rate=1.0, clip_gradient=9)
    setattr(sgd, attribute, value)
    assert getattr(sgd, attribute) == (value or 0.0)
    assert after_a_push(sgd) == expected


def test_changes_after_set_optimizer_give_a_warning():
    kv, sgd = mx.kv.create(), mx.optimizer.SGD(learning_rate=0.5)
    kv.init("w", nd.ones(1))
    sgd.set_learning_rate(1.0)
    kv.set_optimizer(sgd)
    for change in (
        lambda: sgd.set_learning_rate(0.25),
        lambda: setattr(sgd, "lr", 0.25),
        lambda: sgd.set_lr_mult({"w": 0.5}),
        lambda: sgd.set_wd_mult({}),
    ):
        with pytest.warns(UserWarning, match="set_hyper_parameters"):
            change()
    kv.push("w", nd.ones(1))
    assert (kv.pull("w").tolist(), sgd.lr) == ([0.0], 0.25)


def test_a_cycle_of_schedule_and_optimizer_is_collected():
    schedule = type("Schedule", (mx.lr_scheduler.FactorScheduler,), {})(1)
    schedule.owner = mx.optimizer.SGD(lr_scheduler=schedule)
    reference = weakref.ref(schedule)
    del schedule
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("name", mx.optimizer.names())
def test_classes_document_their_options(name):
    kind = mx.optimizer.Optimizer.opt_registry[name]
    parameters = inspect.signature(kind).parameters.values()
    own = {
        one.name: one.default for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY
    }
    others = {
        "rescale_grad": 1, "clip_gradient": 0, "begin_num_update": 0, "staleness_power": 0
    }
    assert {**own, **others} == kind().hyper_parameters
    assert others.keys() <= mx.optimizer.Options.__annotations__.keys()
    for option in own:
        assert f"\n    {option}: " in inspect.cleandoc(kind.__doc__)
    assert kind(**own).hyper_parameters == kind().hyper_parameters


def test_an_unknown_option_is_rejected():
    with pytest.raises(mx.errors.InvalidArgumentError, match="no hyper-parameter `param_idx2name`"):
        mx.optimizer.SGD(param_idx2name={0: "w"})


def test_unknown_attributes_are_rejected():
    sgd = mx.optimizer.SGD()
    with pytest.raises(AttributeError, match="optimizer `sgd` has no hyper-parameter `beta1`"):
        sgd.beta1 = 0.9
    with pytest.raises(AttributeError, match="`beta1`"):
        _ = sgd.beta1
    with pytest.raises(mx.errors.ArgumentTypeError, match="momentum"):
        sgd.momentum = "much"
    with pytest.raises(mx.errors.InvalidArgumentError):
        sgd.lr = float("nan")
    assert sgd.lr == 0.01


@pytest.mark.filterwarnings("ignore:a store has taken")
def test_new_factors_replace_all_old_ones():
    sgd = mx.optimizer.SGD(learning_rate=1.0, lr_mult={"w": 0.0}, wd_mult={3: 2})
    assert (after_a_push(sgd), after_a_push(sgd, "b")) == (1.0, 0.0)
    sgd.set_lr_mult({"b": 0.5})
    assert (after_a_push(sgd), after_a_push(sgd, "b")) == (0.0, 0.5)
    assert (sgd.lr_mult, sgd.wd_mult) == ({"b": 0.5}, {"3": 2.0})


@pytest.mark.parametrize("name", ["update", "create_state", "step", "update_multi_precision"])
def test_a_subclass_with_its_own_steps_is_rejected(name):
    made = type("Mine", (mx.optimizer.SGD,), {name: lambda self, *_: None})()
    with pytest.raises(mx.errors.UnsupportedError, match=f"defines `{name}`"):
        mx.kv.create().set_optimizer(made)
    named = type("Named", (mx.optimizer.SGD,), {})(learning_rate=0.5)
    assert after_a_push(named) == 0.5


def test_a_schedule_with_its_own_rates_is_rejected():
    class Mine(mx.lr_scheduler.FactorScheduler):
        def __call__(self, num_update):
            return 0.125

    with pytest.raises(mx.errors.UnsupportedError, match="`Mine` defines `__call__`"):
        mx.optimizer.SGD(lr_scheduler=Mine(1))
    with pytest.raises(mx.errors.ArgumentTypeError, match="lr_scheduler: expected one of"):
        mx.optimizer.SGD(lr_scheduler=lambda num_update: 0.1)
