"""strata.offload(): a PyTorch model whose parameters and gradients are in RAM and on NVMe."""

import torch

from ..errors import UnsupportedError

if not hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"):
    raise UnsupportedError(f"strata.offload() and strata.plan() need PyTorch 2.8 or later; this is {torch.__version__}")

from . import _transforms  # noqa: E402, F401 -- it makes transforms see parameters
from ._model import offload  # noqa: E402
from ._plan import plan  # noqa: E402

__all__ = ["offload", "plan"]
