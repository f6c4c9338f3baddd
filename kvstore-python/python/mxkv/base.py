"""What MXNet has in ``mxnet.base``: the error that all others are."""

from .errors import MXNetError

__all__ = ["MXNetError"]
