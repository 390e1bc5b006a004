"""strata.offload(): a PyTorch model whose parameters and gradients are in RAM and on NVMe."""

from ._model import offload

__all__ = ["offload"]
