"""The context in which tensors that autograd saves leave torch's memory."""

import collections
import sys
import threading
import weakref

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules.module import register_module_forward_pre_hook

from .. import _device
from .._sizes import to_bytes
from ._saved import SavedStorage, SavedView, StayedTensor, address_of, base_of, describe, span_of, storage_of
from ._store import ActivationStore

PLAIN = (torch.Tensor, torch.nn.Parameter)


def untraced(function):
    """The function as torch.compile, if it is in use, must call it: as it is."""
    if "torch._dynamo" not in sys.modules:
        return function
    public = getattr(getattr(torch, "compiler", None), "disable", None)  # since 2.1
    return (public or torch._dynamo.disable)(function)


class ActivationOffload:
    """The result of strata.offload_activations(): a context for forward, which may be used any number of times."""

    def __init__(self, store, device_bytes, min_bytes):
        self._store, self.device_bytes, self.min_bytes = store, device_bytes, min_bytes
        self._saved = {}  # address of a storage: (weak reference to it, state, weak reference to a SavedStorage)
        self._gone = collections.deque()  # keys of _saved whose SavedStorage has died, perhaps in the collector
        self._kept = collections.deque()  # weak references to those that are in torch's memory, oldest first
        self._freed_bytes = collections.deque()  # bytes of those that died in torch's memory
        self._kept_bytes = self._peak_kept_bytes = 0
        self._of_modules = set()  # addresses of storages of parameters and buffers
        self._lock = threading.Lock()
        self._entered, self._n_entered, self._module_hook = threading.local(), 0, None

    # ---- the context ----

    def __enter__(self):
        hooks = torch.autograd.graph.saved_tensors_hooks(untraced(self._pack), untraced(_unpack))
        hooks.__enter__()  # first: it raises where hooks are disabled
        entered = self._entered.__dict__
        if not entered.setdefault("hooks", []):
            entered["forward"] = object()
        entered["hooks"].append(hooks)
        with self._lock:
            self._n_entered += 1
            if self._n_entered == 1:
                self._of_modules.clear()
                self._module_hook = register_module_forward_pre_hook(untraced(self._before_module))
        return self

    def __exit__(self, *failure):
        entered = self._entered.__dict__
        entered["hooks"].pop().__exit__(*failure)
        if not entered["hooks"]:
            del entered["forward"]
        with self._lock:
            self._n_entered -= 1
            if self._n_entered == 0:
                self._module_hook.remove()

    def _before_module(self, module, _):
        """Notes what belongs to a module: buffers and frozen parameters do not look different from activations."""
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if type(tensor) in PLAIN and tensor.layout == torch.strided:
                self._of_modules.add(address_of(storage_of(tensor)))

    # ---- saving ----

    def _pack(self, tensor):
        if not self._leaves(tensor):
            return StayedTensor(tensor)
        return SavedView(self._save(tensor), tensor)

    def _leaves(self, tensor):
        _device.check(tensor.device, f"{describe(tensor)} is on")
        if type(tensor) not in PLAIN or tensor.layout != torch.strided or tensor.is_quantized:
            return False
        if tensor.is_conj() or tensor.is_neg():  # a storage alone does not say so
            return False
        base, storage = base_of(tensor), storage_of(tensor)
        if isinstance(base, torch.nn.Parameter) or (base.requires_grad and base.is_leaf):
            return False
        # A part of the caller's memory, such as a batch of a dataset: to copy all of it would free nothing.
        if base.grad_fn is None and 2 * span_of(tensor) <= storage.nbytes():
            return False
        return storage.nbytes() >= max(1, self.min_bytes) and address_of(storage) not in self._of_modules

    def _save(self, tensor):
        """The SavedStorage of the tensor's storage as it is now."""
        self._forget_gone()
        key, state = address_of(storage_of(tensor)), self._state_of(tensor)
        # The weak reference keeps the address from being given to another storage.
        known = self._saved.get(key)
        saved = known[2]() if known is not None and known[1] == state else None
        if saved is not None:
            return saved
        saved = SavedStorage(self._store, tensor)
        if saved.bytes > self.device_bytes:
            saved.leave()
        else:
            self._keep(saved)
        gone = self._gone
        self._saved[key] = (
            StorageWeakRef(storage_of(tensor)),
            state,
            weakref.ref(saved, lambda dead: gone.append((key, dead))),
        )
        return saved

    def _state_of(self, tensor):
        """Equal for tensors over one storage between whose saving it was not written to, as far as one can know."""
        if base_of(tensor).grad_fn is not None:
            return tensor._version
        # A tensor that autograd does not compute may be the caller's memory, to which a new batch is written, by
        # numpy or `.data`, for the next forward: without a new version.
        return tensor._version, self._entered.__dict__.get("forward") or object()

    def _forget_gone(self):
        while True:
            try:
                key, dead = self._gone.popleft()
            except IndexError:  # perhaps because another thread was faster
                return
            known = self._saved.get(key)
            if known is not None and known[2] is dead:
                del self._saved[key]

    def _keep(self, saved):
        """Keeps a storage in torch's memory, from which the oldest leave for it."""
        with self._lock:
            while self._kept and self._kept[-1]() is None:  # backward frees the newest first
                self._kept.pop()
            while self._bytes_kept() + saved.bytes > self.device_bytes and self._kept:
                oldest = self._kept[0]()
                if oldest is not None:
                    oldest.leave()
                    self._kept_bytes -= oldest.bytes
                self._kept.popleft()
            saved.freed_bytes = self._freed_bytes
            self._kept.append(weakref.ref(saved))
            self._kept_bytes += saved.bytes
            self._peak_kept_bytes = max(self._peak_kept_bytes, self._kept_bytes)

    def _bytes_kept(self):
        while self._freed_bytes:
            self._kept_bytes -= self._freed_bytes.popleft()
        return self._kept_bytes

    # ---- the rest ----

    def stats(self):
        """The fields of strata_activation_stats, and "peak_device_bytes": of saved storages that stayed by `device`."""
        return {**self._store.stats(), "peak_device_bytes": self._peak_kept_bytes}

    def close(self):
        """Gives back memory and files. What was saved and is not in torch's memory cannot be used any more."""
        self._store.close()


def _unpack(saved):
    return saved.tensor()


def offload_activations(*, pinned=None, nvme=None, nvme_bytes=None, device=0, min_bytes="256KiB", page_bytes=None):
    """A context: what autograd saves in it for backward leaves torch's memory and comes back in backward.

    pinned: budget of RAM, in bytes or as "8GiB", allocated at once. None: 40 % of what is free.
    nvme: folder or folders on NVMe, for what RAM has no room for; nvme_bytes: its budget. None: as many as needed.
    device: bytes of saved tensors that may stay in torch's memory, newest first.
    min_bytes: tensors whose storage is smaller stay.
    page_bytes: what moves as a whole; the last page of a storage is not full. None: 4 to 512 KiB, by `pinned`.

        activations = strata.offload_activations(pinned="8GiB", nvme="/mnt/nvme/strata")
        with activations:
            loss = model(batch)
        loss.backward()

    Parameters, buffers and their views stay, and so do other leaves that require gradients, and views of less than half
    of a storage that autograd did not compute. Views of one storage are saved once. A storage is copied when it is
    saved: writing to it afterwards is no error, and gradients are those of what was saved; of one that stays, in
    torch's memory or by its size, it is the error that torch raises. Works with checkpointing, retain_graph, double
    backward and strata.offload().
    """
    device_bytes, min_bytes = to_bytes(device, "device"), to_bytes(min_bytes, "min_bytes")
    return ActivationOffload(ActivationStore(pinned, nvme, nvme_bytes, page_bytes), device_bytes, min_bytes)
