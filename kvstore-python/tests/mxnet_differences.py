"""Where this package is known to differ from MXNet 1.9.1, each in a sentence; ``docs/migration.md`` tells its users.

``AT_THE_END`` are calls that random programs make on purpose, as their last, and what becomes of them on both sides:
``works``, ``fails``, or ``either`` where that depends. ``NOT_MADE`` are those that no random program makes.
"""

from typing import NamedTuple


class Difference(NamedTuple):
    """What becomes of a call."""

    mxnet: str
    here: str
    why: str


AT_THE_END = {
    "push_of_another_shape": Difference(
        "works", "fails", "MXNet replaces the stored value, and a later pull of the old shape fails."
    ),
    "push_of_another_dtype": Difference(
        "works", "fails", "MXNet replaces the stored value and with it the dtype of the key."
    ),
    "list_of_several_dtypes": Difference(
        "works", "fails", "MXNet casts the later values of a list to the dtype of the first."
    ),
    "list_of_another_dtype": Difference(
        "either", "fails", "MXNet casts where it has memory for the sum already, and fails where it has not."
    ),
    "longer_list": Difference(
        "either", "works", "MXNet has room for as many values as the first list had, and reads on: most times it ends."
    ),
    "pull_without_outputs": Difference(
        "fails", "works", "Without outputs, pull returns new arrays."
    ),
    "one_array_for_a_list": Difference(
        "fails", "works", "A list of one key takes an array as well as a list of one."
    ),
    "compression_on_local": Difference(
        "fails", "works", "MXNet compresses on device and dist stores only."
    ),
    "one_bit": Difference("fails", "works", "MXNet 1.9 has no 1bit."),
    "unknown_compression_option": Difference(
        "works", "fails", "MXNet ignores options that it does not know."
    ),
    "empty_lists": Difference(
        "either", "works", "A call without keys does nothing; MXNet refuses it where keys are texts."
    ),
    "rows_of_whole_values": Difference(
        "fails", "works", "MXNet gives rows of keys that were initialised as rows only."
    ),
    "unknown_store": Difference("works", "fails", "MXNet takes any name for local."),
    "failing_updater": Difference(
        "works", "fails", "MXNet prints what an updater raises and goes on, here push raises it."
    ),
    "optimizer_of_integers": Difference(
        "either", "fails", "An optimizer is an updater, so MXNet prints that there is no step of integers, most times."
    ),
    "large_integer_keys": Difference(
        "fails", "works", "MXNet's integer keys have 32 bits."
    ),
}

NOT_MADE = {
    "later writes": "MXNet's store keeps an array that was pushed alone, and the memory in which it sums; a later write"
    " to it changes the value. Programs push new arrays, and no list to a key whose value is that memory.",
    "sum order": "MXNet's local store adds values in chunks of four, and its device store in call order, as here;"
    " float16 is rounded at every addition there, once here. Beyond 16 values its order is not known.",
    "integer keys": "MXNet processes them by number, here it is the order of initialisation. Logs are compared sorted.",
    "keys of updaters": "MXNet's updaters get texts as bytes. The player decodes them.",
    "failing steps": "For dcasgd with momentum, signum without momentum but with wd_lh, and for float64 those of"
    " FLOAT32_STATES (random_programs/training.py), MXNet prints an error and leaves the value as it was; here they work.",
    "no updater": "MXNet calls None as an updater, here it ends the updater.",
    "half broken calls": "A call with one bad key leaves MXNet's store in between. Only the last step may be one.",
    "outputs of several dtypes": "MXNet's device store pulls into one output of a key and copies from there.",
    "casts of large floats": "To small integers MXNet casts as C does, which leaves them open.",
    "counts": "They belong to a key here. MXNet's schedules see the largest of all keys, nadam's product is everybody's,"
    " and states in a file have none unless the optimizer is dumped.",
    "where schedules begin": "Without a learning rate, here every optimizer begins where its schedule does, in MXNet only"
    " those of BEGIN_AT_THE_SCHEDULES; with one, here every schedule does, in MXNet none that has a warm-up, a"
    " polynomial or a cosine.",
    "later changes of optimizers": "MXNet's local stores see what is changed in an optimizer that they have.",
    "clip_gradient of 0": "It is off here; MXNet's dcasgd, adagrad, adadelta and sgld make every gradient 0.",
    "zero gradients": "MXNet's adamax divides by them, and its centered rmsprop takes roots of what may be below 0.",
    "multi_precision": "Half floats always have a copy in float32 here, so programs with them turn it on.",
    "learning rate 0": "MXNet's ftrl and ftml divide by it, so the weight becomes NaN; here such an update is"
    " not a step. Programs of DIVIDE_BY_THE_RATE have schedules that stay above 0.",
    "noise": "sgld's stream is another one.",
    "rows": "MXNet gives no rows of a value without any, even where they are zeros; it pulls rows of float32 only into"
    " whole arrays, wants the lists of a key to be all of rows or all whole, and takes a key as whole for ever once a"
    " whole array was pushed to it. A pull gives rows that are 0 if they are stored, here it does not. Numbers of rows are not checked. adagrad refuses weight decay for rows.",
    "compression": "MXNet keeps residuals for as many values as the first push had, and takes other dtypes than float32"
    " and rows for what they are not.",
}
