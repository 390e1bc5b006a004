"""strata: the states of large models in RAM and on NVMe.

strata.optim            optimizers for PyTorch, imported with it when first used
strata.offload          a PyTorch model whose parameters and gradients are there, too
strata.offload_activations  what PyTorch saves for backward is there meanwhile
strata.plan             what a step of it needs, before the first one
strata.save_checkpoint  a checkpoint that the strata command reads; load_checkpoint reads one
strata.Session          the same for any other trainer
strata.from_ds_config   settings and optimizer of a ds_config.json of DeepSpeed
strata.errors           exceptions
"""

import importlib

from . import errors
from ._checkpoint import load_checkpoint, save_checkpoint
from ._ds_config import from_ds_config
from ._session import Session

__all__ = [
    "Session",
    "errors",
    "from_ds_config",
    "load_checkpoint",
    "offload",
    "offload_activations",
    "optim",
    "plan",
    "save_checkpoint",
]


def __getattr__(name):
    if name == "optim":
        return importlib.import_module(".optim", __name__)
    if name in ("offload", "plan"):
        return getattr(importlib.import_module("._offload", __name__), name)
    if name == "offload_activations":
        return importlib.import_module("._activations", __name__).offload_activations
    if name == "__version__":
        from . import _abi

        return _abi.load().strata_version().decode()
    raise AttributeError(f"module 'strata' has no attribute {name!r}")
