"""The known differences between this package and MXNet 1.9.1. ``docs/migration.md`` describes them
for users.

``AT_THE_END`` are calls that random programs make on purpose, as their last call, and their results
on both sides: ``works``, ``fails``, or ``either`` if it depends on other things. ``NOT_MADE`` are
calls that no random program makes.
"""

from typing import NamedTuple


class Difference(NamedTuple):
    """The results of a call on both sides."""

    mxnet: str
    here: str
    why: str


AT_THE_END = {
    "push_of_another_shape": Difference(
        "works",
        "fails",
        "MXNet replaces the stored value, and a later pull of the old shape fails.",
    ),
    "push_of_another_dtype": Difference(
        "works", "fails", "MXNet replaces the stored value, and with it the dtype of the key."
    ),
    "list_of_several_dtypes": Difference(
        "works", "fails", "MXNet casts the later values of a list to the dtype of the first value."
    ),
    "list_of_another_dtype": Difference(
        "either",
        "fails",
        "MXNet casts if it already has memory for the sum, and fails if it does not.",
    ),
    "longer_list": Difference(
        "either",
        "works",
        "MXNet has memory for as many values as the first list had, and reads beyond it."
        " Most times the process ends.",
    ),
    "pull_without_outputs": Difference(
        "fails", "works", "Without outputs, pull returns new arrays."
    ),
    "one_array_for_a_list": Difference(
        "fails", "works", "A list of one key accepts an array in place of a list of one array."
    ),
    "compression_on_local": Difference(
        "fails", "works", "MXNet compresses on device and dist stores only."
    ),
    "one_bit": Difference("fails", "works", "MXNet 1.9 has no 1bit compression."),
    "unknown_compression_option": Difference(
        "works", "fails", "MXNet ignores options that it does not know."
    ),
    "empty_lists": Difference(
        "either", "works", "A call without keys does nothing. MXNet rejects it if keys are strings."
    ),
    "rows_of_whole_values": Difference(
        "fails", "works", "MXNet pulls rows only of keys that were initialised as row-sparse."
    ),
    "unknown_store": Difference("works", "fails", "MXNet treats any unknown name as local."),
    "failing_updater": Difference(
        "works",
        "fails",
        "MXNet prints the exception of an updater and continues. Here, push raises it.",
    ),
    "optimizer_of_integers": Difference(
        "either",
        "fails",
        "An optimizer is an updater in MXNet, so most times it only prints that it cannot update"
        " integers.",
    ),
    "large_integer_keys": Difference("fails", "works", "MXNet's integer keys have 32 bits."),
}

NOT_MADE = {
    "later writes": "MXNet's store keeps an array that was pushed alone, and the memory that it"
    " sums in. A later write to them changes the value. Programs push new arrays, and push no list"
    " to a key whose value is that memory.",
    "sum order": "MXNet's local store adds values in chunks of four. Its device store adds them in"
    " call order, like this package. MXNet rounds float16 at every addition, this package rounds"
    " once. The order for more than 16 values is unknown.",
    "integer keys": "MXNet processes integer keys by number, this package in the order of"
    " initialisation. Logs are compared sorted.",
    "keys of updaters": "MXNet's updaters receive string keys as bytes. The player decodes them.",
    "failing steps": "MXNet prints an error and does not change the value for dcasgd with momentum,"
    " for signum without momentum but with wd_lh, and for float64 with an optimizer in"
    " FLOAT32_STATES (random_programs/training.py). These updates work in this package.",
    "no updater": "MXNet calls None as an updater. In this package, None removes the updater.",
    "half broken calls": "A call with one bad key leaves MXNet's store half changed. Only the last"
    " step may be such a call.",
    "outputs of several dtypes": "MXNet's device store pulls into one output of a key, and copies"
    " from there to the others.",
    "casts of large floats": "MXNet casts to small integers as C does: the result is undefined.",
    "counts": "Update counts belong to a key in this package. MXNet's schedules use the largest"
    " count of all keys, nadam's product belongs to all keys, and states in a file have no counts"
    " unless the optimizer is dumped.",
    "where schedules begin": "Without a learning rate, every optimizer in this package starts at"
    " the base_lr of its schedule. In MXNet only BEGIN_AT_THE_SCHEDULES do. With a"
    " learning rate, every schedule starts at it in this package. In MXNet, schedules with a"
    " warm-up, a polynomial or a cosine do not.",
    "later changes of optimizers": "MXNet's local stores use later changes of an optimizer object.",
    "clip_gradient of 0": "0 turns clipping off in this package. MXNet's dcasgd, adagrad, adadelta"
    " and sgld set every gradient to 0.",
    "zero gradients": "MXNet's adamax divides by gradients, and its centered rmsprop takes square"
    " roots of differences that may be below 0.",
    "multi_precision": "In this package, half-precision weights always have a float32 copy, so"
    " programs with such weights turn multi_precision on.",
    "learning rate 0": "MXNet's ftrl and ftml divide by the learning rate, so the weight becomes"
    " NaN. In this package, such an update does nothing. Programs with optimizers of"
    " DIVIDE_BY_THE_RATE have schedules that stay above 0.",
    "noise": "The random numbers of sgld differ.",
    "rows": "MXNet cannot pull rows of a value without rows, even rows of zeros. It pulls rows into"
    " dense arrays for float32 only, requires lists that are all row-sparse or all dense, and"
    " treats a key as dense for ever after a push of a dense array. Its pull returns stored rows of"
    " zeros, which this package omits. It does not check row indices. Its adagrad rejects weight"
    " decay for row-sparse gradients.",
    "compression": "MXNet keeps residuals for as many values as the first push had, and treats"
    " other dtypes than float32 and row-sparse values as dense float32 values.",
}
