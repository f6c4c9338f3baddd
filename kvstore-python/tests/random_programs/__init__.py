"""Random programs for a player, the same ones for MXNet and this package: one seed, one program.

A program makes few keys and pushes and pulls them in every shape of a call. What it holds of each key is what it takes to
avoid calls about which MXNet and this package are known to differ; some of them it makes on purpose, as the last step, and
says their name (``mxnet_differences.py``).
"""

from .rows import rows
from .training import compression, optimizers
from .verbs import verbs

__all__ = ["SHARES", "program"]

#: Every kind of program, as a function of the seed.
KINDS = {"verbs": verbs, "optimizers": optimizers, "rows": rows, "compression": compression}

#: Programs of each kind among ten.
SHARES = {"verbs": 3, "optimizers": 5, "rows": 1, "compression": 1}
_TENTH = [name for name, share in SHARES.items() for _ in range(share)]


def program(seed):
    """Returns the program of a seed. Ten consecutive seeds have the shares of `SHARES`."""
    return KINDS[_TENTH[seed % len(_TENTH)]](seed)
