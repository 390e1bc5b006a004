"""Tensors in the memory of a GPU: copies to and from pinned memory, in the order of the stream that computes.

strata reads and writes memory of the host alone. A copy begins when it is queued and ends at the latest in wait(); the
memory that it reads or writes on the host must not be touched before that."""

import torch

from .errors import UnsupportedError


def is_host(tensor):
    """Whether strata can use the memory of the tensor."""
    return tensor.device.type == "cpu"


def check(tensor, what):
    """Raises if tensors on such a device cannot be copied to the host in stream order."""
    if tensor.device.type not in ("cpu", "cuda"):
        raise UnsupportedError(f"{what} is on {tensor.device}; it must be in CPU memory or on a CUDA device")


def host_like(tensor, dtype=None):
    """Undefined values on the host, with the shape and the memory order of a tensor; pinned if that is on a GPU."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype or tensor.dtype, device="cpu",
                               pin_memory=tensor.device.type == "cuda")  # fmt: skip


def host_bytes(n, device):
    """`n` undefined bytes on the host, for copies to and from a device."""
    return torch.empty(n, dtype=torch.uint8, device="cpu", pin_memory=torch.device(device).type == "cuda")


def copy(into, tensor):
    """Queues a copy after the work that is queued on the tensors' device."""
    into.copy_(tensor, non_blocking=True)


def wait(device):
    """Returns when all work that is queued on the device, copies among it, is done."""
    if torch.device(device).type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def on_host(tensor):
    """The tensor, or a copy of it in CPU memory in the same memory order."""
    if is_host(tensor):
        return tensor
    copied = host_like(tensor)
    copy(copied, tensor)
    wait(tensor.device)
    return copied
