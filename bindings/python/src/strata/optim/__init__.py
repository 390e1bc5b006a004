"""Optimizers for PyTorch whose states are in RAM and on NVMe.

Each takes what its namesake in torch.optim takes, has the same defaults and groups, reads the same state_dict, and
has these keywords besides:

    states      how moments are stored: "f32", "bf16" or "int8"
    placement   "auto" (RAM as far as the budget has room, then NVMe), "pinned" or "nvme"
    pinned      budget of RAM: bytes or a text such as "8GiB". None: 40 % of what is free if there is NVMe, else all
    nvme        folder or folders on NVMe. None: none
    nvme_bytes  budget of NVMe. None: as many bytes as needed
    threads     threads that update. None: the cores of this process
    chunk_elems, rounding_seed: as for strata.Session

`optimizer.grad_scale = x`, a number or a tensor, divides the gradients of later steps by x while they update: a loss
scale, or the clipping of a norm, without a pass of its own. torch.amp.GradScaler does so if unscale_() was not called.

bf16 and f16 parameters are trained by f32 masters, of which the states hold the bits that the parameters lack.
"""

from ._compat import CPUOffloadOptimizer, DeepSpeedCPUAdam
from ._optimizer import LAMB, SGD, Adagrad, Adam, AdamW, Lion

__all__ = ["AdamW", "Adam", "Lion", "LAMB", "Adagrad", "SGD", "DeepSpeedCPUAdam", "CPUOffloadOptimizer"]
