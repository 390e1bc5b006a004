"""strata.offload(): a PyTorch model whose parameters and gradients are in RAM and on NVMe."""

from ._model import offload
from ._plan import plan

__all__ = ["offload", "plan"]
