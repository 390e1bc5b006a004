"""Tensors in the memory of a GPU: copies to and from pinned memory, in the order of the stream that computes.

strata reads and writes memory of the host alone. A copy begins when it is queued and ends at the latest in wait(); the
memory that it reads or writes on the host must not be touched before that."""

import torch

from .errors import UnsupportedError


def is_host(tensor):
    """Whether strata can use the memory of the tensor."""
    return tensor.device.type == "cpu"


def check(device, what):
    """Raises if tensors on such a device cannot be copied to the host in stream order."""
    if device.type not in ("cpu", "cuda"):
        raise UnsupportedError(f"{what} {device}; it must be in CPU memory or on a CUDA device")


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


class Event:
    """The end of what is queued on a device when it is made."""

    def __init__(self, device):
        self._event = None
        if torch.device(device).type == "cuda":
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream(device))

    def wait(self):
        if self._event is not None:
            self._event.synchronize()


class Staging:
    """Two buffers on the host, in turns, for copies to or from a device."""

    def __init__(self, device):
        self._device, self._buffers, self._ends, self._turn = device, [None, None], [None, None], 0

    def take(self, n):
        """`n` bytes that no queued copy uses."""
        if self._ends[self._turn] is not None:
            self._ends[self._turn].wait()
        if self._buffers[self._turn] is None or self._buffers[self._turn].numel() < n:
            self._buffers[self._turn] = host_bytes(n, self._device)
        return self._buffers[self._turn][:n]

    def queued(self):
        """Copies with the bytes that were taken last are queued; returns the event of their end."""
        end = self._ends[self._turn] = Event(self._device)
        self._turn ^= 1
        return end


def as_tensor(flat, like, dtype=None):
    """Bytes as a tensor with the shape and the memory order of another one."""
    return flat.view(dtype or like.dtype).as_strided(like.shape, like.stride())


def on_host(tensor):
    """The tensor, or a copy of it in CPU memory in the same memory order."""
    if is_host(tensor):
        return tensor
    copied = host_like(tensor)
    copy(copied, tensor)
    wait(tensor.device)
    return copied
