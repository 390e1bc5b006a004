"""strata.offload(): a PyTorch model whose parameters and gradients are in RAM and on NVMe."""

import torch

from ..errors import UnsupportedError

if not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
    raise UnsupportedError(f"strata.offload() and strata.plan() need PyTorch 2.1 or later; this is {torch.__version__}")

from ._model import offload  # noqa: E402
from ._plan import plan  # noqa: E402

__all__ = ["offload", "plan"]
