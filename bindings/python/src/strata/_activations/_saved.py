"""Saved tensors: those that stay, and views of storages that leave.

A tensor that stays is checked by its version when it comes back, as autograd does with what it saves itself: with
hooks, it does not. A storage that leaves is copied when it is saved, so that what is written to it later does not
matter; if it is saved again after that, it is another one. As everywhere in torch, writing by `.data` to what autograd
computed goes unnoticed."""

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .. import _device
from ..errors import InvalidError, error

if hasattr(torch.Tensor, "untyped_storage"):
    storage_of = torch.Tensor.untyped_storage
else:

    def storage_of(tensor):
        return tensor.storage()._storage


def address_of(storage):
    """The key of the storage itself: all its Python objects have it, and no other as long as a weak reference lives."""
    return storage._cdata


def bytes_of(storage, device):
    """A tensor over all bytes of a storage."""
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)


def base_of(tensor):
    """The tensor that a view is of, or else the tensor."""
    return tensor if tensor._base is None else tensor._base


def span_of(tensor):
    """Bytes of the storage from the first element of the tensor to its last one."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return (last + 1) * tensor.element_size()


def describe(tensor):
    return f"a saved tensor of {tensor.dtype} {tuple(tensor.shape)}"


class StayedTensor:
    """A tensor that stays in torch's memory. Without its grad_fn, which would hold the graph that holds this."""

    __slots__ = ("_tensor", "_version")

    def __init__(self, tensor):
        self._tensor, self._version = tensor.detach(), tensor._version

    def tensor(self):
        check_version(self._tensor, self._version)
        return self._tensor


def check_version(tensor, version):
    if tensor._version != version:
        raise modified(tensor, version)


def modified(tensor, version):
    return InvalidError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"{describe(tensor)} is at version {tensor._version}; expected version {version}"
    )


class SavedStorage:
    """The bytes of a storage as they were when it was saved: in torch's memory, or in the store."""

    __slots__ = ("__weakref__", "_device", "_id", "_lost", "_restored", "_shared", "_store", "_tensor", "_version",
                 "bytes", "freed_bytes", "n_unpacked", "n_views")  # fmt: skip

    def __init__(self, store, tensor):
        storage = storage_of(tensor)
        self._store, self._tensor, self._version = store, tensor.detach(), tensor._version
        self.bytes, self._device = storage.nbytes(), tensor.device
        self._id = self._lost = self._restored = self._shared = None
        self.freed_bytes = None  # a deque for the bytes, if this dies in torch's memory
        self.n_views = self.n_unpacked = 0

    def leave(self):
        """Copies the bytes to the store and lets torch's memory go."""
        tensor = self._tensor
        if tensor._version != self._version:  # the bytes are lost, which storage() says
            self._lost, self._tensor, self.freed_bytes = modified(tensor, self._version), None, None
            return
        try:
            host = _device.on_host(bytes_of(storage_of(tensor), tensor.device))
            self._id = self._store.put(host.data_ptr(), self.bytes)
        except RuntimeError as failure:
            raise error(getattr(failure, "status", "internal"), f"{describe(tensor)}: {failure}") from None
        self._tensor = self.freed_bytes = None

    def storage(self):
        """The storage, read if nobody has it."""
        self.n_unpacked += 1
        tensor = self._tensor
        if tensor is not None:
            check_version(tensor, self._version)
            return storage_of(tensor)
        if self._lost is not None:
            raise self._lost
        storage = None
        if self._restored is not None:
            storage = torch.UntypedStorage._new_with_weak_ptr(self._restored.cdata)
        if storage is None:
            storage = self._read()
            self._restored = StorageWeakRef(storage)
        # For the other views, which backward mostly needs soon after.
        self._shared = storage if self.n_unpacked < self.n_views else None
        return storage

    def _read(self):
        made = torch.empty(self.bytes, dtype=torch.uint8, device=self._device)
        host = made if _device.is_host(made) else _device.host_bytes(self.bytes, self._device)
        self._store.get(self._id, host.data_ptr(), self.bytes)
        if host is not made:
            _device.copy(made, host)  # torch frees pinned memory when the copies that use it have ended
        return storage_of(made)

    def __del__(self):
        which, self._id = getattr(self, "_id", None), None
        if which is not None:
            self._store.discard(which)
        elif getattr(self, "freed_bytes", None) is not None:
            self.freed_bytes.append(self.bytes)


class SavedView:
    """A tensor over a storage that leaves."""

    __slots__ = ("_device", "_dtype", "_offset", "_saved", "_shape", "_stride")

    def __init__(self, saved, tensor):
        self._saved, self._dtype, self._device = saved, tensor.dtype, tensor.device
        self._offset, self._shape, self._stride = tensor.storage_offset(), tensor.shape, tensor.stride()
        saved.n_views += 1

    def tensor(self):
        made = torch.empty(0, dtype=self._dtype, device=self._device)
        return made.set_(self._saved.storage(), self._offset, self._shape, self._stride)
