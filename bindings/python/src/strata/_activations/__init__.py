"""strata.offload_activations(): what autograd saves for backward is in RAM and on NVMe meanwhile."""

from ._hooks import ActivationOffload, offload_activations

__all__ = ["ActivationOffload", "offload_activations"]
