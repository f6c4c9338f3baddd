"""Random programs for a player, the same for MXNet and this package. A seed determines a program.

A program creates a few keys, and pushes and pulls them in all forms of arguments. For each key it
keeps the state that it needs to avoid calls in which MXNet and this package are known to differ. It
makes some of these calls on purpose, as the last step, and marks them (``mxnet_differences.py``).
"""

from .rows import rows
from .training import compression, optimizers
from .verbs import verbs

__all__ = ["SHARES", "program"]

#: Every kind of program, as a function of the seed.
KINDS = {"verbs": verbs, "optimizers": optimizers, "rows": rows, "compression": compression}

#: The number of programs of each kind among ten.
SHARES = {"verbs": 3, "optimizers": 5, "rows": 1, "compression": 1}
_TENTH = [name for name, share in SHARES.items() for _ in range(share)]


def program(seed):
    """Returns the program of a seed. Ten consecutive seeds have the shares of `SHARES`."""
    return KINDS[_TENTH[seed % len(_TENTH)]](seed)
