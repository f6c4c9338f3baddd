# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The built-in optimizers, which :mod:`mxkv.optimizer` offers: a module with a class for each.

In the formulas ``w`` is the weight, ``lr`` the learning rate, ``rescale`` is ``rescale_grad``, and ``clip`` bounds every
element by ``clip_gradient``.
"""

from .adabelief import AdaBelief
from .adadelta import AdaDelta
from .adagrad import AdaGrad
from .adam import Adam
from .adamax import Adamax
from .adamw import AdamW
from .dcasgd import DCASGD
from .ftml import FTML
from .ftrl import Ftrl
from .groupadagrad import GroupAdaGrad
from .lamb import LAMB
from .lars import LARS
from .lion import Lion
from .nadam import Nadam
from .nag import NAG
from .nesterov import Nesterov
from .options import Options
from .rmsprop import RMSProp
from .sgd import SGD
from .sgld import SGLD
from .signum import Signum

__all__ = [
    "AdaBelief",
    "AdaDelta",
    "AdaGrad",
    "Adam",
    "AdamW",
    "Adamax",
    "DCASGD",
    "FTML",
    "Ftrl",
    "GroupAdaGrad",
    "LAMB",
    "LARS",
    "Lion",
    "NAG",
    "Nadam",
    "Nesterov",
    "Options",
    "RMSProp",
    "SGD",
    "SGLD",
    "Signum",
]
